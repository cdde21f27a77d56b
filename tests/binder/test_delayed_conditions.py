"""A binder writes conditions of failed bindings rarely, the latest one in the end, and nothing that is out of date."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from services.binder.delayed_conditions import DelayedConditions
from services.binder.metrics import BinderMetrics
from services.binder.status_queue import Queued, StatusQueue, StatusWrite
from services.binder.status_reporter import StatusWriter
from shared.config.settings import ApiSettings
from shared.kube.client import KubeClient
from shared.kube.events_and_conditions import PodRef, PodScheduled
from shared.telemetry.logs import logger
from shared.telemetry.metrics import Metrics
from testing.simulation.loop import VirtualLoop
from testing.simulator.service import Simulator, SimulatorOptions
from tests.binder.world import until
from tests.kube.support import raw_pod

POD, OTHER = PodRef("default", "p", "uid-p"), PodRef("default", "q", "uid-q")


def failed(message: str, reason: str = "Unschedulable", nominated: str | None = "", pod: PodRef = POD) -> StatusWrite:
    return StatusWrite(pod, PodScheduled(reason, message, 1.0), nominated)


class Binder:
    """`written`: the messages, with the seconds since it began; None where only the nomination is cleared."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.began = self.loop.time()
        self.writes: list[StatusWrite] = []
        self.written: list[tuple[float, str | None]] = []
        self.delayed = DelayedConditions(self._put, self.loop.time)

    def _put(self, write: StatusWrite) -> None:
        self.writes.append(write)
        said = None if write.condition is None else write.condition.message
        self.written.append((self.loop.time() - self.began, said))

    def fail(self, message: str, reason: str = "Unschedulable", pod: PodRef = POD) -> None:
        self._put(self.delayed.write_now(failed(message, reason, pod=pod)))


def play(script: Callable[[Binder], Awaitable[None]]) -> Binder:
    """On virtual time."""

    async def run() -> Binder:
        binder = Binder()
        await script(binder)
        binder.delayed.close()
        return binder

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())


def test_the_latest_condition_is_written_after_five_seconds_and_nominations_are_cleared_at_once() -> None:
    async def script(binder: Binder) -> None:
        for number in range(3):
            binder.fail(f"{number}")
            await asyncio.sleep(1.0)
        await asyncio.sleep(10.0)

    binder = play(script)
    assert binder.written == [(0.0, "0"), (1.0, None), (2.0, None), (5.0, "2")]
    assert {write.nominated for write in binder.writes[:3]} == {""}
    assert binder.writes[3] == StatusWrite(POD, failed("2").condition, after=failed("0").condition)


def test_a_pods_condition_waits_for_no_other_pods() -> None:
    async def script(binder: Binder) -> None:
        binder.fail("1")
        await asyncio.sleep(3.0)
        binder.fail("other 1", pod=OTHER)
        binder.fail("other 2", pod=OTHER)
        await asyncio.sleep(1.0)
        binder.fail("2")
        await asyncio.sleep(10.0)

    conditions = [(at, said) for at, said in play(script).written if said is not None]
    assert conditions == [(0.0, "1"), (3.0, "other 1"), (5.0, "2"), (8.0, "other 2")]


def test_another_reason_is_written_at_once() -> None:
    async def script(binder: Binder) -> None:
        binder.fail("not permitted")
        binder.fail("broken", "SchedulerError")
        await asyncio.sleep(10.0)

    assert play(script).written == [(0.0, "not permitted"), (0.0, "broken")]


def test_what_the_queue_has_written_replaces_what_is_delayed() -> None:
    async def script(binder: Binder) -> None:
        binder.fail("1")
        binder.fail("2")
        await asyncio.sleep(1.0)
        binder.delayed.wrote(POD.uid, PodScheduled("Unschedulable", "no room", 1.0))
        await asyncio.sleep(1.0)
        binder.fail("3")
        await asyncio.sleep(10.0)

    assert play(script).written == [(0.0, "1"), (0.0, None), (2.0, None), (6.0, "3")]


def test_nothing_more_is_written_to_a_bound_pod() -> None:
    async def script(binder: Binder) -> None:
        binder.fail("1")
        binder.fail("2")
        binder.delayed.forget(POD.uid)
        await asyncio.sleep(10.0)

    assert play(script).written == [(0.0, "1"), (0.0, None)]


def test_a_binder_that_leaves_writes_what_it_delays() -> None:
    async def script(binder: Binder) -> None:
        binder.fail("1")
        binder.fail("2")
        await asyncio.sleep(1.0)
        binder.delayed.flush()
        binder.fail("3")
        await asyncio.sleep(10.0)
        assert len(binder.delayed) == 0

    assert play(script).written == [(0.0, "1"), (0.0, None), (1.0, "2"), (1.0, "3")]


