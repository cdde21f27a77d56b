"""The queue service on a real NATS server, with a watcher, a cycle, a snapshot and a binder that the test plays."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from services.queue.service import main
from shared.bus import Bus, Envelope, NoAnswer
from shared.config.settings import Settings
from shared.messages.binding import Notice, Notices
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
    PodChange,
    Relist,
    WatchChange,
    Watched,
)
from shared.model.objects import encode_msgpack
from shared.runtime import Context, Health
from shared.telemetry import Telemetry
from tests.builders import PodBuilder, pod
from tests.bus.support import PATIENCE, PREFIX, a_bus, a_telemetry, sample, until
from tests.queue.support import uid
from tests.servers import nats_server

pytestmark = pytest.mark.asyncio


class World:
    """Everybody but the queue. The cluster has the pods in `pods`; a listing is told whenever one is asked for."""

    def __init__(self, bus: Bus, telemetry: Telemetry, health: Health) -> None:
        self.bus = bus
        self.telemetry = telemetry
        self.health = health
        self.pods: list[PodBuilder] = []
        self.notices: list[Notice] = []
        self.relists = 0
        self.answers = True
        self.seq = 0
        self.takes = 0

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
        self.watch(ListingBegins(Kind.POD), *pods, ListingEnds(Kind.POD))
        for kind in (Kind.NODE, *OBJECT_KINDS):
            self.watch(ListingBegins(kind), ListingEnds(kind))

    def watch(self, *changes: WatchChange) -> None:
        self.seq += 1
        self.bus.post("watch", Watched(1, self.seq, list(changes)))

    async def take(self, most: int = 10) -> list[str]:
        self.takes += 1
        batch = await self.bus.request("queue.take", Take(1, self.takes, most), Batch, timeout=PATIENCE)
        assert (batch.epoch, batch.number) == (1, self.takes)
        return [queued.pod.name for queued in batch.pods]

    async def report(self, number: int, *outcomes: Outcome) -> None:
        message = Outcomes(1, number, list(outcomes))
        assert await self.bus.request("queue.outcomes", message, Received, timeout=PATIENCE) == Received(1, number)

    async def contents(self) -> QueueContents:
        return await self.bus.request("queue.inspect", Inspect(), QueueContents, timeout=PATIENCE)

    async def comes_to(self, condition: Callable[[QueueContents], bool]) -> QueueContents:
        async with asyncio.timeout(PATIENCE):
            while not condition(contents := await self.contents()):
                await asyncio.sleep(0.005)
        return contents


def change_of(one: PodBuilder, *, node: str = "", gone: bool = False) -> PodChange:
    built = one.build()
    if gone:
        return PodChange(built.uid, built.namespace, built.name, gone=True)
    body = msgspec.Raw(encode_msgpack(built))
    return PodChange(built.uid, built.namespace, built.name, built.spec.scheduler_name, node, body=body)


@asynccontextmanager
async def a_world(pods: Sequence[PodBuilder] = (), *, answers: bool = True) -> AsyncIterator[World]:
    telemetry, health = a_telemetry(), Health()
    async with nats_server() as server, a_bus(server) as others, a_bus(server, telemetry) as bus:
        world = World(others, telemetry, health)
        world.pods, world.answers = list(pods), answers
        await world.start()
        context = Context(
            service="queue",
            name="queue-1",
            settings=Settings(prefix=PREFIX),
            bus=bus,
            telemetry=telemetry,
            health=health,
            http_url="",
            validates=True,
        )
        service = asyncio.create_task(main(context))
        try:
            await until(lambda: world.relists > 0)
            if answers:
                await until(lambda: not health.reasons())
            yield world
        finally:
            service.cancel()
            with suppress(asyncio.CancelledError):
                await service


async def test_pods_of_the_listing_and_of_the_watch_are_handed_out_in_order() -> None:
    async with a_world([pod("a"), pod("b").priority(1), pod("g").gate("x")]) as world:
        assert await world.take() == ["b", "a"]
        waiting = asyncio.create_task(world.take())
        world.watch(change_of(pod("c")), change_of(pod("d").priority(1)))
        assert await waiting == ["d", "c"]
        contents = await world.contents()
        assert sorted(contents.in_flight) == [uid(name) for name in "abcd"]
        assert contents.gated == [uid("g")]


async def test_nothing_is_answered_before_the_cluster_is_listed() -> None:
    async with a_world([pod("a")], answers=False) as world:
        assert world.health.reasons() == ["listing: the cluster has not been listed yet"]
        with pytest.raises(NoAnswer):
            await world.bus.request("queue.take", Take(1, 1, 10), Batch, timeout=0.1)
        world.tell_all()
        await until(lambda: not world.health.reasons())
        assert await world.take() == ["a"]


async def test_a_take_that_finds_nothing_is_answered_in_time() -> None:
    async with a_world() as world:
        began = asyncio.get_running_loop().time()
        assert await world.take() == []
        assert TAKE_PATIENCE - 0.1 <= asyncio.get_running_loop().time() - began < PATIENCE / 2


async def test_a_repeated_take_gets_the_same_batch() -> None:
    async with a_world([pod("a")]) as world:
        assert await world.take() == ["a"]
        world.takes -= 1
        assert await world.take() == ["a"]


async def test_the_way_of_a_pod_to_its_node() -> None:
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


async def test_owners_are_told_and_pods_wait_to_be_woken() -> None:
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


async def test_a_message_that_is_lost_is_made_up_for_by_a_listing() -> None:
    async with a_world([pod("a"), pod("b")]) as world:
        world.pods = [pod("b"), pod("c")]
        world.seq += 2
        relists = world.relists
        world.watch()
        await until(lambda: world.relists > relists)
        contents = await world.comes_to(lambda contents: uid("c") in contents.active)
        assert contents.active == [uid("b"), uid("c")]
