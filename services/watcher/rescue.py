"""What an object that does not decode still says: pods on nodes, nodes, and what volumes are counted by.

    does not decode --> the parts that do are told, with the problem
                          |-- a part is lost that decisions rest on --> closes the node, for new pods
                          +-- nothing can be read                   --> Unreadable, which closes the node as well

A pod without a node is not rescued: it waits, and its owner is told why.
"""

import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from services.watcher.fitting import body_of, node_body, placed_body
from services.watcher.outline import Outline
from shared.messages.watch import OBJECT_KINDS, Kind, NodeChange, ObjectChange, PodChange
from shared.model.clusterobjects import TYPES
from shared.model.kinds import STILL_COUNTED, ObjectKind
from shared.model.objects import (
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

HIGHEST_PRIORITY = 2**31 - 1
"""Of a pod whose priority is unreadable: nobody may take its place from it."""

_OCCUPIES = re.compile(
    r"metadata(\.labels.*)?|status(\.(containerStatuses|initContainerStatuses|resources|allocatedResources)\b.*)?"
    r"|spec(\.(containers|initContainers|overhead|resources|volumes)\b.*)?"
)
"""Parts of a pod by which it counts on its node."""
_NO_MATTER = re.compile(
    r"metadata\.(annotations|ownerReferences|creationTimestamp|uid|resourceVersion).*|status\.(images|conditions).*"
)
"""Parts of a node whose loss lets no pod come that should not."""


def rescue(kind: Kind, found: Outline, raw: bytes, at: float) -> PodChange | NodeChange | ObjectChange | None:
    """What can be told of an object that could not be read; None if that is nothing. The caller fills in `problem`."""
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
    """The object, where what is lost of it permits nothing that it may forbid."""
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
