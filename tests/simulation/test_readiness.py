"""Who finds its commits unanswered, or hears no snapshot, is not ready and says so."""

import asyncio

import pytest

from testing.builders import node
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World
from tests.simulation.test_simulation import small_world


def reasons(world: World, name: str) -> str:
    return "; ".join(world.processes[name].shell._context.health.reasons())


def test_without_a_snapshot_neither_cycle_nor_workers_are_ready() -> None:
    async def run() -> None:
        world = await small_world()
        world.server.put_node(node("big").capacity(cpu=64, memory="64Gi").build())
        await asyncio.sleep(10.0)
        assert reasons(world, "w1") == ""
        for name, process in world.processes.items():
            if name.startswith("snapshot"):
                process.pause()
        world.create()
        await asyncio.sleep(12.0)
        assert "no snapshot of this pipeline is heard for 1" in reasons(world, "w1")
        cycles = [name for name, each in world.processes.items() if name.startswith("cycle") and each.shell is not None]
        assert any("no snapshot has answered the commit for 1" in reasons(world, name) for name in cycles)
        for process in world.processes.values():
            if process.paused:
                process.resume()
        await world.end()

    run_on_virtual_time(run)


@pytest.mark.parametrize(
    ("silent", "deaf", "reason"),
    [
        ("watcher", "queue", "watcher: nothing has been heard from a watcher for 1"),
        ("watcher", "snapshot", "watcher: nothing has been heard from a watcher for 1"),
        ("queue", "cycle", "queue: no queue has answered for 1"),
    ],
)
def test_a_service_without_its_peer_is_not_ready(silent: str, deaf: str, reason: str) -> None:
    async def run() -> None:
        world = await small_world()
        await asyncio.sleep(10.0)
        assert reasons(world, deaf) == ""
        world.processes[silent].pause()
        await asyncio.sleep(13.0)
        assert reason in reasons(world, deaf)
        world.processes[silent].resume()
        await asyncio.sleep(10.0)
        assert reasons(world, deaf) == ""
        await world.end()

    run_on_virtual_time(run)
