"""What the API server lists now: of pods and nodes, as much as a comparison with the cache needs."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import msgspec

from services.snapshot.cache_comparer import PlacedPod, View
from services.snapshot.core import FINISHED_PHASES
from shared.errors import ClusterError

PAGE = 1000

Get = Callable[[str], Awaitable[bytes | None]]
"""The object at a path of the API server."""


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Item(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _ListMeta(msgspec.Struct, frozen=True, rename={"next": "continue"}):
    next: str = ""


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[_Item] | None = None


_DECODE: Callable[[bytes], _List] = msgspec.json.Decoder(_List).decode


async def list_now(get: Get) -> View:
    """ClusterError where the server does not say."""
    nodes = frozenset([item.metadata.name async for item in _items(get, "/api/v1/nodes")])
    pods: dict[str, PlacedPod] = {}
    waiting: set[str] = set()
    async for item in _items(get, "/api/v1/pods"):
        meta = item.metadata
        if item.status.phase in FINISHED_PHASES:
            continue
        if item.spec.node_name:
            pods[meta.uid] = PlacedPod(f"{meta.namespace}/{meta.name}", item.spec.node_name)
        else:
            waiting.add(meta.uid)
    return View(nodes, pods, frozenset(waiting))


async def _items(get: Get, path: str) -> AsyncIterator[Any]:
    following = ""
    while True:
        query = f"{path}?limit={PAGE}" + (f"&continue={quote(following, safe='')}" if following else "")
        body = await get(query)
        if body is None:
            raise ClusterError(f"GET {path}: there is no such list")
        try:
            listed = _DECODE(body)
        except msgspec.DecodeError as cause:
            raise ClusterError(f"GET {path}: not a list: {cause}") from cause
        for item in listed.items or ():
            yield item
        following = listed.metadata.next
        if not following:
            return
