"""Objects other than nodes and pods: decoding, kinds and keys.

Only what plugins read is kept, so that changes of other fields do not count as changes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shared.errors import InvalidObject
from shared.model.base import DEFAULT_NAMESPACE, Namespaced
from shared.model.codec import convert, dec_hook, plain, retry
from shared.model.composite_groups import CompositePodGroup
from shared.model.devices import EXTENDED_RESOURCE_CLAIM, Device, DeviceClass, ResourceClaim, ResourceSlice
from shared.model.devices_beta import claim_from_v1beta1, slice_from_v1beta1
from shared.model.kinds import ObjectKind
from shared.model.node import UNNAMED
from shared.model.storage import (
    AZURE_FILE_RESOURCE_GROUP,
    BETA_STORAGE_CLASS,
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    DEFAULT_STORAGE_CLASS,
    MIGRATED_PLUGINS,
    SELECTED_NODE,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from shared.model.workloads import (
    MAX_TOPOLOGY_LEVELS,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    GroupApi,
    Namespace,
    PodDisruptionBudget,
    PodGroup,
    PodGroupStatus,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)

ClusterObject = (
    Namespace
    | Service
    | ReplicaSet
    | ReplicationController
    | StatefulSet
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | VolumeAttachment
    | PodDisruptionBudget
    | PodGroup
    | CompositePodGroup
    | ResourceClaim
    | ResourceSlice
    | DeviceClass
)

_KINDS: Mapping[type[ClusterObject], ObjectKind] = {
    type_: ObjectKind(type_.__name__.lower()) for type_ in ClusterObject.__args__
}
TYPES: Mapping[ObjectKind, type[ClusterObject]] = {
    **{kind: type_ for type_, kind in _KINDS.items()},
    ObjectKind.COSCHEDULING_POD_GROUP: PodGroup,
}
_GROUP_APIS = {
    ObjectKind.POD_GROUP: GroupApi.SCHEDULING,
    ObjectKind.COSCHEDULING_POD_GROUP: GroupApi.COSCHEDULING,
}
_DECODERS: Mapping[ObjectKind, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(type_, dec_hook=dec_hook) for kind, type_ in TYPES.items()
}
_ANY: Callable[[bytes | msgspec.Raw], ClusterObject] = msgspec.msgpack.Decoder(ClusterObject, dec_hook=dec_hook).decode

MAX_LABEL_KEY = 317
"""Characters: a DNS subdomain, a slash and a name of 63."""

LABELLED = frozenset({ObjectKind.NAMESPACE, ObjectKind.PERSISTENT_VOLUME})
DATED = frozenset({ObjectKind.DEVICE_CLASS})
OWNED = frozenset({ObjectKind.PERSISTENT_VOLUME_CLAIM, ObjectKind.RESOURCE_CLAIM})
ANNOTATED: Mapping[ObjectKind, frozenset[str]] = {
    ObjectKind.PERSISTENT_VOLUME: frozenset({BETA_STORAGE_CLASS, BOUND_BY_CONTROLLER, AZURE_FILE_RESOURCE_GROUP}),
    ObjectKind.PERSISTENT_VOLUME_CLAIM: frozenset(
        {BETA_STORAGE_CLASS, BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE}
    ),
    ObjectKind.STORAGE_CLASS: frozenset({DEFAULT_STORAGE_CLASS}),
    ObjectKind.CSI_NODE: frozenset({MIGRATED_PLUGINS}),
    ObjectKind.RESOURCE_CLAIM: frozenset({EXTENDED_RESOURCE_CLAIM}),
    ObjectKind.POD_GROUP: frozenset({REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY}),
    ObjectKind.COSCHEDULING_POD_GROUP: frozenset({REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY}),
}
"""The annotations kept, by kind; other kinds keep none."""


def kind_of(obj: ClusterObject) -> ObjectKind:
    if isinstance(obj, PodGroup) and obj.api is GroupApi.COSCHEDULING:
        return ObjectKind.COSCHEDULING_POD_GROUP
    return _KINDS[type(obj)]


def key_of(obj: ClusterObject) -> str:
    """`namespace/name`, or the name of a cluster-scoped object."""
    return obj.key


def is_namespaced(kind: ObjectKind) -> bool:
    return issubclass(TYPES[kind], Namespaced)


def object_from(kind: ObjectKind, obj: object) -> ClusterObject:
    """The object from plain data, with its namespace set; raises InvalidObject."""
    return finish_object(kind, _in_form_of_v1(kind, convert(TYPES[kind], obj), lambda: obj))


def decode_object(kind: ObjectKind, raw: bytes) -> ClusterObject:
    """The object from JSON; raises InvalidObject."""
    type_ = TYPES[kind]
    try:
        obj: ClusterObject = _DECODERS[kind].decode(raw)
    except msgspec.DecodeError:
        obj = retry(type_, plain(type_, raw))
    return finish_object(kind, _in_form_of_v1(kind, obj, lambda: plain(type_, raw)))


def _in_form_of_v1(kind: ObjectKind, obj: ClusterObject, read_again: Callable[[], object]) -> ClusterObject:
    """Convert claims and slices in the form of `v1beta1`; items of lists do not name their version."""
    if isinstance(obj, ResourceClaim):
        if all(each.exactly is not None or each.first_available for each in obj.spec.devices.requests):
            return obj
        return convert(ResourceClaim, claim_from_v1beta1(_as_mapping(read_again())))
    if isinstance(obj, ResourceSlice) and any(_is_bare(device) for device in obj.spec.devices):
        return convert(ResourceSlice, slice_from_v1beta1(_as_mapping(read_again())))
    return obj


def _is_bare(device: Device) -> bool:
    """Whether nothing is known of the device, as if it were given in another form."""
    return device == Device(name=device.name)


def _as_mapping(obj: object) -> Mapping[str, Any]:
    return obj if isinstance(obj, dict) else {}


def object_from_msgpack(raw: bytes | msgspec.Raw) -> ClusterObject:
    """The object from msgpack, of any kind; raises msgspec.DecodeError."""
    return _ANY(raw)


def finish_object(kind: ObjectKind, obj: ClusterObject) -> ClusterObject:
    """Complete and trim a newly decoded object in place; raises InvalidObject."""
    metadata = obj.metadata
    if not metadata.name:
        raise InvalidObject(type(obj).__name__, UNNAMED, "metadata.name", "must not be empty")
    kept = ANNOTATED.get(kind, frozenset())
    trimmed = msgspec.structs.replace(
        metadata,
        namespace=(metadata.namespace or DEFAULT_NAMESPACE) if is_namespaced(kind) else "",
        labels=metadata.labels if kind in LABELLED else {},
        annotations={name: value for name, value in metadata.annotations.items() if name in kept},
        creation_timestamp=metadata.creation_timestamp if kind in DATED else None,
        owner_references=metadata.owner_references if kind in OWNED else [],
        resource_version="",
    )
    # the object is new and not shared, so changing it in place is safe and avoids a copy
    msgspec.structs.force_setattr(obj, "metadata", trimmed)
    if (api := _GROUP_APIS.get(kind)) is not None:
        msgspec.structs.force_setattr(obj, "api_version", api.value)  # list items do not name their kind
    if isinstance(obj, PodGroup | CompositePodGroup):
        _check_topology(obj)
        msgspec.structs.force_setattr(obj, "status", _trimmed_status(obj))
    return obj


def _trimmed_status(group: PodGroup | CompositePodGroup) -> PodGroupStatus | None:
    has_none = isinstance(group, PodGroup) and group.api is GroupApi.COSCHEDULING
    condition = None if has_none else group.scheduled_condition
    return None if condition is None else PodGroupStatus(conditions=[condition])


def _check_topology(group: PodGroup | CompositePodGroup) -> None:
    levels, kind = group.topology, type(group).__name__
    if len(levels) > MAX_TOPOLOGY_LEVELS:
        why = f"names {len(levels)} topology levels, and at most {MAX_TOPOLOGY_LEVELS} are possible"
        raise InvalidObject(kind, group.key, "spec.schedulingConstraints.topology", why)
    for level in levels:
        if not level.key or len(level.key) > MAX_LABEL_KEY:
            why = f"a node label's key has 1 to {MAX_LABEL_KEY} characters, this one {len(level.key)}"
            raise InvalidObject(kind, group.key, "spec.schedulingConstraints.topology", why)
