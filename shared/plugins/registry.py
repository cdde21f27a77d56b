"""Which in-tree plugins there are, and how each is made from its args."""

from collections.abc import Callable, Mapping
from typing import Any

from flotilla.plugin import Plugin
from shared.plugins.dynamicresources import DynamicResources
from shared.plugins.imagelocality import ImageLocality
from shared.plugins.interpodaffinity.plugin import InterPodAffinity
from shared.plugins.nodeaffinity import NodeAffinity
from shared.plugins.nodedeclaredfeatures import NodeDeclaredFeatures
from shared.plugins.nodename import NodeName
from shared.plugins.nodeports import NodePorts
from shared.plugins.nodepreferavoidpods import NodePreferAvoidPods
from shared.plugins.noderesources.balanced import NodeResourcesBalancedAllocation
from shared.plugins.noderesources.fit import NodeResourcesFit
from shared.plugins.nodeunschedulable import NodeUnschedulable
from shared.plugins.podtopologyspread.plugin import PodTopologySpread
from shared.plugins.preemption import DefaultPreemption
from shared.plugins.queueandbind import DefaultBinder, PrioritySort, SchedulingGates
from shared.plugins.selectorspread import SelectorSpread
from shared.plugins.tainttoleration import TaintToleration
from shared.plugins.volumes.legacylimits import AzureDiskLimits, CinderLimits, EBSLimits, GCEPDLimits
from shared.plugins.volumes.nodevolumelimits import NodeVolumeLimits
from shared.plugins.volumes.volumebinding.plugin import VolumeBinding
from shared.plugins.volumes.volumerestrictions import VolumeRestrictions
from shared.plugins.volumes.volumezone import VolumeZone

Factory = Callable[[Any], Plugin]
"""Creates a plugin from its args."""


def _without_args(plugin: type[Any]) -> Factory:
    return lambda args: plugin()


IN_TREE: Mapping[str, Factory] = {
    "SchedulingGates": _without_args(SchedulingGates),
    "PrioritySort": _without_args(PrioritySort),
    "NodeUnschedulable": _without_args(NodeUnschedulable),
    "NodeName": _without_args(NodeName),
    "TaintToleration": _without_args(TaintToleration),
    "NodeAffinity": NodeAffinity,
    "NodePorts": _without_args(NodePorts),
    "NodeResourcesFit": NodeResourcesFit,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocation,
    "ImageLocality": _without_args(ImageLocality),
    "DynamicResources": _without_args(DynamicResources),
    "NodeDeclaredFeatures": _without_args(NodeDeclaredFeatures),
    "NodePreferAvoidPods": _without_args(NodePreferAvoidPods),
    "InterPodAffinity": InterPodAffinity,
    "PodTopologySpread": PodTopologySpread,
    "SelectorSpread": _without_args(SelectorSpread),
    "DefaultPreemption": DefaultPreemption,
    "VolumeRestrictions": _without_args(VolumeRestrictions),
    "NodeVolumeLimits": _without_args(NodeVolumeLimits),
    "VolumeBinding": VolumeBinding,
    "VolumeZone": _without_args(VolumeZone),
    "EBSLimits": _without_args(EBSLimits),
    "GCEPDLimits": _without_args(GCEPDLimits),
    "AzureDiskLimits": _without_args(AzureDiskLimits),
    "CinderLimits": _without_args(CinderLimits),
    "DefaultBinder": _without_args(DefaultBinder),
}
