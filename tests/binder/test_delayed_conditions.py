"""A binder writes conditions of failed bindings rarely, the latest one in the end, and nothing that is out of date."""

import asyncio
from collections.abc import Awaitable, Callable

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

POD = PodRef("default", "p", "uid-p")


def failed(message: str, reason: str = "Unschedulable", nominated: str | None = "") -> StatusWrite:
    return StatusWrite(POD, PodScheduled(reason, message, 1.0), nominated)


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

    def fail(self, message: str, reason: str = "Unschedulable") -> None:
        self._put(self.delayed.write_now(failed(message, reason)))


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


@pytest.mark.asyncio
@pytest.mark.parametrize(("shown", "left"), [("1", "2"), ("another writer's", "another writer's")])
async def test_it_is_written_only_if_the_pod_shows_what_was_written_before(shown: str, left: str) -> None:
    simulator = Simulator(SimulatorOptions(kubelet=False))
    client = await KubeClient.open(ApiSettings(server=await simulator.start()))
    writer = StatusWriter(client, BinderMetrics(Metrics()), logger("binder"))
    try:
        simulator.store_raw("pods", raw_pod("p"))
        writer.put(StatusWrite(POD, failed(shown).condition))
        await until(lambda: writer.idle)
        writer.put(StatusWrite(POD, failed("2").condition, after=failed("1").condition))
        await until(lambda: writer.idle)
        (condition,) = simulator.stored("pods", "p", "default")["status"]["conditions"]
        assert condition["message"] == left
    finally:
        await writer.close()
        await client.close()
        await simulator.stop()
