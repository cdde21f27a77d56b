"""Reads pods on nodes that are like others: what they share is decoded, checked and encoded once.

Most pods on nodes differ from others only in name, uid, node and times. Of the rest, the texts of the fields that
followers read are cut out without being decoded. Where they are equal to those of an earlier pod, so is what was made
of that one.
"""

from types import GenericAlias
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from services.watcher.bodies import TooLarge, body_of, drop_unread, has_source
from services.watcher.partial_objects import FINISHED_PHASES
from shared.bounded import BoundedDict
from shared.messages.watch import AlikePods, PodOnNode
from shared.model.assigned_parts import READ_CONDITIONS
from shared.model.individual_labels import INDIVIDUAL_LABELS
from shared.model.objects import DEFAULT_NAMESPACE, Container, ContainerStatus, PodSpec, PodStatus, Volume, decode_pod

MAX_KINDS = 1 << 12
"""Kinds of pods that are remembered."""
MAX_TEXT = 8 << 10
"""Bytes of what the pods of a kind share. More is read again for each pod, so at most 64 MiB are remembered."""

_ABSENT = msgspec.Raw(b"")
_NONE: list[Any] = []
_ESCAPE = b"\\u"
_READ_CONDITIONS = (_ESCAPE, *(type_.encode() for type_ in READ_CONDITIONS))
"""One of these is in the text of each condition that is read."""
_INDIVIDUAL = tuple(label.encode() for label in INDIVIDUAL_LABELS)


class _Metadata(msgspec.Struct, omit_defaults=True, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: msgspec.Raw = _ABSENT
    deletion_timestamp: str | None = None


def _texts_of(model: type[msgspec.Struct], **decoded: tuple[Any, Any]) -> Any:
    """A struct with the fields of the model: those in `decoded` by their type and default, the texts of the others."""
    fields = msgspec.structs.fields(model)
    return msgspec.defstruct(
        f"{model.__name__}Texts",
        [(field.name, *decoded.get(field.name, (msgspec.Raw, _ABSENT))) for field in fields],
        rename={field.name: field.encode_name for field in fields},
        omit_defaults=True,
        gc=False,
    )


def _list_of(item: Any) -> tuple[Any, Any]:
    return GenericAlias(list, (item,)), _NONE


_TEXT = (str, "")
_containers, _statuses = _list_of(_texts_of(Container)), _list_of(_texts_of(ContainerStatus))
_SPEC = _texts_of(
    PodSpec, node_name=_TEXT, containers=_containers, init_containers=_containers, volumes=_list_of(Volume)
)
_STATUS = _texts_of(
    PodStatus,
    phase=_TEXT,
    nominated_node_name=_TEXT,
    start_time=(str | None, None),
    container_statuses=_statuses,
    init_container_statuses=_statuses,
)


_POD = msgspec.defstruct("PodTexts", [("metadata", _Metadata), ("spec", _SPEC), ("status", _STATUS)], gc=False)
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_POD)
_ENCODER = msgspec.json.Encoder()


class AlikePodReader:
    def __init__(self) -> None:
        self._bodies: BoundedDict[bytes, msgspec.Raw] = BoundedDict(MAX_KINDS)
        """By the texts of what pods share; the last one used is the last."""

    def read(self, raw: msgspec.Raw) -> AlikePods | None:
        """This one pod; None if it is to be read in full, as it has something that others cannot share. Raises the
        error in what is read of it.
        """
        try:
            pod = _DECODER.decode(raw)
        except (msgspec.DecodeError, ValueError):
            return None
        metadata = pod.metadata
        if not (metadata.name and pod.spec.node_name) or _is_special(pod):
            return None
        namespace = metadata.namespace or DEFAULT_NAMESPACE
        uid = metadata.uid or f"{namespace}/{metadata.name}"
        own = PodOnNode(uid, metadata.name, pod.spec.node_name, pod.status.start_time)
        key = _shared_texts(pod)
        body = self._bodies.get(key)
        if body is None:
            body = _shared_body(raw)
        if body is None:
            return None
        if len(key) <= MAX_TEXT:
            self._bodies[key] = body
        return AlikePods(namespace, body, [own])


def _is_special(pod: Any) -> bool:
    status, volumes = pod.status, pod.spec.volumes
    if pod.metadata.deletion_timestamp is not None or status.phase in FINISHED_PHASES:
        return True
    if status.resource_claim_statuses is not _ABSENT or any(map(bytes(pod.metadata.labels).__contains__, _INDIVIDUAL)):
        return True  # it shares its text with no other pod
    if (conditions := bytes(status.conditions)) and any(map(conditions.__contains__, _READ_CONDITIONS)):
        return True
    return bool(volumes) and any(map(has_source, volumes))


def _shared_texts(pod: Any) -> bytes:
    """As JSON; the pod is left without the rest."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    metadata.name = metadata.uid = spec.node_name = status.phase = status.nominated_node_name = ""
    status.start_time, status.conditions, spec.volumes = None, _ABSENT, _NONE
    if status.container_statuses:
        status.container_statuses = list(filter(_is_granted, status.container_statuses))
    if status.init_container_statuses:
        status.init_container_statuses = list(filter(_is_granted, status.init_container_statuses))
    return _ENCODER.encode(pod)


def _is_granted(status: Any) -> bool:
    return status.resources is not _ABSENT or status.allocated_resources is not _ABSENT


def _shared_body(raw: msgspec.Raw) -> msgspec.Raw | None:
    """None if it is too large."""
    pod = decode_pod(raw)
    drop_unread(pod)
    own: tuple[tuple[msgspec.Struct, dict[str, Any]], ...] = (
        (pod.metadata, {"name": "", "uid": "", "resource_version": ""}),
        (pod.spec, {"node_name": ""}),
        (pod.status, {"phase": "", "nominated_node_name": "", "start_time": None, "conditions": []}),
    )
    for part, fields in own:
        for field, value in fields.items():
            force_setattr(part, field, value)
    try:
        return body_of(pod)
    except TooLarge:
        return None
