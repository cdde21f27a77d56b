"""What owners of pods are told: every failure is counted, the last condition stands, and bindings come first."""

import asyncio

import pytest

from services.binder.metrics import BinderMetrics
from services.binder.status_queue import StatusWrite
from services.binder.status_reporter import MAX_WORKERS, StatusWriter
from shared.config.settings import ApiSettings
from shared.kube.client import KubeClient
from shared.kube.events_and_conditions import PodRef, PodScheduled
from shared.messages.binding import Notice, Notices
from shared.telemetry.logs import logger
from shared.telemetry.metrics import Metrics
from testing.simulator.service import Simulator, SimulatorOptions
from tests.binder.world import World, until, world
from tests.kube.support import raw_pod

pytestmark = pytest.mark.asyncio

EVENTS = "/events$"
STATUS = "/status$"


def notice(name: str, message: str, *, event: bool = True, nominated: str | None = None) -> Notice:
    return Notice(
        f"uid-{name}", "default", name, "default-scheduler", "Unschedulable", message, event=event, nominated=nominated
    )


def message_of(w: World, name: str) -> str:
    return str((w.condition_of(name) or {}).get("message", ""))


async def test_a_pod_that_fails_thirty_times_has_one_event_and_the_last_reason() -> None:
    async with world() as w:
        w.pod("p")
        w.bus.post("binder.notices", Notices([notice("p", f"reason {i}") for i in range(30)]))
        event = await w.event("FailedScheduling")
        await until(lambda: message_of(w, "p") == "reason 29")
        assert event["series"]["count"] == 30
        assert event["note"] == "reason 0"
        assert len(await w.events()) == 1
        assert w.metric("flotilla_events_counted_total") == 29
        assert w.metric("flotilla_statuses_joined_total") == 29
        assert w.metric("rest_client_requests_total", method="PATCH", code="200") == 1


async def test_of_one_pod_nothing_overtakes_another_thing() -> None:
    async with world() as w:
        w.pod("p", nominated="n1")
        w.simulator.faults.delay("PATCH", STATUS, 0.2)
        for i in range(3):
            w.bus.post("binder.notices", Notices([notice("p", f"reason {i}", nominated="" if i == 1 else None)]))
        await until(lambda: message_of(w, "p") == "reason 2")
        assert w.nominated("p") == ""


async def test_a_condition_outlasts_a_server_that_is_away_for_a_moment() -> None:
    before = Simulator(SimulatorOptions(kubelet=False))
    url = await before.start()
    await before.stop()
    client = await KubeClient.open(ApiSettings(server=url))
    metrics = BinderMetrics(Metrics())
    writer = StatusWriter(client, metrics, logger("binder"))
    simulator = Simulator(SimulatorOptions(port=int(url.rpartition(":")[2]), kubelet=False))
    try:
        writer.put(StatusWrite(PodRef("default", "p", "uid-p"), PodScheduled("Unschedulable", "no room", 1.0)))
        await asyncio.sleep(0)  # it begins
        await simulator.start()
        simulator.store_raw("pods", raw_pod("p"))
        await until(lambda: writer.idle)
        (condition,) = simulator.stored("pods", "p", "default")["status"]["conditions"]
        assert condition["message"] == "no room"
    finally:
        await writer.close()
        await client.close()
        await simulator.stop()


async def test_failing_events_affect_neither_bindings_nor_conditions() -> None:
    """The server has enough of Events: all others go on."""
    async with world() as w:
        w.simulator.faults.fail("POST", EVENTS, 429, times=10_000, reason="TooManyRequests")
        w.pod("q")
        w.bus.post("binder.notices", Notices([notice("q", "no room")]))
        names = [f"p{i}" for i in range(100)]
        for name in names:
            w.pod(name)
            w.order(name)
        for name in names:
            assert (await w.outcome(name)).reason == ""
        await until(lambda: message_of(w, "q") == "no room")
        assert await w.events() == []
        w.simulator.faults.clear()


async def test_a_condition_is_written_that_comes_as_the_last_worker_ends() -> None:
    """All workers have ended, and the writer does not know yet."""
    simulator = Simulator(SimulatorOptions(kubelet=False))
    client = await KubeClient.open(ApiSettings(server=await simulator.start()))
    writer = StatusWriter(client, BinderMetrics(Metrics()), logger("binder"))
    try:
        simulator.store_raw("pods", raw_pod("p"))
        for _ in range(MAX_WORKERS):
            writer.put(StatusWrite(PodRef("default", "bound", "uid-bound"), PodScheduled("Unschedulable", "-", 1.0)))
            writer.forget("uid-bound")
        await asyncio.sleep(0)  # they find nothing to do
        writer.put(StatusWrite(PodRef("default", "p", "uid-p"), PodScheduled("Unschedulable", "no room", 1.0)))
        await until(lambda: bool(simulator.stored("pods", "p", "default")["status"].get("conditions")))
    finally:
        await writer.close()
        await client.close()
        await simulator.stop()


@pytest.mark.parametrize("delayed", [False, True])
async def test_a_condition_that_cannot_be_encoded_keeps_no_later_one_of_its_pod_from_being_written(
    delayed: bool,
) -> None:
    """A lone surrogate, as in the name of a file that is not UTF-8."""
    simulator = Simulator(SimulatorOptions(kubelet=False))
    client = await KubeClient.open(ApiSettings(server=await simulator.start()))
    writer, pod = StatusWriter(client, BinderMetrics(Metrics()), logger("binder")), PodRef("default", "p", "uid-p")
    try:
        simulator.store_raw("pods", raw_pod("p"))
        unwritten = PodScheduled("Unschedulable", "\udcff", 1.0)
        writer.put(StatusWrite(pod, unwritten))
        await until(lambda: writer.idle)
        later = PodScheduled("Unschedulable", "no room", 1.0)
        writer.put(StatusWrite(pod, later, after=unwritten if delayed else None))
        await until(lambda: bool(simulator.stored("pods", "p", "default")["status"].get("conditions")))
    finally:
        await writer.close()
        await client.close()
        await simulator.stop()
