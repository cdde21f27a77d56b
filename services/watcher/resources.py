"""What is watched, and how an object becomes a change of the stream. A further kind is a further row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from services.watcher.outline import FINISHED_PHASES, Outline
from shared.errors import InvalidObject
from shared.messages.watch import Kind, NodeChange, PodChange, Unreadable
from shared.model.objects import decode_node, decode_pod, encode_msgpack

MOST_BODY_BYTES = 512 << 10
"""An object's body in a message; 250 times that of an ordinary pod."""
MOST_PROBLEM_LENGTH = 900
UNFINISHED_PODS = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
"""Finished pods hold nothing; the server tells of a pod that finishes as if it were deleted."""


@dataclass(frozen=True, slots=True)
class Resource:
    """`read` raises whatever is wrong with an object; `gone` tells of one that is not there any more."""

    kind: Kind
    path: str
    selector: str
    read: Callable[[msgspec.Raw, float], PodChange | NodeChange]
    gone: Callable[[Outline, float], PodChange | NodeChange]


def read_pod(raw: msgspec.Raw, now: float) -> PodChange:
    pod = decode_pod(raw)
    spec, metadata = pod.spec, pod.metadata
    return PodChange(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        scheduler=spec.scheduler_name,
        node=spec.node_name,
        finished=pod.status.phase in FINISHED_PHASES,
        body=_body(encode_msgpack(pod)),
        seen_at=now,
    )


def pod_gone(found: Outline, now: float) -> PodChange:
    return PodChange(
        uid=found.pod_uid,
        namespace=found.namespace,
        name=found.metadata.name,
        scheduler=found.spec.scheduler_name,
        node=found.spec.node_name,
        finished=found.finished,
        gone=True,
        seen_at=now,
    )


def read_node(raw: msgspec.Raw, now: float) -> NodeChange:
    node = decode_node(raw)
    return NodeChange(node.name, body=_body(encode_msgpack(node)))


def node_gone(found: Outline, now: float) -> NodeChange:
    return NodeChange(found.metadata.name, gone=True)


def unreadable(kind: Kind, found: Outline, cause: Exception) -> Unreadable:
    is_pod = kind is Kind.POD
    return Unreadable(
        kind=kind,
        uid=found.pod_uid if is_pod else found.metadata.uid,
        namespace=found.namespace if is_pod else "",
        name=found.metadata.name,
        problem=describe(cause),
        scheduler=found.spec.scheduler_name if is_pod else "",
        node=found.spec.node_name if is_pod else "",
    )


def describe(cause: Exception) -> str:
    """On one line, and without the name of the object."""
    if isinstance(cause, InvalidObject):
        text = f"{cause.field}: {cause.reason}" if cause.field else cause.reason
    else:
        text = f"cannot be read: {cause or type(cause).__name__}"
    return " ".join(text.split())[:MOST_PROBLEM_LENGTH]


def _body(raw: bytes) -> msgspec.Raw:
    if len(raw) > MOST_BODY_BYTES:
        raise ValueError(f"what a scheduler reads of it takes {len(raw)} bytes, more than {MOST_BODY_BYTES}")
    return msgspec.Raw(raw)


RESOURCES: Mapping[Kind, Resource] = {
    Kind.POD: Resource(Kind.POD, "/api/v1/pods", UNFINISHED_PODS, read_pod, pod_gone),
    Kind.NODE: Resource(Kind.NODE, "/api/v1/nodes", "", read_node, node_gone),
}
