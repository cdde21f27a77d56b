"""The mark of a clean stop is left by a term that was asked to end, and by no other."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from services.snapshot.dispatch.term_end import TermEnd
from shared.store.schema import decode_entry
from testing.simulation.drawing import draw
from testing.simulation.processes import Injected, Process
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World

LEASE, MARK = "flotilla-snapshot", "flotilla.io/settled"


def fail_in_core(process: Process) -> None:
    process.inject_fault()


def fail_in_beat(process: Process) -> None:
    """Outside the core, where it beats."""

    def show() -> None:
        raise Injected("beat")

    process.shell._tell_absorbed = show


def stop(process: Process) -> None:
    process.stop()


@pytest.mark.parametrize(("end", "marked"), [(stop, True), (fail_in_core, False), (fail_in_beat, False)])
def test_only_a_term_that_was_asked_to_end_leaves_the_mark(end: Callable[[Process], None], marked: bool) -> None:
    async def run() -> None:
        world = World(draw(1, scene="plain", mishaps=frozenset(), round_size=3, seconds=30.0))
        playing = asyncio.create_task(world.run())
        await asyncio.sleep(5.0)
        snapshot = world.processes["snapshot"]
        end(snapshot)
        async with asyncio.timeout(8.0):
            while snapshot.running:
                await asyncio.sleep(0.01)
        (lease,) = (each for each in world.server.leases.values() if each["metadata"]["name"] == LEASE)
        assert lease["spec"]["holderIdentity"] == "", "it is given back in any case"
        assert (MARK in lease["metadata"].get("annotations", {})) is marked
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)

    run_on_virtual_time(run)


def test_a_term_that_is_settled_leaves_word_of_the_pods_that_are_bound_and_not_shown() -> None:
    """Its successor takes over these entries and no others."""

    async def run() -> None:
        world = World(draw(1, scene="plain", mishaps=frozenset(), round_size=3, seconds=30.0))
        playing = asyncio.create_task(world.run())
        await asyncio.sleep(5.0)
        snapshot = world.processes["snapshot"]
        async with asyncio.timeout(20.0):
            while not snapshot.core.ledger:
                await asyncio.sleep(0.001)
            world.processes["watcher"].pause()  # so that the watch shows none of them
            while not any(entry.bound for entry in snapshot.core.ledger.values()):
                await asyncio.sleep(0.001)
        snapshot.stop()
        async with asyncio.timeout(8.0):
            while snapshot.running:
                await asyncio.sleep(0.01)
        left = [decode_entry(each) for each in world.redis.execute(("HVALS", "flotilla:ledger"))]
        assert left
        assert all(entry.bound for entry in left)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)

    run_on_virtual_time(run)


def test_a_term_whose_last_write_fails_leaves_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = TermEnd.run

    async def settle_slowly(settling: TermEnd) -> None:
        await asyncio.sleep(0.1)
        await settle(settling)

    async def fail() -> None:
        raise Injected("write")

    def stop_and_fail(process: Process) -> None:
        process.shell._writer.run = fail
        process.stop()

    monkeypatch.setattr(TermEnd, "run", settle_slowly)
    test_only_a_term_that_was_asked_to_end_leaves_the_mark(stop_and_fail, marked=False)


def test_a_term_whose_lease_was_lost_does_not_say_that_it_is_settled() -> None:
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    async def run(lose: bool) -> bool:
        lines.clear()
        world = World(draw(1, scene="plain", mishaps=frozenset(), round_size=3, seconds=60.0))
        playing = asyncio.create_task(world.run())
        await asyncio.sleep(5.0)
        snapshot = world.processes["snapshot"]
        snapshot.shell._context.log.addHandler(Lines())
        if lose:
            lease = world.server.leases[LEASE]
            world.server.version += 1
            lease["spec"] |= {"holderIdentity": "another", "leaseTransitions": lease["spec"]["leaseTransitions"] + 1}
            lease["metadata"]["resourceVersion"] = str(world.server.version)
        else:
            snapshot.stop()
        async with asyncio.timeout(30.0):
            while snapshot.running:
                await asyncio.sleep(0.01)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        return any("is settled" in line for line in lines)

    assert run_on_virtual_time(lambda: run(False))
    assert not run_on_virtual_time(lambda: run(True))
