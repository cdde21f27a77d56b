"""What kube-scheduler v1.36 enables by itself, with its feature gates at their defaults, and what it has in-tree."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shared.config.points import ExtensionPoint, PluginRef

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
DEFAULT_PERCENTAGE_OF_NODES_TO_SCORE: Final = 0
"""Nought: as many nodes as the size of the cluster calls for."""

DEFAULT_PLUGINS: Final[tuple[PluginRef, ...]] = (
    PluginRef("SchedulingGates"),
    PluginRef("PrioritySort"),
    PluginRef("NodeUnschedulable"),
    PluginRef("NodeName"),
    PluginRef("TaintToleration", 3),
    PluginRef("NodeAffinity", 2),
    PluginRef("NodePorts"),
    PluginRef("NodeResourcesFit", 1),
    PluginRef("VolumeRestrictions"),
    PluginRef("NodeVolumeLimits"),
    PluginRef("VolumeBinding"),
    PluginRef("VolumeZone"),
    PluginRef("PodTopologySpread", 2),
    PluginRef("InterPodAffinity", 2),
    PluginRef("DynamicResources", 2),
    PluginRef("DefaultPreemption"),
    PluginRef("NodeResourcesBalancedAllocation", 1),
    PluginRef("ImageLocality", 1),
    PluginRef("DefaultBinder"),
    PluginRef("NodeDeclaredFeatures"),
)
"""The multiPoint list of a profile that says nothing about plugins, in order."""


def _points(*points: ExtensionPoint) -> frozenset[ExtensionPoint]:
    return frozenset(points)


_P = ExtensionPoint

DEFAULT_POINTS: Final[Mapping[str, frozenset[ExtensionPoint]]] = MappingProxyType(
    {
        "DefaultBinder": _points(_P.BIND),
        "DefaultPreemption": _points(_P.PRE_ENQUEUE, _P.POST_FILTER),
        "DynamicResources": _points(
            _P.PRE_ENQUEUE, _P.PRE_FILTER, _P.FILTER, _P.POST_FILTER, _P.SCORE, _P.RESERVE, _P.PRE_BIND
        ),
        "GangScheduling": _points(_P.PRE_ENQUEUE, _P.PERMIT),
        "ImageLocality": _points(_P.SCORE),
        "InterPodAffinity": _points(_P.PRE_FILTER, _P.FILTER, _P.PRE_SCORE, _P.SCORE),
        "NodeAffinity": _points(_P.PRE_FILTER, _P.FILTER, _P.PRE_SCORE, _P.SCORE),
        "NodeDeclaredFeatures": _points(_P.PRE_FILTER, _P.FILTER),
        "NodeName": _points(_P.FILTER),
        "NodePreferAvoidPods": _points(_P.SCORE),
        "NodePorts": _points(_P.PRE_FILTER, _P.FILTER),
        "NodeResourcesBalancedAllocation": _points(_P.PRE_SCORE, _P.SCORE),
        "NodeResourcesFit": _points(_P.PRE_FILTER, _P.FILTER, _P.PRE_SCORE, _P.SCORE),
        "NodeUnschedulable": _points(_P.FILTER),
        "NodeVolumeLimits": _points(_P.PRE_FILTER, _P.FILTER),
        "PodGroupPodsCount": _points(),
        "PodTopologySpread": _points(_P.PRE_FILTER, _P.FILTER, _P.PRE_SCORE, _P.SCORE),
        "PrioritySort": _points(_P.QUEUE_SORT),
        "SchedulingGates": _points(_P.PRE_ENQUEUE),
        "TaintToleration": _points(_P.FILTER, _P.PRE_SCORE, _P.SCORE),
        "TopologyPlacementGenerator": _points(),
        "VolumeBinding": _points(_P.PRE_FILTER, _P.FILTER, _P.PRE_SCORE, _P.SCORE, _P.RESERVE, _P.PRE_BIND),
        "VolumeRestrictions": _points(_P.PRE_FILTER, _P.FILTER),
        "VolumeZone": _points(_P.PRE_FILTER, _P.FILTER),
    }
)
"""The points that each in-tree plugin implements; a name that is missing here is no in-tree plugin.

NodePreferAvoidPods is one of kube-scheduler's earlier versions.
"""

PLACEMENT_POINTS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "NodeResourcesFit": frozenset({"placementScore"}),
        "PodGroupPodsCount": frozenset({"placementScore"}),
        "TopologyPlacementGenerator": frozenset({"placementGenerate"}),
    }
)
"""The points of group scheduling, at which nothing runs while its gates are off but which a file may still name."""

PLUGINS_WITH_ARGS: Final[frozenset[str]] = frozenset(
    {
        "DefaultPreemption",
        "DynamicResources",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "PodTopologySpread",
        "VolumeBinding",
    }
)
"""The in-tree plugins whose arguments have a type; whatever is given to another plugin is its own affair."""

REMOVED_PLUGINS: Final[frozenset[str]] = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
"""Plugins of earlier versions that a v1 configuration must not name."""

OLDER_PLUGINS: Final[Mapping[str, frozenset[ExtensionPoint]]] = MappingProxyType(
    {
        "AzureDiskLimits": _points(_P.FILTER),
        "CinderLimits": _points(_P.FILTER),
        "EBSLimits": _points(_P.FILTER),
        "GCEPDLimits": _points(_P.FILTER),
        "NodePreferAvoidPods": _points(_P.SCORE),
        "SelectorSpread": _points(_P.PRE_SCORE, _P.SCORE),
    }
)
"""Plugins that earlier versions of kube-scheduler had; Flotilla has them too, and none runs unless a file names it."""
