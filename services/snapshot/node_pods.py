"""The pods of a node in full: the snapshot's state has only their loads, so the API server is asked."""

from urllib.parse import quote

import msgspec

from services.snapshot.cache_comparer import Get
from services.snapshot.event_handlers import FINISHED_PHASES
from shared.errors import FlotillaError, InvalidObject
from shared.messages.inspection import PodsOn
from shared.messages.limits import HALF_A_MESSAGE
from shared.model.objects import decode_pod, encode_msgpack


class _List(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


_DECODER = msgspec.json.Decoder(_List)


async def pods_on(get: Get, node: str) -> PodsOn:
    """What plugins read of the pods, without their environment. Unreadable pods are left out."""
    path = f"/api/v1/pods?fieldSelector={quote(f'spec.nodeName={node}', safe='')}"
    try:
        listed = await get(path)
        items = _DECODER.decode(listed).items if listed is not None else None
    except msgspec.DecodeError as cause:
        return PodsOn(problem=f"GET {path}: not a list: {cause}")
    except FlotillaError as cause:
        return PodsOn(problem=str(cause))
    bodies: list[bytes] = []
    for item in items or ():
        try:
            pod = decode_pod(bytes(item))
        except InvalidObject:
            continue
        if pod.status.phase not in FINISHED_PHASES:
            bodies.append(encode_msgpack(pod))
    if sum(map(len, bodies)) > HALF_A_MESSAGE:
        return PodsOn(problem=f"the pods of node {node} do not fit in a message")
    return PodsOn(bodies)
