"""The pods of a node in full: the snapshot's state has only their loads, so the API server is asked."""

from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from services.snapshot.cache_comparer import Get
from services.snapshot.event_handlers import FINISHED_PHASES
from shared.errors import FlotillaError, InvalidObject
from shared.messages.inspection import PodsOn
from shared.messages.limits import HALF_A_MESSAGE
from shared.model.base import LAST_APPLIED
from shared.model.objects import Pod, decode_pod, encode_msgpack

PAGE = 250
"""Pods in one answer about all nodes."""


class _Metadata(msgspec.Struct, frozen=True):
    next: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None
    metadata: _Metadata = _Metadata()


_DECODER = msgspec.json.Decoder(_List)


async def pods_on(get: Get, node: str, after: str) -> PodsOn:
    """What plugins read of the pods, without their environment. Unreadable pods are left out."""
    selector = f"spec.nodeName={node}" if node else "spec.nodeName!="
    path = f"/api/v1/pods?fieldSelector={quote(selector, safe='')}"
    if not node:
        path += f"&limit={PAGE}" + (f"&continue={quote(after, safe='')}" if after else "")
    try:
        raw = await get(path)
        listed = _DECODER.decode(raw) if raw is not None else _List()
    except msgspec.DecodeError as cause:
        return PodsOn(problem=f"GET {path}: not a list: {cause}")
    except FlotillaError as cause:
        return PodsOn(problem=str(cause))
    bodies: list[bytes] = []
    for item in listed.items or ():
        try:
            pod = decode_pod(bytes(item))
        except InvalidObject:
            continue
        if pod.status.phase not in FINISHED_PHASES:
            bodies.append(encode_msgpack(_without_manifest(pod)))
    if sum(map(len, bodies)) > HALF_A_MESSAGE:
        return PodsOn(problem=f"the pods of {f'node {node}' if node else 'a page'} do not fit in a message")
    return PodsOn(bodies, next=listed.metadata.next)


def _without_manifest(pod: Pod) -> Pod:
    annotations = pod.metadata.annotations
    if LAST_APPLIED not in annotations:
        return pod
    left = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    return replace(pod, metadata=replace(pod.metadata, annotations=left))
