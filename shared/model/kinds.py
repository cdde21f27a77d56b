"""The kinds of objects that are neither nodes nor pods, and that every worker holds all of."""

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

    __hash__ = str.__hash__  # looked up for every object, and an Enum's own is slow
