"""List the plugins that replace the predicates and priorities of a Policy, as in kube-scheduler v1.22."""

from collections.abc import Mapping
from typing import Final

from shared.config.points import ExtensionPoint as P

PREDICATES: Final[Mapping[str, tuple[str, ...]]] = {
    "CheckNodeUnschedulable": ("NodeUnschedulable",),
    "GeneralPredicates": ("NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"),
    "HostName": ("NodeName",),
    "PodFitsHostPorts": ("NodePorts",),
    "MatchNodeSelector": ("NodeAffinity",),
    "PodFitsResources": ("NodeResourcesFit",),
    "NoDiskConflict": ("VolumeRestrictions",),
    "PodToleratesNodeTaints": ("TaintToleration",),
    "MaxEBSVolumeCount": ("EBSLimits",),
    "MaxGCEPDVolumeCount": ("GCEPDLimits",),
    "MaxCSIVolumeCountPred": ("NodeVolumeLimits",),
    "MaxAzureDiskVolumeCount": ("AzureDiskLimits",),
    "MaxCinderVolumeCount": ("CinderLimits",),
    "CheckVolumeBinding": ("VolumeBinding",),
    "NoVolumeZoneConflict": ("VolumeZone",),
    "EvenPodsSpread": ("PodTopologySpread",),
    "MatchInterPodAffinity": ("InterPodAffinity",),
}
"""In the order in which predicates ran, which was independent of the file."""

MANDATORY_PREDICATES: Final = frozenset({"CheckNodeUnschedulable", "PodToleratesNodeTaints"})
# GeneralPredicates has what HostName, PodFitsHostPorts, MatchNodeSelector and PodFitsResources do.
_OFF: Final = {"HostName", "PodFitsHostPorts", "MatchNodeSelector", "PodFitsResources", "MaxCinderVolumeCount"}
DEFAULT_PREDICATES: Final = frozenset(PREDICATES.keys() - _OFF)
"""Those of a file without predicates."""

PRIORITIES: Final[Mapping[str, str]] = {
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "EvenPodsSpreadPriority": "PodTopologySpread",
    "ImageLocalityPriority": "ImageLocality",
    "InterPodAffinityPriority": "InterPodAffinity",
    "LeastRequestedPriority": "NodeResourcesFit",
    "MostRequestedPriority": "NodeResourcesFit",
    "NodeAffinityPriority": "NodeAffinity",
    "NodePreferAvoidPodsPriority": "NodePreferAvoidPods",
    "RequestedToCapacityRatio": "NodeResourcesFit",
    "SelectorSpreadPriority": "PodTopologySpread",
    "TaintTolerationPriority": "TaintToleration",
}
_OTHER_WEIGHTS: Final = {"NodePreferAvoidPodsPriority": 10000, "EvenPodsSpreadPriority": 2}
DEFAULT_PRIORITIES: Final[Mapping[str, int]] = {
    priority: _OTHER_WEIGHTS.get(priority, 1)
    for priority in PRIORITIES
    if priority not in ("MostRequestedPriority", "RequestedToCapacityRatio")
}
"""Those of a file without priorities, with their weights."""

STRATEGIES: Final[Mapping[str, str]] = {
    "LeastRequestedPriority": "LeastAllocated",
    "MostRequestedPriority": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
"""Priorities that are strategies of NodeResourcesFit today, which has one."""

OTHER_NAMES: Final[Mapping[str, str]] = {
    "PodFitsPorts": "PodFitsHostPorts",
    "ServiceSpreadingPriority": "SelectorSpreadPriority",
}

GONE: Final[Mapping[str, str]] = {
    "CheckNodeCondition": "taints of nodes do its work",
    "CheckNodeDiskPressure": "taints of nodes do its work",
    "CheckNodeMemoryPressure": "taints of nodes do its work",
    "CheckNodePIDPressure": "taints of nodes do its work",
    "EqualPriority": "it gave all nodes the same score",
    "ResourceLimitsPriority": "its plugin was removed",
}
"""Names that had no effect even in the last versions, and why."""

FILTERING: Final = (P.PRE_FILTER, P.FILTER, P.RESERVE, P.PRE_BIND)
"""The points at which a plugin replaces a predicate."""
SCORING: Final = (P.PRE_SCORE, P.SCORE)
LATER: Final = ("SchedulingGates", "DynamicResources", "NodeDeclaredFeatures")
"""Newer than Policy. Without them, pods of today would be bound that must not be."""
LATER_POINTS: Final = (P.PRE_ENQUEUE, P.PRE_FILTER, P.FILTER, P.POST_FILTER, P.RESERVE, P.PRE_BIND)
ALWAYS: Final[Mapping[str, tuple[P, ...]]] = {
    "PrioritySort": (P.QUEUE_SORT,),
    "DefaultPreemption": (P.PRE_ENQUEUE, P.POST_FILTER),
    "DefaultBinder": (P.BIND,),
}
