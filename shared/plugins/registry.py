"""Which in-tree plugins there are, and how each is made from its args."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flotilla.plugin import Plugin
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates
from shared.plugins.dynamicresources import DynamicResources
from shared.plugins.imagelocality import ImageLocality
from shared.plugins.interpodaffinity.plugin import InterPodAffinity
from shared.plugins.nodeaffinity import NodeAffinity
from shared.plugins.noderesources import NodeResourcesBalancedAllocation, NodeResourcesFit
from shared.plugins.podtopologyspread.plugin import PodTopologySpread
from shared.plugins.preemption import DefaultPreemption
from shared.plugins.queueandbind import DefaultBinder, PrioritySort, SchedulingGates
from shared.plugins.selectorspread import SelectorSpread
from shared.plugins.single_node import (
    NodeDeclaredFeatures,
    NodeName,
    NodePorts,
    NodePreferAvoidPods,
    NodeUnschedulable,
    TaintToleration,
)
from shared.plugins.volumes.limits import AzureDiskLimits, CinderLimits, EBSLimits, GCEPDLimits, NodeVolumeLimits
from shared.plugins.volumes.restrictions import VolumeRestrictions, VolumeZone
from shared.plugins.volumes.volumebinding import VolumeBinding

Factory = Callable[[Any], Plugin]
"""Creates a plugin from its args."""


def _without_args(plugin: Callable[[], Plugin]) -> Factory:
    return lambda args: plugin()


def in_tree(gates: FeatureGates = DEFAULT_GATES) -> Mapping[str, Factory]:
    """The in-tree plugins by name, with these feature gates."""
    return {
        "NodeAffinity": NodeAffinity,
        "NodeResourcesFit": partial(NodeResourcesFit, gates=gates),
        "NodeResourcesBalancedAllocation": partial(NodeResourcesBalancedAllocation, gates=gates),
        "InterPodAffinity": InterPodAffinity,
        "PodTopologySpread": partial(PodTopologySpread, gates=gates),
        "DefaultPreemption": DefaultPreemption,
        "TaintToleration": _without_args(partial(TaintToleration, gates)),
        "NodeVolumeLimits": _without_args(partial(NodeVolumeLimits, gates)),
        "VolumeBinding": partial(VolumeBinding, gates=gates),
        "DynamicResources": partial(DynamicResources, gates=gates),
        **{
            plugin.name: _without_args(plugin)
            for plugin in (
                *(SchedulingGates, PrioritySort, DefaultBinder, ImageLocality, SelectorSpread),
                *(NodeUnschedulable, NodeName, NodePorts, NodeDeclaredFeatures, NodePreferAvoidPods),
                *(VolumeRestrictions, VolumeZone, EBSLimits, GCEPDLimits, AzureDiskLimits, CinderLimits),
            )
        },
    }
