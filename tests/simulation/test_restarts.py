"""What the queue has learned of pods outlives it, as far as Redis remembers."""

import asyncio

from services.queue.scheduling.queued_pod_info import PodState
from testing.builders import node
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World
from tests.simulation.test_simulation import small_world

WAITING = frozenset(PodState) - {PodState.NEW, PodState.DONE}
A_WHILE = 0.5
"""Seconds in which Redis has heard of everything."""


def test_a_queue_that_restarts_goes_on_with_attempts_and_rests_as_they_were() -> None:
    async def run() -> None:
        world = await small_world()
        await tried_again(world)
        before = known(world)
        assert max(attempts for attempts, *_ in before.values()) > 1
        await restart(world)
        after = known(world)
        await world.end()
        assert after.keys() == before.keys()
        for uid, (attempts, rejections, errors, backoff_until) in before.items():
            assert attempts <= after[uid][0] <= attempts + 1, uid
            assert after[uid][1:3] == (rejections, errors), uid
            assert abs(after[uid][3] - backoff_until) <= 1.0, uid

    run_on_virtual_time(run)


def test_pods_begin_again_where_redis_has_lost_what_it_knew() -> None:
    async def run() -> None:
        world = await small_world()
        await tried_again(world)
        await asyncio.sleep(A_WHILE)
        world.redis.flush()
        await restart(world)
        attempts = [entry[0] for entry in known(world).values()]
        await world.end()
        assert attempts
        assert max(attempts) <= 1

    run_on_virtual_time(run)


def test_what_is_known_of_pods_that_are_gone_is_forgotten() -> None:
    async def run() -> None:
        world = await small_world()
        assert kept(world)
        world.processes["queue"].kill()
        for uid in list(world.server.pods):
            world.server.delete_pod(uid)
        world.start("queue")
        await asyncio.sleep(3.0)
        left = kept(world)
        await world.end()
        assert left == {}

    run_on_virtual_time(run)


def kept(world: World) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = world.redis.data.get(b"flotilla:queue", {})
    return dict(found)


async def tried_again(world: World) -> None:
    """Nodes come that have room, that only some pods may use."""
    for turn in range(3):
        world.server.put_node(node(f"big{turn}").capacity(cpu=64, memory="64Gi").taint("reserved").build())
        await asyncio.sleep(4.0)


async def restart(world: World) -> None:
    await asyncio.sleep(A_WHILE)
    world.processes["queue"].kill()
    world.start("queue")
    while not known(world):
        await asyncio.sleep(0.001)


def known(world: World) -> dict[str, tuple[int, int, int, float]]:
    """Of each pod: attempts, rejections, errors in a row, and the virtual second through which it rests."""
    process = world.processes["queue"]
    queue, ahead = process.core, process.clock() - asyncio.get_running_loop().time()
    if queue is None:
        return {}
    entries = [entry for place in PodState for entry in (queue.pods_in(place) if place in WAITING else ())]
    return {
        each.uid: (each.attempts, each.rejections, each.errors, max(each.backoff_until - ahead, 0.0))
        for each in entries
    }
