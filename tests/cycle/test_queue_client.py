"""What the cycle asks the queue for, and when it reports outcomes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from services.cycle.queue_client import MAX_BYTES, MAX_HINTS, MAX_HINTS_IN_A_MESSAGE, MAX_MESSAGE, QueueClient
from shared.bus import Bus, Envelope
from shared.messages.queue import MAX_HINT, Batch, Hint, Outcome, Outcomes, Received, Take, Verdict
from shared.runtime import Health
from shared.runtime.context import Watchdog
from tests.bus.support import a_bus, until
from tests.servers import nats_server

pytestmark = pytest.mark.asyncio


def client(bus: Bus, take: Callable[[Batch], None] = lambda batch: None) -> QueueClient:
    watchdog = Watchdog(Health(), lambda: 0.0, "queue", "")
    clock = asyncio.get_running_loop().time
    return QueueClient(bus, watchdog, 1, clock, lambda: 0, lambda: 16, take, lambda refused: None)


class PlayedQueue:
    """Answers a Take when `answer` is called. `hears`: it handles the outcomes in a Take."""

    def __init__(self, bus: Bus, *, hears: bool) -> None:
        self.takes: list[tuple[Take, Envelope]] = []
        self.reports: list[str] = []
        self._bus = bus
        self.hears = hears

    async def listen(self) -> None:
        await self._bus.subscribe("queue.take", Take, lambda take, envelope: self.takes.append((take, envelope)))
        await self._bus.subscribe("queue.outcomes", Outcomes, self._on_outcomes)

    def answer(self) -> None:
        take, envelope = self.takes[-1]
        envelope.respond(Batch(take.epoch, take.number, [], hears_outcomes=self.hears))

    def in_takes(self) -> list[str]:
        return [outcome.uid for take, _ in self.takes for outcome in take.outcomes]

    def _on_outcomes(self, outcomes: Outcomes, envelope: Envelope) -> None:
        self.reports += [outcome.uid for outcome in outcomes.outcomes]
        envelope.respond(Received(outcomes.epoch, outcomes.number))


@asynccontextmanager
async def played(*, hears: bool) -> AsyncIterator[tuple[QueueClient, PlayedQueue]]:
    """A client that pulls from a queue of this release, or the last one. Its first Take is answered."""
    async with nats_server() as nats, a_bus(nats) as bus, a_bus(nats) as theirs:
        feed, queue = client(bus), PlayedQueue(theirs, hears=hears)
        await queue.listen()
        running = [asyncio.create_task(feed.pull()), asyncio.create_task(feed.report())]
        await until(lambda: len(queue.takes) == 1)
        queue.answer()
        await until(lambda: len(queue.takes) == 2)
        yield feed, queue
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_outcomes_of_decided_pods_go_with_the_next_take() -> None:
    async with played(hears=True) as (feed, queue):
        feed.tell(Outcome("decided", Verdict.DECIDED))
        queue.answer()
        await until(lambda: len(queue.takes) == 3)
        await feed.all_reported()
        assert queue.in_takes() == ["decided"]
        assert queue.reports == []


async def test_without_a_take_outcomes_of_decided_pods_are_reported_soon() -> None:
    async with played(hears=True) as (feed, queue):
        feed.tell(Outcome("decided", Verdict.DECIDED))
        await until(lambda: queue.reports == ["decided"])
        queue.answer()
        await until(lambda: len(queue.takes) == 3)
        assert queue.in_takes() == []


async def test_other_outcomes_wait_for_nothing_and_take_those_that_wait_along() -> None:
    async with played(hears=True) as (feed, queue):
        feed.tell(Outcome("decided", Verdict.DECIDED))
        feed.tell(Outcome("rejected", Verdict.UNSCHEDULABLE))
        await feed.all_reported()
        assert queue.reports == ["decided", "rejected"]


async def test_a_queue_of_the_last_release_gets_every_outcome_in_a_report() -> None:
    async with played(hears=False) as (feed, queue):
        feed.tell(Outcome("decided", Verdict.DECIDED))
        await feed.all_reported()
        assert queue.reports == ["decided"]
        assert queue.in_takes() == []


async def test_outcomes_in_a_take_are_reported_if_a_queue_of_the_last_release_answers_it() -> None:
    """The queue was replaced while an upgrade was undone."""
    async with played(hears=True) as (feed, queue):
        feed.tell(Outcome("decided", Verdict.DECIDED))
        queue.answer()
        await until(lambda: queue.in_takes() == ["decided"])
        queue.hears = False
        queue.answer()
        await until(lambda: queue.reports == ["decided"])


async def test_hints_follow_outcomes_and_do_not_keep_a_cycle_from_ending() -> None:
    reports: list[Outcomes] = []

    def on_outcomes(outcomes: Outcomes, envelope: Envelope) -> None:
        reports.append(outcomes)
        envelope.respond(Received(outcomes.epoch, outcomes.number))

    async with nats_server() as nats, a_bus(nats) as bus, a_bus(nats) as theirs:
        await theirs.subscribe("queue.outcomes", Outcomes, on_outcomes)
        feed = client(bus)
        for i in range(MAX_HINTS + 1):
            feed.hint(Hint(f"u{i}", "x" * MAX_HINT))
        feed.tell(Outcome("u", Verdict.UNSCHEDULABLE, message="x" * MAX_MESSAGE))
        reporting = asyncio.create_task(feed.report())
        await feed.all_reported()
        assert reports[0].outcomes
        await until(lambda: sum(len(each.hints) for each in reports) == MAX_HINTS)
        reporting.cancel()
        with suppress(asyncio.CancelledError):
            await reporting
    told = [hint.uid for report in reports for hint in report.hints]
    assert told == [f"u{i}" for i in range(1, MAX_HINTS + 1)]
    assert max(len(each.hints) for each in reports) == MAX_HINTS_IN_A_MESSAGE


async def test_long_messages_go_in_several_reports_and_very_long_ones_are_cut() -> None:
    reports: list[list[Outcome]] = []

    def on_outcomes(outcomes: Outcomes, envelope: Envelope) -> None:
        reports.append(outcomes.outcomes)
        envelope.respond(Received(outcomes.epoch, outcomes.number))

    async with nats_server() as nats, a_bus(nats) as bus, a_bus(nats) as theirs:
        await theirs.subscribe("queue.outcomes", Outcomes, on_outcomes)
        feed = client(bus)
        reporting = asyncio.create_task(feed.report())
        for i in range(200):
            feed.tell(Outcome(f"u{i}", Verdict.UNSCHEDULABLE, message="\N{EURO SIGN}" * (1 << 20)))
        await until(lambda: sum(map(len, reports)) == 200)
        await feed.all_reported()
        reporting.cancel()
        with suppress(asyncio.CancelledError):
            await reporting
    told = [outcome for report in reports for outcome in report]
    assert [outcome.uid for outcome in told] == [f"u{i}" for i in range(200)]
    assert {(len(outcome.message), outcome.message[-5:]) for outcome in told} == {(MAX_MESSAGE, "\N{EURO SIGN} ...")}
    assert 1 < max(map(len, reports)) <= MAX_BYTES // MAX_MESSAGE


async def test_a_report_that_was_cancelled_is_continued_under_its_number() -> None:
    reports: list[tuple[int, list[str], Envelope]] = []

    def on_outcomes(outcomes: Outcomes, envelope: Envelope) -> None:
        reports.append((outcomes.number, [each.uid for each in outcomes.outcomes], envelope))

    async with nats_server() as nats, a_bus(nats) as bus, a_bus(nats) as theirs:
        await theirs.subscribe("queue.outcomes", Outcomes, on_outcomes)
        feed = client(bus)
        feed.tell(Outcome("a", Verdict.UNSCHEDULABLE))
        reporting = asyncio.create_task(feed.report())
        await until(lambda: len(reports) == 1)
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
        feed.tell(Outcome("b", Verdict.UNSCHEDULABLE))
        finishing = asyncio.create_task(feed.all_reported())
        reporting = asyncio.create_task(feed.report())
        for count in (2, 3):
            await until(lambda count=count: len(reports) == count)  # type: ignore[misc]
            reports[-1][2].respond(Received(1, reports[-1][0]))
        await finishing
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
    assert [(number, uids) for number, uids, _ in reports] == [(1, ["a"]), (1, ["a"]), (2, ["b"])]
