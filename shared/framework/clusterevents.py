"""What happens in a cluster that may help a pod that was rejected, and how a plugin says what it waits for.

An event is a resource and an action. A plugin registers what it is to be told of, and may give a hint: a function that
looks at the pod and at the object, as it was and as it is, and says whether another attempt is worth while.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntFlag, StrEnum
from typing import Any, NamedTuple

from shared.cluster.objects import ClusterObjects
from shared.model.objects import Pod


class Resource(StrEnum):
    """By the names that kube-scheduler gives them."""

    POD = "Pod"
    """In registrations only: both of the next two."""
    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULABLE_POD = "UnschedulablePod"
    NODE = "Node"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    ANY = "*"

    __hash__ = str.__hash__  # looked up for every event, and an Enum's own is slow


class Action(IntFlag):
    """The numbers matter: a registration does not hear of an action whose number is greater than its own."""

    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_NODE_DECLARED_FEATURE = 128
    UPDATE_POD_LABEL = 256
    UPDATE_POD_SCALE_DOWN = 512
    UPDATE_POD_TOLERATION = 1024
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 2048
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 4096
    UPDATE = 8188
    """All updates at once; as an event, one that is none of the others."""
    ALL = 8191


class ClusterEvent(NamedTuple):
    resource: Resource
    action: Action


Hint = Callable[[Pod, Any, Any, ClusterObjects], bool]
"""(pod, object before, object now, cluster after the event) -> is another attempt worth while?

`before` is None for what was added, `now` for what was deleted. One that raises counts as yes.
"""


class Registration(NamedTuple):
    """Without a hint every such event makes another attempt worth while."""

    resource: Resource
    actions: Action
    hint: Hint | None = None

    def matches(self, event: ClusterEvent) -> bool:
        resource = self.resource
        fits = (
            resource is event.resource
            or resource is Resource.ANY
            or event.resource is Resource.ANY
            or (resource is Resource.POD and event.resource in _PODS)
        )
        return fits and bool(self.actions & event.action) and event.action <= self.actions


_PODS = frozenset({Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD})
EVERYTHING = ClusterEvent(Resource.ANY, Action.ALL)
"""Concerns every plugin."""

WHATEVER = tuple(
    Registration(resource, Action.ALL)
    for resource in (
        Resource.POD,
        Resource.NODE,
        Resource.PERSISTENT_VOLUME,
        Resource.PERSISTENT_VOLUME_CLAIM,
        Resource.CSI_NODE,
        Resource.CSI_DRIVER,
        Resource.CSI_STORAGE_CAPACITY,
        Resource.STORAGE_CLASS,
        Resource.RESOURCE_CLAIM,
        Resource.DEVICE_CLASS,
        Resource.POD_GROUP,
    )
)
"""Of who does not say what it waits for: a plugin, or all extenders together."""

IMPLIED = Registration(Resource.NODE, Action.UPDATE_NODE_TAINT)
"""Who waits for new nodes is told as well when one loses a taint that had kept everybody off when it was new."""


def completed(registrations: Sequence[Registration]) -> tuple[Registration, ...]:
    """With what is implied by them."""
    of_nodes = Action(0)
    for each in registrations:
        if each.resource is Resource.NODE:
            of_nodes |= each.actions
    implied = Action.ADD in of_nodes and Action.UPDATE_NODE_TAINT not in of_nodes
    return (*registrations, IMPLIED) if implied else tuple(registrations)


def union(registrations: Iterable[Registration]) -> dict[Resource, Action]:
    """All actions in question, by resource. An event outside of them matches none, but not each inside matches one."""
    actions: dict[Resource, Action] = {}
    for each in registrations:
        actions[each.resource] = actions.get(each.resource, Action(0)) | each.actions
    return actions


# Names, as kube-scheduler writes them

NAMES: Mapping[Action, str] = {
    action: "".join(map(str.capitalize, str(action.name).split("_"))) for action in (*Action, Action.UPDATE, Action.ALL)
}
"""`UpdateNodeTaint` for UPDATE_NODE_TAINT, of every single action and of the two that stand for many."""


def names_of(actions: Action) -> list[str]:
    """In alphabetical order; all updates together are one name."""
    updates = [Action.UPDATE] if Action.UPDATE in actions else []
    covered = Action.UPDATE if updates else Action(0)
    return sorted(NAMES[action] for action in (*(each for each in actions if each not in covered), *updates))


def _labels() -> tuple[str, ...]:
    parts = [
        f"{resource}{NAMES[action]}"
        for resource in Resource
        if resource is not Resource.ANY
        for action in (Action.ADD, Action.DELETE, Action.UPDATE)
    ]
    of_pods = [f"{Resource.POD}{name}" for action, name in NAMES.items() if name.startswith("UpdatePod")]
    of_nodes = [
        f"{Resource.NODE}{name}"
        for action, name in NAMES.items()
        if name.startswith("UpdateNode") and action is not Action.UPDATE_NODE_DECLARED_FEATURE
    ]
    return ("UnschedulableTimeout", "ForceActivate", *parts, *of_pods, *of_nodes)


LABELS = _labels()
"""By which metrics tell events apart. That of declared features has none in v1.36."""
