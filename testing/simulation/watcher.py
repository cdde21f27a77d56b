"""A watcher: its stream is numbered, and a listing comes when it is asked for."""

import asyncio

import msgspec

from services.watcher.service import BEAT, GATHERING
from shared.bus import Envelope
from shared.messages.watch import (
    OBJECT_KINDS,
    Kind,
    ListingBegins,
    ListingEnds,
    NodeChange,
    ObjectChange,
    PodChange,
    Relist,
    WatchBeat,
    WatchChange,
    Watched,
)
from shared.model.objects import Node, ObjectKind, Pod, encode_msgpack
from testing.simulation.apiserver import ApiServer, What
from testing.simulation.network import SimBus

FINISHED = ("Succeeded", "Failed")
RELIST_PAUSE = 1.0


class Watcher:
    def __init__(self, bus: SimBus, server: ApiServer) -> None:
        self._bus = bus
        self._server = server
        self._epoch = server.term("watcher")
        self._seq = 0
        self._changes: list[WatchChange] = []
        self._relist = asyncio.Event()

    async def run(self) -> None:
        self._server.followers.append(self._changed)
        await self._bus.subscribe("watcher.relist", Relist, self._on_relist, group="watcher")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._flush())
            tasks.create_task(self._beat())
            tasks.create_task(self._list())

    def _changed(self, kind: str, what: What | None, key: str) -> None:
        self._changes.append(_change(Kind(kind), what, key))

    def _on_relist(self, message: Relist, envelope: Envelope) -> None:
        self._relist.set()

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(GATHERING)
            self._send()

    async def _beat(self) -> None:
        while True:
            self._bus.post("watch", WatchBeat(self._epoch, self._seq))
            await asyncio.sleep(BEAT)

    async def _list(self) -> None:
        while True:
            self._send()
            self._changes.append(ListingBegins(Kind.NODE))
            self._changes += [_node_change(node, name) for name, node in self._server.nodes.items()]
            self._changes.append(ListingEnds(Kind.NODE))
            self._send()
            self._changes.append(ListingBegins(Kind.POD))
            pods = (pod for pod in self._server.pods.values() if pod.status.phase not in FINISHED)
            self._changes += [_pod_change(pod, pod.uid) for pod in pods]
            self._changes.append(ListingEnds(Kind.POD))
            self._send()
            for kind, object_kind in OBJECT_KINDS.items():
                self._changes.append(ListingBegins(kind))
                objects = self._server.objects.items()
                self._changes += [_change(kind, obj, key) for (of, key), obj in objects if of is object_kind]
                self._changes.append(ListingEnds(kind))
            self._send()
            await asyncio.sleep(RELIST_PAUSE)
            await self._relist.wait()
            self._relist.clear()

    def _send(self) -> None:
        if self._changes:
            self._seq += 1
            changes, self._changes = self._changes, []
            self._bus.post("watch", Watched(self._epoch, self._seq, changes))


def _change(kind: Kind, what: What | None, key: str) -> WatchChange:
    match kind, what:
        case Kind.POD, Pod() | None:
            return _pod_change(what, key)
        case Kind.NODE, Node() | None:
            return _node_change(what, key)
    object_kind = ObjectKind(kind.value)
    if what is None:
        return ObjectChange(object_kind, key, gone=True)
    return ObjectChange(object_kind, key, body=_raw(what))


def _node_change(node: Node | None, name: str) -> NodeChange:
    return NodeChange(name, gone=True) if node is None else NodeChange(name, body=_raw(node))


def _pod_change(pod: Pod | None, uid: str) -> PodChange:
    if pod is None:
        return PodChange(uid, "default", uid, gone=True)
    finished = pod.status.phase in FINISHED
    return PodChange(
        uid,
        pod.namespace,
        pod.name,
        pod.spec.scheduler_name,
        pod.spec.node_name,
        finished=finished,
        gone=finished,
        body=_raw(pod),
        seen_at=0.0,
        nominated=pod.status.nominated_node_name,
    )


def _raw(what: What) -> msgspec.Raw:
    return msgspec.Raw(encode_msgpack(what))
