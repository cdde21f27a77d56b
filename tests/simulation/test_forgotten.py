"""What the queue learns about forgotten pods belongs to the term in which they were forgotten."""

import asyncio
from typing import Any
from unittest.mock import patch

from services.snapshot.store.terms import Terms
from shared.messages.queue import Assumed, Forgotten, ForgottenPod
from testing.simulation.drawing import PROCESSES
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World

TWO_BEATS = 0.5


def test_a_pod_forgotten_while_a_new_term_begins_is_told_of_in_the_old_one() -> None:
    """The queue would take it for news of the new term, before it has heard what that assumes."""

    async def run() -> None:
        world = World(Schedule(1, "plain", 3, 0.0, ()))
        world.furnish()
        for name in PROCESSES:
            world.start(name)
        await asyncio.sleep(10.0)
        shell = world.processes["snapshot"].shell
        told: list[Any] = []
        world.network.overhears.append(told.append)
        begin = Terms.begin

        async def slowly(terms: Terms, *state: Any) -> bool:
            shell._forgotten.append(ForgottenPod("u1", "no rights"))
            await asyncio.sleep(TWO_BEATS)
            return await begin(terms, *state)

        old = shell._core.epoch
        with patch.object(Terms, "begin", slowly):
            world.around.redis.flush()
            await asyncio.sleep(5.0)
        terms = [(type(each), each.epoch) for each in told if isinstance(each, Forgotten | Assumed)]
        new = shell._core.epoch
        assert new > old
        assert terms == [(Forgotten, old), (Assumed, new)]
        await world.end()

    run_on_virtual_time(run)
