"""Which changes of the cluster may help a rejected pod: the one place that decides who is woken by what.

A plugin says what it is to be told of; a pod is worth another attempt when something happens that one of the plugins
that rejected it waits for. A plugin that says nothing waits for everything.
"""

from collections.abc import Iterable
from enum import StrEnum


class ChangeKind(StrEnum):
    """By the names that kube-scheduler's metrics give to these events."""

    NODE_ADDED = "NodeAdd"
    NODE_DELETED = "NodeDelete"
    NODE_ALLOCATABLE = "NodeUpdateNodeAllocatable"
    NODE_LABELS = "NodeUpdateNodeLabel"
    NODE_TAINTS = "NodeUpdateNodeTaint"
    ASSIGNED_POD_ADDED = "AssignedPodAdd"
    ASSIGNED_POD_DELETED = "AssignedPodDelete"
    VOLUME_ADDED = "PersistentVolumeAdd"
    VOLUME_CHANGED = "PersistentVolumeUpdate"
    CLAIM_ADDED = "PersistentVolumeClaimAdd"
    CLAIM_CHANGED = "PersistentVolumeClaimUpdate"
    CLASS_ADDED = "storage.k8s.io/StorageClassAdd"
    CLASS_CHANGED = "storage.k8s.io/StorageClassUpdate"
    CSI_NODE_ADDED = "storage.k8s.io/CSINodeAdd"
    CSI_NODE_CHANGED = "storage.k8s.io/CSINodeUpdate"
    CSI_DRIVER_CHANGED = "storage.k8s.io/CSIDriverUpdate"
    CAPACITY_ADDED = "storage.k8s.io/CSIStorageCapacityAdd"
    CAPACITY_CHANGED = "storage.k8s.io/CSIStorageCapacityUpdate"
    ATTACHMENT_DELETED = "storage.k8s.io/VolumeAttachmentDelete"
    NAMESPACE_CHANGED = "NamespaceUpdate"
    """Or a new one. kube-scheduler has no such event; pods that select namespaces would wait for the time limit."""
    SELECTOR_CHANGED = "SelectorUpdate"
    """Of a service or a controller, or a new one; as above, for pods that are spread by them."""
    TIME_LIMIT = "UnschedulableTimeout"
    """Not a change: it has been unschedulable for so long that it is tried again."""

    __hash__ = str.__hash__  # looked up for every change, and an Enum's own is slow


_NODE_COMES = frozenset({ChangeKind.NODE_ADDED, ChangeKind.NODE_TAINTS})
"""Whoever waits for nodes also hears of taints that go: a new node is tainted until it is ready."""
_ROOM = _NODE_COMES | {ChangeKind.ASSIGNED_POD_DELETED}
_LABELS = _NODE_COMES | {ChangeKind.NODE_LABELS}
_CLAIMS = frozenset({ChangeKind.CLAIM_ADDED, ChangeKind.CLAIM_CHANGED})
_VOLUMES = _CLAIMS | {ChangeKind.VOLUME_ADDED, ChangeKind.VOLUME_CHANGED}
_CSI_NODES = frozenset({ChangeKind.CSI_NODE_ADDED, ChangeKind.CSI_NODE_CHANGED})
_PROVISIONING = _CSI_NODES | {
    ChangeKind.CLASS_ADDED,
    ChangeKind.CLASS_CHANGED,
    ChangeKind.CSI_DRIVER_CHANGED,
    ChangeKind.CAPACITY_ADDED,
    ChangeKind.CAPACITY_CHANGED,
}
_NEIGHBOURS = _LABELS | {ChangeKind.ASSIGNED_POD_ADDED, ChangeKind.ASSIGNED_POD_DELETED}

_AWAITED: dict[str, frozenset[ChangeKind]] = {
    "DefaultPreemption": frozenset({ChangeKind.ASSIGNED_POD_DELETED}),
    "DynamicResources": _LABELS | {ChangeKind.NODE_ALLOCATABLE},
    "InterPodAffinity": _NEIGHBOURS | {ChangeKind.NAMESPACE_CHANGED},
    "NodeAffinity": _LABELS,
    "NodeName": _NODE_COMES,
    "NodePorts": _ROOM,
    "NodeResourcesFit": _ROOM | {ChangeKind.NODE_ALLOCATABLE},
    "NodeUnschedulable": _NODE_COMES,
    "NodeVolumeLimits": _CSI_NODES
    | {ChangeKind.ASSIGNED_POD_DELETED, ChangeKind.CLAIM_ADDED, ChangeKind.ATTACHMENT_DELETED},
    "PodTopologySpread": _NEIGHBOURS | {ChangeKind.NODE_DELETED, ChangeKind.SELECTOR_CHANGED},
    "SchedulingGates": frozenset(),
    "TaintToleration": _NODE_COMES,
    "VolumeBinding": _LABELS | _VOLUMES | _PROVISIONING,
    "VolumeRestrictions": _ROOM | {ChangeKind.CLAIM_ADDED},
    "VolumeZone": _LABELS | _VOLUMES | {ChangeKind.CLASS_ADDED},
}


def wakes(plugin: str, kind: ChangeKind) -> bool:
    """Whether this kind of change may help a pod that this plugin rejected."""
    awaited = _AWAITED.get(plugin)
    return kind is ChangeKind.TIME_LIMIT or awaited is None or kind in awaited


class Happened:
    """What has happened lately, for pods that were away: the last time of each kind is enough."""

    def __init__(self) -> None:
        self.now = 0
        self._last: dict[ChangeKind, int] = {}

    def note(self, kind: ChangeKind) -> None:
        self.now += 1
        self._last[kind] = self.now

    def helps(self, plugins: Iterable[str], mark: int) -> bool:
        """Whether something that one of them waits for has happened since the time of `mark`."""
        recent = [kind for kind, at in self._last.items() if at > mark]
        return any(wakes(plugin, kind) for plugin in plugins for kind in recent)
