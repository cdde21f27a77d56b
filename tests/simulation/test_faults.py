"""A core that raises half-way through a change ends its term, and the next term puts everything right."""

import asyncio

import pytest

from testing.simulation.world import SERVICES, World
from tests.simulation.test_simulation import on_virtual_time

CORES = [name for name, service in SERVICES.items() if service != "watcher"]
"""The simulation's watcher has no core; tests/watcher has the same test of the real one."""


@pytest.mark.parametrize("name", CORES)
def test_a_core_that_fails_ends_its_term_and_nothing_is_lost(name: str) -> None:
    async def run() -> None:
        world = World(1, mishaps=frozenset(), bad_luck=0.0, round_size=3)
        playing = asyncio.create_task(world.run(20.0))
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

    on_virtual_time(run)
