"""What can be read of an object that does not decode, or without decoding it whole.

    does not decode --> the parts that do are published, with the problem
                          |-- a part is lost that decisions depend on --> the node is closed to new pods
                          +-- nothing can be read                     --> Unreadable, which closes the node as well

A pending pod is not published in part: it stays pending, and an Event tells its owner why.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from services.watcher.bodies import body_of, node_body, placed_body
from shared.messages.watch import OBJECT_KINDS, Kind, NodeChange, ObjectChange, PodChange
from shared.model.clusterobjects import TYPES
from shared.model.kinds import STILL_COUNTED, ObjectKind
from shared.model.objects import (
    DEFAULT_NAMESPACE,
    DEFAULT_SCHEDULER,
    CSINode,
    Node,
    NodeSelector,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    VolumeLimits,
    VolumeNodeAffinity,
    finish_object,
    key_of,
)
from shared.model.salvage import Salvaged, salvage

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""


class Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scheduler_name: str = DEFAULT_SCHEDULER
    node_name: str = ""


class Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class OutlineStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""
    conditions: list[Condition] = []


class Outline(msgspec.Struct, frozen=True, gc=False):
    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: OutlineStatus = OutlineStatus()

    @property
    def namespace(self) -> str:
        """As of a decoded pod."""
        return self.metadata.namespace or DEFAULT_NAMESPACE

    @property
    def pod_uid(self) -> str:
        """As of a decoded pod."""
        return self.metadata.uid or f"{self.namespace}/{self.metadata.name}"

    @property
    def finished(self) -> bool:
        return self.status.phase in FINISHED_PHASES

    @property
    def said_unscheduled(self) -> bool:
        """Whether its PodScheduled condition is False."""
        return any(c.type == "PodScheduled" and c.status == "False" for c in self.status.conditions)


_DECODER = msgspec.json.Decoder(Outline)


def outline(raw: bytes) -> Outline | None:
    """None if not even the name can be read."""
    found: Outline | None
    try:
        found = _DECODER.decode(raw)
    except (msgspec.DecodeError, ValueError):
        found = _pick(raw)
    return found if found is not None and found.metadata.name else None


def _pick(raw: bytes) -> Outline | None:
    """The valid fields of an object that has invalid ones."""
    try:
        plain = msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    metadata, spec, status = (_part(plain, part) for part in ("metadata", "spec", "status"))
    return Outline(
        Metadata(
            _text(metadata, "name"),
            _text(metadata, "namespace"),
            _text(metadata, "uid"),
            resource_version=_text(metadata, "resourceVersion"),
        ),
        Spec(_text(spec, "schedulerName", DEFAULT_SCHEDULER), _text(spec, "nodeName")),
        OutlineStatus(_text(status, "phase")),
    )


def _part(plain: Any, name: str) -> dict[str, Any]:
    part = plain.get(name) if isinstance(plain, dict) else None
    return part if isinstance(part, dict) else {}


def _text(part: dict[str, Any], name: str, default: str = "") -> str:
    value = part.get(name)
    return value if isinstance(value, str) else default


HIGHEST_PRIORITY = 2**31 - 1
"""For a pod whose priority is unreadable: nothing may preempt it."""

_OCCUPIES = re.compile(
    r"metadata(\.labels.*)?|status(\.(containerStatuses|initContainerStatuses|resources|allocatedResources)\b.*)?"
    r"|spec(\.(containers|initContainers|overhead|resources|volumes)\b.*)?"
)
"""Parts of a pod that count on its node."""
_NO_MATTER = re.compile(
    r"metadata\.(annotations|ownerReferences|creationTimestamp|uid|resourceVersion).*|status\.(images|conditions).*"
)
"""Parts of a node whose loss cannot admit a pod that should not come."""


def rescue(kind: Kind, found: Outline, raw: bytes, at: float) -> PodChange | NodeChange | ObjectChange | None:
    """The readable parts of an object that does not decode; None if there are none. The caller sets `problem`."""
    try:
        plain = msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    match kind:
        case Kind.POD:
            return _pod(found, plain, at)
        case Kind.NODE:
            return _node(found, plain)
        case _ if OBJECT_KINDS[kind] in STILL_COUNTED:
            return _object(OBJECT_KINDS[kind], plain)
    return None


def _pod(found: Outline, plain: object, at: float) -> PodChange | None:
    if not (found.spec.node_name or found.finished):
        return None
    told = PodChange(
        uid=found.pod_uid,
        namespace=found.namespace,
        name=found.metadata.name,
        node=found.spec.node_name,
        finished=found.finished,
        seen_at=at,
    )
    if found.finished:
        return told
    saved = salvage(Pod, plain)
    if saved is None:
        return None
    pod: Pod = saved.object
    metadata = replace(pod.metadata, name=told.name, namespace=told.namespace, uid=told.uid)
    spec = replace(pod.spec, node_name=told.node)
    if "spec.priority" in saved.lost or "spec" in saved.lost:
        spec = replace(spec, priority=HIGHEST_PRIORITY)
    body, missing = placed_body(replace(pod, metadata=metadata, spec=spec))
    return replace(told, body=body, closes=bool(missing) or _any(_OCCUPIES, saved.lost))


def _node(found: Outline, plain: object) -> NodeChange | None:
    saved = salvage(Node, plain)
    if saved is None:
        return None
    node: Node = saved.object
    body, missing = node_body(replace(node, metadata=replace(node.metadata, name=found.metadata.name)))
    lost = [path for path in saved.lost if not _NO_MATTER.fullmatch(path)]
    return NodeChange(found.metadata.name, body=body, problem=missing or ", ".join(lost[:1]))


def _object(kind: ObjectKind, plain: object) -> ObjectChange | None:
    saved = salvage(TYPES[kind], plain)
    cautious = None if saved is None else _cautious(saved)
    if cautious is None:
        return None
    obj = finish_object(kind, cautious)
    return ObjectChange(kind, key_of(obj), body=body_of(obj))


def _cautious(saved: Salvaged) -> PersistentVolume | PersistentVolumeClaim | CSINode | None:
    """The object, if losing these parts cannot permit what they might forbid."""
    obj, lost = saved.object, saved.lost
    match obj:
        case PersistentVolume():
            if _any(re.compile(r"metadata.*|spec|spec\.(claimRef|accessModes|capacity).*"), lost):
                return None
            if _any(re.compile(r"spec\.nodeAffinity.*"), lost):
                nowhere = VolumeNodeAffinity(required=NodeSelector())
                return replace(obj, spec=replace(obj.spec, node_affinity=nowhere))
            return obj
        case PersistentVolumeClaim():
            is_harmless = obj.spec.volume_name and not _any(re.compile(r"metadata.*|spec|spec\.accessModes.*"), lost)
            return obj if is_harmless else None
        case CSINode():
            full = [replace(driver, allocatable=VolumeLimits(count=0)) for driver in obj.spec.drivers]
            return replace(obj, spec=replace(obj.spec, drivers=full)) if full else None
    return None


def _any(pattern: re.Pattern[str], paths: Iterable[str]) -> bool:
    return any(pattern.fullmatch(path) for path in paths)
