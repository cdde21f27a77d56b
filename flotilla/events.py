"""Events in the cluster that may make a rejected pod schedulable, and how a plugin registers for them.

An event is a resource and an action. A registration may carry a queueing hint: a function that looks at the pod and at
the object, before and after, and decides whether another attempt is worth it.
"""

from collections.abc import Callable
from enum import IntFlag, StrEnum
from typing import Any, NamedTuple

from flotilla.objects import ClusterObjects, Pod


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

    __hash__ = int.__hash__


Hint = Callable[[Pod, Any, Any, ClusterObjects], bool]
"""(pod, object before, object now, cluster after the event) -> whether another attempt is worth it.

`before` is None for an added object, `now` for a deleted one. A hint that raises counts as yes.
"""


OfUsers = Callable[[Any, Any], bool]
"""(object before, object now) -> whether the change can help only pods that use the object."""


class Registration(NamedTuple):
    """Without a hint every such event makes another attempt worth while.

    `of_users` spares the hint thousands of calls: where it says so, the hint is called only for pods that use the
    claim that changed. It is for claims, of volumes or of devices: of other objects the users are not known.
    """

    resource: Resource
    actions: Action
    hint: Hint | None = None
    of_users: OfUsers | None = None


ANY_EVENT = tuple(
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
"""What a plugin that registers nothing waits for."""
