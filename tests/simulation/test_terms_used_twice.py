"""A Lease is deleted while what else remembers its term is out of reach: the next term must not stand still."""

import asyncio

from testing.simulation.drawing import PROCESSES
from testing.simulation.mishaps import PREFIX
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World

PODS = 3
TIME_TO_BIND = 120.0


def a_world() -> World:
    world = World(Schedule(1, "plain", 3, 0.0, ()))
    world.furnish()
    for name in PROCESSES:
        world.start(name)
    return world


async def left_pending(world: World) -> int:
    """How many pods are not bound in the end."""
    for _ in range(PODS):
        world.create()
    async with asyncio.timeout(TIME_TO_BIND + 1.0):
        for _ in range(int(TIME_TO_BIND)):
            await asyncio.sleep(1.0)
            if not world.pending():
                break
    left = len(world.pending())
    await world.end()
    return left


async def restart(world: World, service: str) -> None:
    for name, process in world.processes.items():
        if process.service == service:
            process.kill()
            world.start(name)


def test_a_cycle_that_the_snapshot_has_not_confirmed_leaves_the_queue_to_the_next_one_of_its_term() -> None:
    async def run() -> int:
        world = a_world()
        snapshots = {name for name, process in world.processes.items() if process.service == "snapshot"}
        world.network.cut_off |= snapshots
        for _ in range(PODS):
            world.create()
        await asyncio.sleep(8.0)
        del world.server.leases[f"{PREFIX}-cycle"]
        await restart(world, "cycle")
        await asyncio.sleep(10.0)
        world.network.cut_off -= snapshots
        keeping = asyncio.create_task(world.keep())
        left = await left_pending(world)
        keeping.cancel()
        return left

    assert run_on_virtual_time(run) == 0


def test_a_queue_that_began_without_redis_learns_of_later_terms_once_redis_answers() -> None:
    async def run() -> int:
        world = a_world()
        keeping = asyncio.create_task(world.keep())
        await asyncio.sleep(8.0)
        for _ in range(3):
            world.leading("queue").kill()
            await asyncio.sleep(3.0)
        world.redis.down = True
        for process in world.processes.values():
            if process.service == "queue":
                process.kill()
        del world.server.leases[f"{PREFIX}-queue"]
        await asyncio.sleep(40.0)
        world.redis.down = False
        left = await left_pending(world)
        keeping.cancel()
        return left

    assert run_on_virtual_time(run) == 0
