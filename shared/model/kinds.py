"""The kinds of objects other than nodes and pods. Every worker holds all of them except UNPUBLISHED_KINDS."""

from enum import StrEnum


class ObjectKind(StrEnum):
    NAMESPACE = "namespace"
    SERVICE = "service"
    REPLICA_SET = "replicaset"
    REPLICATION_CONTROLLER = "replicationcontroller"
    STATEFUL_SET = "statefulset"
    PERSISTENT_VOLUME = "persistentvolume"
    PERSISTENT_VOLUME_CLAIM = "persistentvolumeclaim"
    STORAGE_CLASS = "storageclass"
    CSI_NODE = "csinode"
    CSI_DRIVER = "csidriver"
    CSI_STORAGE_CAPACITY = "csistoragecapacity"
    VOLUME_ATTACHMENT = "volumeattachment"
    POD_DISRUPTION_BUDGET = "poddisruptionbudget"
    POD_GROUP = "podgroup"
    """Of scheduling.k8s.io."""
    COSCHEDULING_POD_GROUP = "coschedulingpodgroup"
    """Of scheduling.x-k8s.io; decoded into the same type as POD_GROUP."""

    COMPOSITE_POD_GROUP = "compositepodgroup"

    RESOURCE_CLAIM = "resourceclaim"
    RESOURCE_SLICE = "resourceslice"
    DEVICE_CLASS = "deviceclass"

    __hash__ = str.__hash__  # looked up for every object, and Enum's own hash is slow


STILL_COUNTED = frozenset(
    {
        ObjectKind.PERSISTENT_VOLUME,
        ObjectKind.PERSISTENT_VOLUME_CLAIM,
        ObjectKind.CSI_NODE,
        ObjectKind.VOLUME_ATTACHMENT,
        ObjectKind.RESOURCE_CLAIM,
    }
)
"""Kinds by which volumes or devices in use are counted. One that becomes unreadable keeps counting as last read."""

DEVICE_KINDS = frozenset({ObjectKind.RESOURCE_CLAIM, ObjectKind.RESOURCE_SLICE, ObjectKind.DEVICE_CLASS})

GROUP_KINDS = frozenset({ObjectKind.POD_GROUP, ObjectKind.COSCHEDULING_POD_GROUP, ObjectKind.COMPOSITE_POD_GROUP})

UNPUBLISHED_KINDS = frozenset({ObjectKind.COSCHEDULING_POD_GROUP, ObjectKind.COMPOSITE_POD_GROUP})
"""Kinds that no published state has: the queue reads them, and the snapshot adds what trees say to their PodGroups."""
