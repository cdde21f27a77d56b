"""Events as an API server gets them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from shared.kube.client import KubeClient
from shared.kube.event_series import Limits
from shared.kube.event_writer import EventMetrics, EventWriter
from shared.kube.events_and_conditions import PodEvent, PodRef, event_path, series_path
from shared.telemetry.logs import Repeated
from shared.telemetry.metrics import Metrics
from testing.simulator.service import Simulator
from tests.kube.support import PATIENCE, api_server, client_of, until

pytestmark = pytest.mark.asyncio

EPOCH = 1_700_000_000.0
EVENTS = "/events"
QUICK = Limits(first_rewrite=0.05)


class Desk:
    def __init__(self, server: Simulator, client: KubeClient, writer: EventWriter, metrics: Metrics) -> None:
        self.server = server
        self.client = client
        self.writer = writer
        self.metrics = metrics
        self.yields = False
        self._happened = 0

    def happens(self, pod: str = "p", reason: str = "FailedScheduling") -> PodEvent:
        self._happened += 1
        ref = PodRef("default", pod, f"uid-{pod}")
        at = EPOCH + self._happened
        event = PodEvent(ref, "Warning", reason, "Scheduling", f"note {self._happened}", "s", "s-1", at)
        self.writer.record(event)
        return event

    async def events(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = msgspec.json.decode(await self.client.get(event_path("default")) or b"{}")[
            "items"
        ]
        return items

    async def number(self) -> int:
        return len(await self.events())

    async def count(self, event: PodEvent) -> int:
        """As the server has it, 0 if there is no such Event."""
        raw = await self.client.get(series_path(event))
        return 0 if raw is None else msgspec.json.decode(raw).get("series", {}).get("count", 1)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def desk(limits: Limits | None = QUICK) -> AsyncIterator[Desk]:
    async with api_server() as server, client_of(server) as client:
        metrics = Metrics()
        made: list[Desk] = []
        writer = EventWriter(
            client,
            EventMetrics(metrics),
            Repeated(logging.getLogger("flotilla.test")),
            yields=lambda: made[0].yields,
            limits=limits,
        )
        made.append(Desk(server, client, writer, metrics))
        try:
            yield made[0]
        finally:
            await writer.close()


async def soon(number: Callable[[], Awaitable[int]], wanted: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while await number() != wanted:
            await asyncio.sleep(0.01)


async def test_a_pod_that_fails_thirty_times_has_one_event() -> None:
    async with desk() as d:
        first = d.happens()
        await until(lambda: d.writer.idle)
        for _ in range(29):
            d.happens()
        await soon(lambda: d.count(first), 30)
        (event,) = await d.events()
        assert event["note"] == "note 1"
        assert event["series"] == {"count": 30, "lastObservedTime": "2023-11-14T22:13:50.000000Z"}
        assert d.metric("flotilla_events_counted_total") == 29


async def test_an_event_that_the_server_forgot_is_written_again() -> None:
    async with desk() as d:
        first = d.happens()
        await until(lambda: d.writer.idle)
        assert (await d.client.try_call("DELETE", series_path(first))).ok
        d.happens()
        await soon(lambda: d.count(first), 2)


async def test_a_lost_answer_makes_no_second_event() -> None:
    async with desk() as d:
        d.server.faults.drop("POST", EVENTS, after=True)
        first = d.happens()
        await until(lambda: d.writer.idle)
        d.happens()
        await soon(lambda: d.count(first), 2)
        assert await d.number() == 1


async def test_a_refused_event_is_counted_and_delays_nothing() -> None:
    async with desk() as d:
        d.server.faults.fail("POST", EVENTS, 403, reason="Forbidden")
        d.happens("p")
        d.happens("q")
        await until(lambda: d.writer.idle)
        assert d.metric("flotilla_events_failed_total") == 1
        assert await d.number() == 1


async def test_few_events_are_written_while_it_yields() -> None:
    async with desk(Limits(yielding_rate=0.001)) as d:
        d.yields = True
        for i in range(10):
            d.happens(f"p{i}")
        await soon(d.number, 1)
        assert not d.writer.idle
        d.yields = False
        await soon(d.number, 10)
        await until(lambda: d.writer.idle)
        assert d.metric("flotilla_events_waiting") == 0


async def test_dropped_events_are_counted() -> None:
    async with desk(Limits(most_waiting=5)) as d:
        for i in range(8):
            d.happens(f"p{i}")
        await soon(d.number, 5)
        assert d.metric("flotilla_events_dropped_total", reason="crowded") == 3
        for i in range(30):
            d.happens("q", f"Reason{i}")
            await until(lambda: d.writer.idle)
        assert d.metric("flotilla_events_dropped_total", reason="spam") == 5
