"""Outcomes go to the queue in messages of bounded size, however long their texts are."""

import asyncio
from contextlib import suppress

import pytest

from services.cycle.queue_client import MAX_BYTES, MAX_MESSAGE, QueueClient
from shared.bus import Envelope
from shared.messages.queue import Outcome, Outcomes, Received, Verdict
from shared.runtime import Health
from shared.runtime.context import Watchdog
from tests.bus.support import a_bus, until
from tests.servers import nats_server

pytestmark = pytest.mark.asyncio


async def test_long_messages_go_in_several_reports_and_very_long_ones_are_cut() -> None:
    reports: list[list[Outcome]] = []

    def on_outcomes(outcomes: Outcomes, envelope: Envelope) -> None:
        reports.append(outcomes.outcomes)
        envelope.respond(Received(outcomes.epoch, outcomes.number))

    async with nats_server() as nats, a_bus(nats) as bus, a_bus(nats) as theirs:
        await theirs.subscribe("queue.outcomes", Outcomes, on_outcomes)
        feed = QueueClient(
            bus,
            Watchdog(Health(), lambda: 0.0, "queue", ""),
            1,
            8,
            lambda: 0.0,
            lambda: 0,
            lambda _: None,
            lambda _: None,
        )
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
