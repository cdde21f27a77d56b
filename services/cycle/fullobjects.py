"""Whole nodes and pods, as the API server has them, for extenders that are sent objects.

The services keep of an object what schedulers read; an extender may read anything. So where an extender is to be sent
nodes the cycle watches them for itself, and whoever is to be judged is read anew. `managedFields` are left out.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from shared.errors import FlotillaError
from shared.kube.client import KubeClient
from shared.kube.listwatch import ListDone, ListPage, ListStarted, ListWatchEvent, WatchEvents
from shared.model.objects import Pod, encode_json

NODES = "/api/v1/nodes"
POD_PATIENCE = 1.0
"""Seconds that reading a pod may take; after that it is told of as far as it is known."""
NODE_PATIENCE = 1.0
"""Seconds until a node that a worker has offered must have been seen here, too."""


class Objects(Protocol):
    """Objects as JSON."""

    async def pod(self, pod: Pod) -> bytes: ...

    async def wait_for(self, names: Iterable[str]) -> None: ...

    def nodes(self, names: Sequence[str]) -> list[bytes]: ...


class WholeObjects:
    """`hear` is to be given to a ListWatch of `NODES`, if there is an extender that is sent nodes."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._nodes: dict[str, bytes] = {}
        self._listed: dict[str, bytes] | None = None
        self._changed = asyncio.Event()

    async def pod(self, pod: Pod) -> bytes:
        """As it is now; what is known of it where the API server does not say, or has another pod of that name."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            async with asyncio.timeout(POD_PATIENCE):
                whole = await self._client.get(path)
            found: Any = None if whole is None else msgspec.json.decode(whole)
        except (FlotillaError, TimeoutError, msgspec.DecodeError):
            found = None
        if isinstance(found, dict) and _meta(found).get("uid") == pod.uid:
            return _trimmed(found)
        return encode_json(pod)

    async def wait_for(self, names: Iterable[str]) -> None:
        """Until all these nodes are known, or long enough."""
        wanted = set(names)
        try:
            async with asyncio.timeout(NODE_PATIENCE):
                while not wanted <= self._nodes.keys():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    def nodes(self, names: Sequence[str]) -> list[bytes]:
        """Those that are known, in this order."""
        return [node for name in names if (node := self._nodes.get(name)) is not None]

    async def hear(self, heard: ListWatchEvent) -> None:
        match heard:
            case ListStarted():
                self._listed = {}
            case ListPage(objects=objects) if self._listed is not None:
                for raw in objects:
                    self._take(self._listed, raw, gone=False)
            case ListDone() if self._listed is not None:
                self._nodes, self._listed = self._listed, None
            case WatchEvents(events=events):
                for event in events:
                    self._take(self._nodes, event.object, gone=event.type == "DELETED")
            case _:
                return
        self._changed.set()

    def _take(self, nodes: dict[str, bytes], raw: msgspec.Raw, *, gone: bool) -> None:
        """An object that cannot be read is nobody's node."""
        try:
            found: Any = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            return
        name = _meta(found).get("name") if isinstance(found, dict) else None
        if not isinstance(name, str):
            return
        if gone:
            nodes.pop(name, None)
        else:
            nodes[name] = _trimmed(found)


def _meta(found: dict[str, Any]) -> dict[str, Any]:
    meta = found.get("metadata")
    return meta if isinstance(meta, dict) else {}


def _trimmed(found: dict[str, Any]) -> bytes:
    _meta(found).pop("managedFields", None)
    return msgspec.json.encode(found)
