"""A binder may hold an attempt that another one has carried out since."""

import asyncio

from shared.messages.binding import BindingOutcome, BindingOutcomes, Withdraw
from shared.messages.codec import Message
from testing.simulation.drawing import PROCESSES
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World


def test_the_snapshot_withdraws_a_stale_attempt_that_is_not_in_its_ledger() -> None:
    heard: list[Message] = []

    async def run() -> None:
        world = World(Schedule(1, "plain", 4, 0.0, ()))
        world.furnish()
        for name in PROCESSES:
            world.start(name)
        await asyncio.sleep(3.0)
        world.network.overhears.append(heard.append)
        snapshot, binder = world.processes["snapshot"].core, world.processes["b1"].core
        stale = BindingOutcome("u1", 7, "it has changed", version="1", found="2")
        outcomes = BindingOutcomes("b1", snapshot.epoch, 1, [stale], binder.incarnation)
        world.network.post("b1", "snapshot.bound", outcomes)
        await asyncio.sleep(0.1)
        await world.end()

    run_on_virtual_time(run)
    withdrawn = [(each.uid, each.attempt) for each in heard if isinstance(each, Withdraw)]
    assert withdrawn == [("u1", 7)]
