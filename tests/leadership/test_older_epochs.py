"""What an older leader still says is refused by those who know of a newer one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from services.binder.events import Problem
from services.cycle.queue_client import QueueClient
from shared.bus import Envelope
from shared.errors import ProtocolError
from shared.messages.binding import Withdraw
from shared.messages.queue import Batch, Outcome, Outcomes, Received, Take, Verdict
from shared.runtime import Health
from shared.runtime.context import Watchdog
from testing.builders import pod
from testing.inprocess.batches import pods_in, queued_pod
from tests.binder.support import Script
from tests.bus.support import a_bus, until
from tests.servers import nats_server


@dataclass
class Queues:
    """Both of them answer, the older one first. `newest`: what the newer one is; until that is known, there is none."""

    newest: int = 0
    older: int = 4
    taken: list[str] = field(default_factory=list)
    refused: list[ProtocolError] = field(default_factory=list)
    received: set[int] = field(default_factory=set)

    def on_take(self, take: Take, envelope: Envelope) -> None:
        epoch = self.newest if take.number == 1 else self.older
        pods = [queued_pod(pod(f"of-{epoch}-{take.number}").build())]
        envelope.respond(Batch(take.epoch, take.number, pods, 0, epoch))

    def on_outcomes(self, outcomes: Outcomes, envelope: Envelope) -> None:
        self.received.add(outcomes.number)
        envelope.respond(Received(outcomes.epoch, outcomes.number, self.older))


@asynccontextmanager
async def a_feed(queues: Queues) -> AsyncIterator[QueueClient]:
    async with nats_server() as nats, a_bus(nats) as bus, a_bus(nats) as theirs:
        await theirs.subscribe("queue.take", Take, queues.on_take)
        await theirs.subscribe("queue.outcomes", Outcomes, queues.on_outcomes)

        def take(batch: Batch) -> None:
            queues.taken += [each.name for each in pods_in(batch)]

        feed = QueueClient(
            bus,
            Watchdog(Health(), lambda: 0.0, "queue", ""),
            1,
            lambda: 0.0,
            lambda: 0,
            lambda: 16,
            take,
            queues.refused.append,
        )
        working = [asyncio.create_task(feed.pull()), asyncio.create_task(feed.report())]
        try:
            yield feed
        finally:
            for task in working:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


@pytest.mark.asyncio
async def test_the_cycle_refuses_messages_of_an_older_queue() -> None:
    queues = Queues(newest=5)
    async with a_feed(queues) as feed:
        await until(lambda: len(queues.refused) >= 2)
        assert queues.taken == ["of-5-1"]
        assert "Batch 2 of the queue of epoch 4, now 5" in str(queues.refused[0])
        feed.tell(Outcome("x", Verdict.DECIDED, "n"))
        await until(lambda: any("Received" in str(each) for each in queues.refused))
        queues.older = 6
        await asyncio.wait_for(feed.all_reported(), 5.0)
        await until(lambda: len(queues.taken) > 1)
        assert queues.taken[1].startswith("of-6-"), "the same is asked again until the newest has answered"


def test_a_binder_refuses_withdrawals_of_an_older_snapshot() -> None:
    script = Script()
    script.epoch = 7
    script.order("p", attempt=3)
    told = script.handle(Withdraw("p", 3, "", "the pod is deleted", epoch=6))
    assert [str(each.error) for each in told if isinstance(each, Problem)] == ["a withdrawal of epoch 6, now 7"]
    assert not [each for each in script.handle(Withdraw("p", 3, "", "x", epoch=7)) if isinstance(each, Problem)]


def test_a_withdrawal_without_an_epoch_is_refused() -> None:
    """Also by a binder that has seen no order yet: it would refuse the order when it comes."""
    script = Script()
    for epoch in (0, 7):
        script.epoch = epoch
        told = script.handle(Withdraw("p", 3, "DefaultPreemption", "preempted"))
        assert [str(each.error) for each in told if isinstance(each, Problem)] == [
            f"a withdrawal of epoch 0, now {epoch}"
        ]
        script.epoch = 7
        script.order("p", attempt=3)
