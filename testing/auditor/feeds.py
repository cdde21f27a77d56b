"""The auditor's sources: the API server, the ledger in Redis, the queue and the binders."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

import msgspec

from shared.bus import Bus, Envelope, Subscription
from shared.bus.subjects import QUEUE_INSPECT, SNAPSHOT_BOUND
from shared.errors import FlotillaError, InvalidObject
from shared.kube.client import KubeClient
from shared.kube.listwatch import (
    Interruption,
    ListDone,
    ListPage,
    ListStarted,
    ListWatch,
    ListWatchEvent,
    WatchEvents,
    WatchStarted,
)
from shared.messages.binding import BindingOutcomes
from shared.messages.queue import Inspect, QueueContents
from shared.messages.watch import Kind
from shared.model.objects import Node, Pod, decode_node, decode_pod
from shared.store.link import RedisLink
from shared.store.schema import Keys, decode_entry
from shared.telemetry.logs import Repeated
from testing.auditor.events import (
    BindingsReported,
    Event,
    LedgerRead,
    LedgerUnavailable,
    NodeGone,
    NodeSeen,
    NodesListed,
    PodGone,
    PodSeen,
    PodsListed,
    QueueRead,
    QueueUnavailable,
    Unreadable,
    WatchLost,
    WatchResumed,
)

Emit = Callable[[Event], None]
ANSWER_PATIENCE = 2.0
"""Seconds for the queue to answer."""
BATCH = 256
"""Objects handled before yielding to the event loop."""
PATHS = {Kind.POD: "/api/v1/pods", Kind.NODE: "/api/v1/nodes"}
_AHEAD = time.time() - time.monotonic()


class _Meta(msgspec.Struct):
    uid: str = ""
    name: str = ""
    namespace: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta


_OBJECT = msgspec.json.Decoder(_Object)


class ClusterFeed:
    """Watches one kind of object. Reports a listing as a whole, when it is complete."""

    def __init__(self, client: KubeClient, kind: Kind, emit: Emit, log: logging.Logger) -> None:
        self._kind = kind
        self._emit = emit
        self._log = Repeated(log)
        self._listing: list[Pod | Node] = []
        self._unreadable: list[str] = []
        self._lost = False
        self._list_watch = ListWatch(client, PATHS[kind], self._hear, random.Random())

    async def run(self) -> NoReturn:
        await self._list_watch.run()

    async def _hear(self, heard: ListWatchEvent) -> None:
        match heard:
            case ListStarted():
                self._listing, self._unreadable = [], []
            case ListPage(objects=objects):
                for number, raw in enumerate(objects):
                    self._take_listed(raw)
                    await _give_way(number)
            case ListDone():
                self._end_listing()
            case WatchStarted():
                if self._lost:
                    self._lost = False
                    self._emit(WatchResumed(self._kind))
            case WatchEvents(events=events):
                for number, event in enumerate(events):
                    self._emit(self._seen(event.object, event.type == "DELETED"))
                    await _give_way(number)
            case Interruption(cause=cause):
                self._log.warning("lost", "the watch of %ss is interrupted: %s", self._kind, cause)
                self._lost = True
                self._emit(WatchLost(self._kind))

    def _take_listed(self, raw: msgspec.Raw) -> None:
        try:
            self._listing.append(decode_pod(raw) if self._kind is Kind.POD else decode_node(raw))
        except InvalidObject:
            self._unreadable.append(self._id(raw))

    def _end_listing(self) -> None:
        listing, unreadable = self._listing, self._unreadable
        self._listing, self._unreadable, self._lost = [], [], False
        if self._kind is Kind.POD:
            self._emit(PodsListed([each for each in listing if isinstance(each, Pod)], unreadable))
        else:
            self._emit(NodesListed([each for each in listing if isinstance(each, Node)], unreadable))

    def _seen(self, raw: msgspec.Raw, gone: bool) -> Event:
        if gone:
            return PodGone(self._id(raw)) if self._kind is Kind.POD else NodeGone(self._id(raw))
        try:
            return PodSeen(decode_pod(raw)) if self._kind is Kind.POD else NodeSeen(decode_node(raw))
        except InvalidObject as cause:
            self._log.warning("unreadable", "%s", cause)
            return Unreadable(self._kind, self._id(raw))

    def _id(self, raw: msgspec.Raw) -> str:
        """The id that decoding would give; empty if this is not an object."""
        with suppress(msgspec.DecodeError):
            meta = _OBJECT.decode(raw).metadata
            return meta.name if self._kind is Kind.NODE else meta.uid or f"{meta.namespace or 'default'}/{meta.name}"
        return ""


class LedgerFeed:
    def __init__(self, link: RedisLink, prefix: str, emit: Emit, log: logging.Logger) -> None:
        self._link = link
        self._key = Keys(prefix).ledger
        self._emit = emit
        self._log = Repeated(log)

    async def look(self) -> None:
        asked_at = now()
        try:
            values: Sequence[bytes] = await self._link.call("HVALS", self._key)
            entries = [decode_entry(value) for value in values]
        except FlotillaError as cause:
            self._log.warning("ledger", "the ledger cannot be read: %s", cause)
            self._emit(LedgerUnavailable())
        else:
            self._emit(LedgerRead(entries, asked_at))


class QueueFeed:
    def __init__(self, bus: Bus, emit: Emit, log: logging.Logger) -> None:
        self._bus = bus
        self._emit = emit
        self._log = Repeated(log)

    async def look(self) -> None:
        asked_at = now()
        try:
            contents = await self._bus.request(QUEUE_INSPECT, Inspect(), QueueContents, timeout=ANSWER_PATIENCE)
        except FlotillaError as cause:
            self._log.warning("queue", "the queue does not answer: %s", cause)
            self._emit(QueueUnavailable())
        else:
            self._emit(QueueRead(contents, asked_at))

    async def listen(self) -> Subscription[BindingOutcomes]:
        """Listen to binding outcomes; the auditor never replies."""
        return await self._bus.subscribe(SNAPSHOT_BOUND, BindingOutcomes, self._on_outcomes)

    def _on_outcomes(self, message: BindingOutcomes, _: Envelope) -> None:
        self._emit(BindingsReported(message.outcomes))


async def _give_way(number: int) -> None:
    if number % BATCH == BATCH - 1:
        await asyncio.sleep(0)


def now() -> float:
    """Unix time at the start of the process plus monotonic seconds since: readable, and immune to clock steps."""
    return time.monotonic() + _AHEAD
