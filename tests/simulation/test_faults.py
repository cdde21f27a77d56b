"""A core that raises half-way through a change ends its term, and the next term puts everything right."""

import asyncio

import pytest

from testing.simulation.drawing import PROCESSES, draw
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World


@pytest.mark.parametrize("name", PROCESSES)
def test_a_core_that_fails_ends_its_term_and_nothing_is_lost(name: str) -> None:
    async def run() -> None:
        world = World(draw(1, scene="plain", mishaps=frozenset(), round_size=3, seconds=20.0))
        playing = asyncio.create_task(world.run())
        for _ in range(3):
            await asyncio.sleep(5.0)
            failing = world.processes[name]
            failing.inject_fault()
            async with asyncio.timeout(5.0):
                while failing.running:
                    await asyncio.sleep(0.01)
            assert failing.shell._context.fault.found
        await playing
        assert world.around.failures == []
        assert sum(f"{name} starts again" in line for line in world.log) == 3

    run_on_virtual_time(run)
