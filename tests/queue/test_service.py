"""The queue service on real NATS and Redis servers; the test plays watcher, cycle, snapshot and binder."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from services.queue import retry_store
from services.queue.service import main
from shared.bus import Bus, Envelope, NoAnswer
from shared.config.settings import ApiSettings, Settings
from shared.messages.binding import Evicted, Notice, Notices
from shared.messages.inspection import ListQueue, QueueListed
from shared.messages.queue import (
    TAKE_PATIENCE,
    Absorbed,
    Batch,
    Forgotten,
    ForgottenPod,
    Inspect,
    Outcome,
    Outcomes,
    QueueContents,
    Received,
    Take,
    Verdict,
)
from shared.messages.watch import (
    OBJECT_KINDS,
    Kind,
    ListingBegins,
    ListingEnds,
    NodeChange,
    PodChange,
    Relist,
    WatchChange,
    Watched,
)
from shared.model.objects import encode_msgpack, pod_from_msgpack
from shared.runtime import Context, Health
from shared.store.retry_records import Memory
from shared.telemetry import Telemetry
from testing.builders import NodeBuilder, PodBuilder, node, pod
from testing.inprocess.batches import pods_in
from tests.bus.support import PATIENCE, PREFIX, a_bus, a_telemetry, sample, until
from tests.kube.support import api_server
from tests.queue.support import uid
from tests.servers import nats_server, redis_server
from tests.store.support import linked
from tools.supervisor.servers import NatsServer, RedisServer

pytestmark = pytest.mark.asyncio


@dataclass
class Run:
    """One process of the service."""

    telemetry: Telemetry
    health: Health
    task: asyncio.Task[None]


class World:
    """Watcher, cycle, snapshot and binder. The cluster has the pods in `pods`; listings are served on request."""

    def __init__(self, bus: Bus, nats: NatsServer, redis: RedisServer, api: ApiSettings) -> None:
        self.bus = bus
        self.api = api
        self.nats = nats
        self.redis = redis
        self.pods: list[PodBuilder] = []
        self.nodes: list[NodeBuilder] = []
        self.notices: list[Notice] = []
        self.relists = 0
        self.answers = True
        self.seq = 0
        self.takes = 0
        self.run: Run | None = None

    @property
    def telemetry(self) -> Telemetry:
        assert self.run is not None
        return self.run.telemetry

    @property
    def health(self) -> Health:
        assert self.run is not None
        return self.run.health

    @asynccontextmanager
    async def queue(self, **settings: Any) -> AsyncIterator[Run]:
        telemetry, health = a_telemetry(), Health()
        relists = self.relists
        async with a_bus(self.nats, telemetry) as bus:
            context = Context(
                service="queue",
                name="queue-1",
                settings=Settings(prefix=PREFIX, redis_url=self.redis.url, api=self.api, **settings),
                bus=bus,
                telemetry=telemetry,
                health=health,
                http_url="",
                validates=True,
            )
            self.run = Run(telemetry, health, asyncio.create_task(main(context)))
            try:
                await until(lambda: self.relists > relists)
                if self.answers:
                    await until(lambda: not health.reasons())
                yield self.run
            finally:
                self.run.task.cancel()
                with suppress(asyncio.CancelledError):
                    await self.run.task

    async def start(self) -> None:
        await self.bus.subscribe("watcher.relist", Relist, self._on_relist)
        await self.bus.subscribe("binder.notices", Notices, self._on_notices)

    def _on_relist(self, message: Relist, envelope: Envelope) -> None:
        self.relists += 1
        if self.answers:
            self.tell_all()

    def _on_notices(self, message: Notices, envelope: Envelope) -> None:
        self.notices += message.notices

    def tell_all(self) -> None:
        pods = [change_of(one) for one in self.pods]
        nodes = [node_change(one) for one in self.nodes]
        self.watch(ListingBegins(Kind.POD), *pods, ListingEnds(Kind.POD))
        self.watch(ListingBegins(Kind.NODE), *nodes, ListingEnds(Kind.NODE))
        for kind in OBJECT_KINDS:
            self.watch(ListingBegins(kind), ListingEnds(kind))

    def watch(self, *changes: WatchChange) -> None:
        self.seq += 1
        self.bus.post("watch", Watched(1, self.seq, list(changes)))

    async def take(self, most: int = 10) -> list[str]:
        self.takes += 1
        batch = await self.bus.request("queue.take", Take(1, self.takes, most), Batch, timeout=PATIENCE)
        assert (batch.epoch, batch.number) == (1, self.takes)
        return [each.name for each in pods_in(batch)]

    async def report(self, number: int, *outcomes: Outcome) -> None:
        message = Outcomes(1, number, list(outcomes))
        received = await self.bus.request("queue.outcomes", message, Received, timeout=PATIENCE)
        assert (received.epoch, received.number) == (1, number)

    async def contents(self) -> QueueContents:
        return await self.bus.request("queue.inspect", Inspect(), QueueContents, timeout=PATIENCE)

    async def comes_to(self, condition: Callable[[QueueContents], bool]) -> QueueContents:
        async with asyncio.timeout(PATIENCE):
            while not condition(contents := await self.contents()):
                await asyncio.sleep(0.005)
        return contents


def change_of(one: PodBuilder, *, node: str = "", gone: bool = False) -> PodChange:
    built = (one.on(node) if node else one).build()
    if gone:
        return PodChange(built.uid, built.namespace, built.name, gone=True)
    body = msgspec.Raw(encode_msgpack(built))
    return PodChange(built.uid, built.namespace, built.name, built.spec.scheduler_name, node, body=body)


def node_change(one: NodeBuilder) -> NodeChange:
    return NodeChange(one.build().name, body=msgspec.Raw(encode_msgpack(one.build())))


@asynccontextmanager
async def servers() -> AsyncIterator[World]:
    async with nats_server() as nats, redis_server() as redis, a_bus(nats) as others, api_server() as api:
        world = World(others, nats, redis, ApiSettings(server=api.url))
        await world.start()
        yield world


@asynccontextmanager
async def a_world(pods: Sequence[PodBuilder] = (), *, answers: bool = True) -> AsyncIterator[World]:
    async with servers() as world:
        world.pods, world.answers = list(pods), answers
        async with world.queue():
            yield world


async def test_pods_of_the_listing_and_of_the_watch_are_handed_out_in_order() -> None:
    async with a_world([pod("a"), pod("b").priority(1), pod("g").gate("x")]) as world:
        assert await world.take() == ["b", "a"]
        waiting = asyncio.create_task(world.take())
        world.watch(change_of(pod("c")), change_of(pod("d").priority(1)))
        assert await waiting == ["d", "c"]
        contents = await world.contents()
        assert sorted(contents.in_flight) == [uid(name) for name in "abcd"]
        assert contents.gated == [uid("g")]


async def test_a_take_before_the_listing_is_answered_after_it() -> None:
    async with a_world([pod("a")], answers=False) as world:
        assert world.health.reasons() == ["listing: the cluster has not been listed yet"]
        with pytest.raises(NoAnswer):
            await world.bus.request("queue.inspect", Inspect(), QueueContents, timeout=0.1)
        waiting = asyncio.create_task(world.take())
        received = {"direction": "in", "subject": "queue.take"}
        await until(lambda: sample(world.telemetry, "flotilla_bus_messages_total", **received) == 1)
        world.tell_all()
        assert await waiting == ["a"]


async def test_a_take_without_pods_is_answered_in_time() -> None:
    async with a_world() as world:
        assert await world.take() == []
        began = asyncio.get_running_loop().time()
        assert await world.take() == []
        assert TAKE_PATIENCE - 0.1 <= asyncio.get_running_loop().time() - began < PATIENCE / 2


async def test_a_take_that_waits_when_the_queue_ends_is_answered_at_once() -> None:
    async with a_world() as world:
        began = asyncio.get_running_loop().time()
        waiting = asyncio.create_task(world.take())
        received = {"subject": "queue.take", "direction": "in"}
        await until(lambda: sample(world.telemetry, "flotilla_bus_messages_total", **received) == 1)
        assert world.run is not None
        world.run.task.cancel()
        assert await waiting == []
        assert asyncio.get_running_loop().time() - began < TAKE_PATIENCE / 2


async def test_a_repeated_take_gets_the_same_batch() -> None:
    async with a_world([pod("a")]) as world:
        assert await world.take() == ["a"]
        world.takes -= 1
        assert await world.take() == ["a"]


async def test_a_pod_is_taken_decided_and_bound() -> None:
    async with a_world([pod("a")]) as world:
        await world.take()
        await world.report(1, Outcome(uid("a"), Verdict.DECIDED, "n"))
        assert (await world.contents()).binding == [uid("a")]
        world.bus.post("queue.forgotten", Forgotten(1, [ForgottenPod(uid("a"), "the binding failed")]))
        await world.comes_to(lambda contents: contents.backoff == [uid("a")])
        world.watch(change_of(pod("a"), node="n"))
        await world.comes_to(lambda contents: contents == QueueContents([], [], [], [], [], []))
        shown = {"result": "scheduled", "profile": "default-scheduler"}
        await until(lambda: sample(world.telemetry, "scheduler_schedule_attempts_total", **shown) == 1.0)
        assert sample(world.telemetry, "scheduler_pod_scheduling_attempts_count") == 1.0
        assert sample(world.telemetry, "flotilla_core_failures_total") == 0.0


async def test_a_rejection_is_notified_and_an_event_requeues_the_pod() -> None:
    async with a_world([pod("a"), pod("b")]) as world:
        await world.take()
        await world.report(
            1,
            Outcome(uid("a"), Verdict.UNSCHEDULABLE, message="no room", plugins=("NodeResourcesFit",)),
            Outcome(uid("b"), Verdict.FAILED, message="broken"),
        )
        await until(lambda: len(world.notices) == 2)
        assert [(n.name, n.reason, n.message) for n in world.notices] == [
            ("a", "Unschedulable", "no room"),
            ("b", "SchedulerError", "broken"),
        ]
        assert (await world.contents()).unschedulable == [uid("a")]
        pending = {"queue": "unschedulable"}
        await until(lambda: sample(world.telemetry, "scheduler_pending_pods", **pending) == 1.0)
        rejected = {"plugin": "NodeResourcesFit", "profile": "default-scheduler"}
        assert sample(world.telemetry, "scheduler_unschedulable_pods", **rejected) == 1.0
        came = {"queue": "unschedulable", "event": "ScheduleAttemptFailure"}
        assert sample(world.telemetry, "scheduler_queue_incoming_pods_total", **came) == 1.0
        world.watch(change_of(pod("other"), node="n"))
        world.watch(change_of(pod("other"), gone=True))
        contents = await world.comes_to(lambda contents: uid("b") not in contents.backoff)
        assert contents.unschedulable == [uid("a")]  # until the snapshot knows, too
        world.bus.post("queue.forgotten", Absorbed(epoch=1, seq=7, watch_epoch=1, watch_seq=world.seq))
        await world.comes_to(lambda contents: not contents.unschedulable)
        assert "a" in await world.take()


async def test_a_lost_message_leads_to_a_listing() -> None:
    async with a_world([pod("a"), pod("b")]) as world:
        world.pods = [pod("b"), pod("c")]
        world.seq += 2
        relists = world.relists
        world.watch()
        await until(lambda: world.relists > relists)
        contents = await world.comes_to(lambda contents: uid("c") in contents.active)
        assert contents.active == [uid("b"), uid("c")]


def rejected(name: str, plugin: str = "NodeResourcesFit", **more: Any) -> Outcome:
    return Outcome(uid(name), Verdict.UNSCHEDULABLE, message="no room", plugins=(plugin,), **more)


async def test_only_an_event_that_helps_requeues_a_pod() -> None:
    async with servers() as world:
        world.pods, world.nodes = [pod("a").request(cpu=4)], [node("small").capacity(cpu=1)]
        async with world.queue():
            world.bus.post("queue.forgotten", Absorbed(epoch=1, seq=6, watch_epoch=1, watch_seq=world.seq))
            await world.take()
            await world.report(1, rejected("a"))
            world.watch(node_change(node("small").capacity(cpu=2)))
            world.watch(node_change(node("other").capacity(cpu=3)))
            world.bus.post("queue.forgotten", Absorbed(epoch=1, seq=7, watch_epoch=1, watch_seq=world.seq))
            handled = {"event": "NodeAdd"}
            await until(lambda: sample(world.telemetry, f"{HANDLING}_count", **handled) == 2.0)
            assert (await world.contents()).unschedulable == [uid("a")]
            world.watch(node_change(node("large").capacity(cpu=8)))
            world.bus.post("queue.forgotten", Absorbed(epoch=1, seq=8, watch_epoch=1, watch_seq=world.seq))
            await world.comes_to(lambda contents: not contents.unschedulable)
            assert await taken(world) == ["a"]


SLI = "scheduler_pod_scheduling_sli_duration_seconds"
HANDLING = "scheduler_event_handling_duration_seconds"


async def taken(world: World) -> list[str]:
    """The pods of the next batch that has any."""
    async with asyncio.timeout(PATIENCE):
        while not (names := await world.take()):
            pass
    return names


async def test_a_preemptor_waits_until_its_victims_are_evicted() -> None:
    async with a_world([pod("a").priority(9), pod("b")]) as world:
        await world.take()
        await world.report(1, rejected("a", nominated="n", preemption=5))
        assert world.notices == [] or world.notices[0].nominated == "n"
        await until(lambda: len(world.notices) == 1)
        world.watch(change_of(pod("v"), node="n"))
        world.watch(change_of(pod("v"), gone=True))
        world.bus.post("queue.forgotten", Absorbed(epoch=1, seq=7, watch_epoch=1, watch_seq=world.seq))
        await world.comes_to(lambda contents: contents.gated == [uid("a")])
        received = await world.bus.request("queue.evicted", Evicted(uid("a"), 5), Received, timeout=PATIENCE)
        assert received.number == 5
        contents = await world.comes_to(lambda contents: not contents.gated)
        assert uid("a") in (*contents.active, *contents.backoff)


async def test_retry_records_survive_a_restart() -> None:
    async with servers() as world:
        world.pods = [pod("a"), pod("b"), pod("c")]
        async with world.queue():
            await world.take()
            await world.report(1, rejected("a"), Outcome(uid("b"), Verdict.FAILED, message="broken"), rejected("c"))
        world.pods = [pod("a"), pod("b")]
        async with world.queue():
            contents = await world.contents()
            assert sorted((*contents.active, *contents.backoff)) == [uid("a"), uid("b")]
            assert uid("b") in contents.backoff
            world.takes = 0
            batches = await attempts(world, {"a", "b"})
            assert batches == {"a": 2, "b": 2}
            world.watch(change_of(pod("a"), node="n"), change_of(pod("b"), node="n"))
            await world.comes_to(lambda contents: contents == QueueContents([], [], [], [], [], []))
            await until(lambda: sample(world.telemetry, f"{SLI}_count", attempts="2") == 2.0)
        async with linked(world.redis) as link:
            assert await Memory(link, PREFIX).load() == {}


async def test_pods_are_listed_and_dumped(caplog: pytest.LogCaptureFixture) -> None:
    async with a_world([pod("a"), pod("g").gate("x")]) as world:
        await world.take()
        await world.report(1, rejected("a"))
        listed = await world.bus.request("queue.list", ListQueue(), QueueListed, timeout=PATIENCE)
        assert [(each.name, each.state, each.message) for each in listed.pods] == [
            ("a", "unschedulable", "no room"),
            ("g", "gated", ""),
        ]
        with caplog.at_level(logging.INFO):
            os.kill(os.getpid(), signal.SIGUSR2)
            await until(lambda: any(line.startswith("dump: ") and "default/a" in line for line in caplog.messages))


async def attempts(world: World, names: set[str]) -> dict[str, int]:
    """Of these pods, as they are handed out."""
    found: dict[str, int] = {}
    async with asyncio.timeout(PATIENCE):
        while found.keys() != names:
            world.takes += 1
            batch = await world.bus.request("queue.take", Take(2, world.takes, 10), Batch, timeout=PATIENCE)
            found |= {pod_from_msgpack(queued.pod).name: queued.attempt for queued in batch.pods}
    return found


async def test_the_queue_goes_on_without_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_store, "LOAD_TIMEOUT", 0.2)
    async with servers() as world:
        await world.redis.kill()
        world.pods = [pod("a")]
        async with world.queue():
            assert await world.take() == ["a"]
            await world.report(1, rejected("a"))
            await until(lambda: sample(world.telemetry, "flotilla_queue_memory_failures_total") > 1)
            assert (await world.contents()).unschedulable == [uid("a")]


async def test_without_a_cycle_the_queue_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.runtime.context.PATIENCE", 0.3)
    async with a_world([pod("p")]) as w:
        await until(lambda: any("no cycle has asked for any" in reason for reason in w.health.reasons()))
        assert await taken(w) == ["p"]
        await until(lambda: not any("cycle" in reason for reason in w.health.reasons()))