def test_a_write_that_depends_on_what_the_pod_shows_is_joined_with_no_other() -> None:
    queue = StatusQueue(10)
    later = StatusWrite(POD, failed("2").condition, after=failed("1").condition)
    assert [queue.put(failed("1")), queue.put(later)] == [Queued.NEW, Queued.NEW]
    assert queue.put(StatusWrite(POD, failed("3").condition, after=failed("1").condition)) is Queued.JOINED
    first = queue.take()
    assert first == failed("1")
    queue.done(first)
    assert queue.take() == StatusWrite(POD, failed("3").condition, after=failed("1").condition)


class Writer:
    """A StatusWriter before a simulated API server with one pod."""

    def __init__(self, simulator: Simulator, writer: StatusWriter) -> None:
        self.simulator = simulator
        self._writer = writer

    async def write(self, message: str, after: str = "") -> str:
        """Returns what the pod shows then."""
        self._writer.put(StatusWrite(POD, failed(message).condition, after=failed(after).condition if after else None))
        await until(lambda: self._writer.idle)
        conditions = self.simulator.stored("pods", "p", "default")["status"].get("conditions", [{"message": ""}])
        return str(conditions[0]["message"])

    def refuse_patches(self, times: int = 1, code: int = 403) -> None:
        self.simulator.faults.fail("PATCH", "/status$", code, times=times, reason="Forbidden")

    def refuse_reads(self) -> None:
        self.simulator.faults.fail("GET", "/pods/p$", 403, reason="Forbidden")

    async def write_elsewhere(self, message: str) -> None:
        """As another binder does."""
        async with a_writer(self.simulator) as other:
            assert await other.write(message) == message


@asynccontextmanager
async def a_writer(simulator: Simulator) -> AsyncIterator[Writer]:
    client = await KubeClient.open(ApiSettings(server=simulator.url))
    writer = StatusWriter(client, BinderMetrics(Metrics()), logger("binder"))
    try:
        yield Writer(simulator, writer)
    finally:
        await writer.close()
        await client.close()


@asynccontextmanager
async def one_pod() -> AsyncIterator[Writer]:
    simulator = Simulator(SimulatorOptions(kubelet=False))
    await simulator.start()
    simulator.store_raw("pods", raw_pod("p"))
    try:
        async with a_writer(simulator) as writer:
            yield writer
    finally:
        await simulator.stop()


@pytest.mark.asyncio
@pytest.mark.parametrize(("shown", "left"), [("1", "2"), ("another writer's", "another writer's")])
async def test_it_is_written_only_if_the_pod_shows_what_was_written_before(shown: str, left: str) -> None:
    async with one_pod() as writer:
        await writer.write(shown)
        assert await writer.write("2", after="1") == left


@pytest.mark.asyncio
@pytest.mark.parametrize("old", ["", "old"])
async def test_it_is_written_also_if_the_one_before_could_not_be(old: str) -> None:
    """Otherwise the pod would show the old condition until its next attempt."""
    async with one_pod() as writer:
        if old:
            await writer.write(old)
        writer.refuse_patches()
        assert await writer.write("1") == old
        assert await writer.write("2", after="1") == "2"


@pytest.mark.asyncio
@pytest.mark.parametrize("is_read", [True, False])
async def test_it_is_tried_again_also_if_the_one_before_could_not_be_written(is_read: bool) -> None:
    async with one_pod() as writer:
        await writer.write("old")
        if is_read:
            writer.refuse_patches()
        else:
            writer.refuse_reads()
        assert await writer.write("1") == "old"
        writer.refuse_patches(times=2, code=503)
        assert await writer.write("2", after="1") == "2"


@pytest.mark.asyncio
async def test_it_does_not_replace_what_another_binder_wrote_after_the_one_before_failed() -> None:
    async with one_pod() as writer:
        writer.refuse_patches()
        assert await writer.write("1") == ""
        await writer.write_elsewhere("newer")
        assert await writer.write("2", after="1") == "newer"


@pytest.mark.asyncio
async def test_one_that_follows_one_that_came_too_late_is_written() -> None:
    """1 is written, then another binder's; 2 is out of date; 3 is newer than all."""
    async with one_pod() as writer:
        await writer.write("1")
        await writer.write_elsewhere("another binder's")
        assert await writer.write("2", after="1") == "another binder's"
        assert await writer.write("3", after="2") == "3"
        await writer.write_elsewhere("newer")
        assert await writer.write("4", after="3") == "newer"


@pytest.mark.asyncio
async def test_what_could_not_be_written_counts_for_the_next_one_only() -> None:
    async with one_pod() as writer:
        await writer.write("old")
        writer.refuse_patches()
        await writer.write("1")
        await writer.write("2")
        await writer.write_elsewhere("old")
        assert await writer.write("3", after="1") == "old"
        assert await writer.write("3", after="2") == "old"
