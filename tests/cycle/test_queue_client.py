"""Outcomes and hints go to the queue in messages of bounded size, however long their texts are."""

import asyncio
from contextlib import suppress

import pytest

from services.cycle.queue_client import MAX_BYTES, MAX_HINTS, MAX_HINTS_IN_A_MESSAGE, MAX_MESSAGE, QueueClient
from shared.bus import Bus, Envelope
from shared.messages.queue import MAX_HINT, Hint, Outcome, Outcomes, Received, Verdict
from shared.runtime import Health
from shared.runtime.context import Watchdog
from tests.bus.support import a_bus, until
from tests.servers import nats_server

pytestmark = pytest.mark.asyncio


def a_client(bus: Bus) -> QueueClient:
    watchdog = Watchdog(Health(), lambda: 0.0, "queue", "")
    return QueueClient(bus, watchdog, 1, 8, lambda: 0.0, lambda: 0, lambda _: None, lambda _: None)


async def test_hints_follow_outcomes_and_do_not_keep_a_cycle_from_ending() -> None:
    reports: list[Outcomes] = []

    def on_outcomes(outcomes: Outcomes, envelope: Envelope) -> None:
        reports.append(outcomes)
        envelope.respond(Received(outcomes.epoch, outcomes.number))

    async with nats_server() as nats, a_bus(nats) as bus, a_bus(nats) as theirs:
        await theirs.subscribe("queue.outcomes", Outcomes, on_outcomes)
        feed = a_client(bus)
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
        feed = a_client(bus)
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
