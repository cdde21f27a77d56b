"""What the snapshot writes to Redis at once, and what waits for the next decisions."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import msgspec
import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import AcknowledgeBinder, DispatchOrders, Effect
from services.snapshot.store.effect_writer import MAX_BATCH_BYTES, UNMEASURED, EffectWriter, _can_wait
from services.snapshot.store.terms import Terms
from shared.cluster.devices import ClaimAllocation, DeviceDecision
from shared.messages.queue import ForgottenPod
from shared.messages.state import Committed, Delta
from shared.model.devices import AllocatedConfiguration, AllocationResult, DeviceAllocation, OpaqueConfiguration
from shared.runtime import Health
from shared.runtime.leadership import Leadership
from shared.store.link import RedisLink
from shared.store.schema import Persist
from shared.store.term import open_term
from tests.bus.support import until
from tests.rounds.support import SnapshotLog, commit, small_node, small_pod
from tests.servers import redis_server
from tests.store.support import LOG, PIPELINE, PREFIX, linked

A, P = small_node("a"), small_pod("p")


class RecordedTerms(Terms):
    """`written`: what was written together. `hangs`: as if Redis did not answer."""

    hangs = False

    def __init__(self, link: RedisLink) -> None:
        lead = cast(Leadership, None)  # no other term begins here
        super().__init__(lead, link, PREFIX, Health(), LOG)
        self.written: list[list[Persist]] = []

    async def write(self, persists: Sequence[Persist]) -> bool:
        self.written.append(list(persists))
        if self.hangs:
            await asyncio.Event().wait()
        return await super().write(persists)


@asynccontextmanager
async def a_writer() -> AsyncIterator[tuple[EffectWriter, RecordedTerms, list[Effect]]]:
    """Of a term that has begun, with what it carries out."""
    carried_out: list[Effect] = []
    core, loop = SnapshotCore(1), asyncio.get_running_loop()
    async with redis_server() as redis, linked(redis) as link:
        term = RecordedTerms(link)
        term.epoch = core.epoch
        await open_term(link, PREFIX, core.epoch, PIPELINE)
        assert await term.begin(core, 1)
        yield EffectWriter(core, term, 1, carried_out.append, lambda: None, loop.time), term, carried_out


@asynccontextmanager
async def running(writer: EffectWriter) -> AsyncIterator[None]:
    task = asyncio.create_task(writer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def written(*added: Sequence[Effect]) -> tuple[list[list[Persist]], list[Effect]]:
    """What is written together, and what is then carried out, if these are added one after the other."""
    async with a_writer() as (writer, term, carried_out), running(writer):
        for effects in added:
            for effect in effects:
                writer.add(effect)
            await asyncio.sleep(0)
        await until(lambda: len(carried_out) == 1)
        assert not writer.waiting
    return term.written, carried_out


ENDS = Persist(settled=(P.uid,))
ACKNOWLEDGED = AcknowledgeBinder(1, 1, lambda received: None)


def test_ends_of_attempts_are_written_with_the_next_decisions() -> None:
    decisions = Persist(answer=Committed(1, 1, 1, []))
    together, carried_out = asyncio.run(written([ENDS, ACKNOWLEDGED], [], [decisions]))
    assert together == [[ENDS, decisions]]
    assert carried_out == [ACKNOWLEDGED]


def test_without_further_decisions_ends_of_attempts_are_written_and_acknowledged_soon() -> None:
    assert asyncio.run(written([ENDS, ACKNOWLEDGED])) == ([[ENDS]], [ACKNOWLEDGED])


@pytest.mark.asyncio
async def test_what_was_under_way_when_the_writer_was_cancelled_is_written_by_the_next_one() -> None:
    """A term that ends still writes what it has accepted, whether or not anything more comes."""
    async with a_writer() as (writer, term, carried_out):
        term.hangs = True
        async with running(writer):
            writer.add(Persist())
            writer.add(ACKNOWLEDGED)
            await until(lambda: bool(term.written))
        assert writer.waiting == 2
        term.hangs = False
        async with running(writer):
            await until(lambda: carried_out == [ACKNOWLEDGED])
        assert term.written == [[Persist()]] * 2


def test_only_ends_of_attempts_may_wait() -> None:
    log = SnapshotLog(A)
    log.handle(commit(1, (P, "a", log.core.seq)))
    (assumed,) = log.core.ledger.values()
    assert _can_wait(Persist(settled=(P.uid,)))
    for effect in (
        Persist(),
        Persist(ledger=(assumed,)),
        Persist(ledger=(assumed.hold(),), settled=(P.uid,)),
        Persist(Delta(1, 1, []), settled=(P.uid,)),
        DispatchOrders(((P.uid, 1),)),
        ForgottenPod(P.uid, "no rights"),
    ):
        assert not _can_wait(effect)


def test_no_more_is_written_together_than_redis_takes() -> None:
    """1. Redis is away, and many decisions about large devices wait. 2. They are written in several commands."""
    log = SnapshotLog(A)
    log.handle(commit(1, (P, "a", log.core.seq)))
    (assumed,) = log.core.ledger.values()
    opaque = OpaqueConfiguration(driver="d", parameters={"text": "x" * (MAX_BATCH_BYTES // 10)})
    allocation = AllocationResult(devices=DeviceAllocation(config=[AllocatedConfiguration(opaque=opaque)]))
    devices = DeviceDecision([ClaimAllocation("default/c", "c", allocation)])
    assignment = msgspec.structs.replace(assumed.assignment, devices=devices)
    large = Persist(ledger=(msgspec.structs.replace(assumed, assignment=assignment),))
    waiting: list[Effect] = [*[large] * (UNMEASURED + 1), ACKNOWLEDGED]
    together, carried_out = asyncio.run(written(waiting))
    assert [len(each) for each in together] == [9, 8]
    assert carried_out == [ACKNOWLEDGED]
