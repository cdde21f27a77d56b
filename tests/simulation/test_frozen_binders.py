"""Binders that stand still for ten minutes, with an eviction under way."""

import asyncio

import pytest

from testing.builders import node, pod
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World

FROZEN = 600.0
BINDERS = ("b1", "b2")


@pytest.mark.parametrize("gone", [True, False])
def test_a_binder_that_goes_on_after_ten_minutes_evicts_no_pod_for_a_preemptor_that_is_gone(gone: bool) -> None:
    async def run() -> None:
        world = await a_world_that_is_full()
        victims = {each.uid for each in world.server.pods.values()}
        for name in BINDERS:
            world.processes[name].pause()
        world.server.put_pod(pod("vip").uid("vip").priority(1000).request(cpu="1").build())
        while not world.leading("snapshot").core.cluster.nominator:
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        if gone:
            world.server.delete_pod("vip")
        await asyncio.sleep(FROZEN)
        for name in BINDERS:
            world.processes[name].resume()
        await asyncio.sleep(60.0)
        left = victims & world.server.pods.keys()
        assert len(left) == (len(victims) if gone else len(victims) - 1)
        assert gone or world.server.pods["vip"].spec.node_name
        assert world.auditor.broken == []
        await world.end()

    run_on_virtual_time(run)


async def a_world_that_is_full() -> World:
    world = World(Schedule(1, "plain", 6, 0.0, ()))
    for number in range(3):
        world.server.put_node(node(f"n{number}").capacity(cpu=1, memory="8Gi").build())
        world.server.put_pod(pod(f"low{number}").uid(f"low{number}").request(cpu="1").build())
    for name in ("watcher", "queue", "snapshot", "cycle", "w1", "w2", *BINDERS):
        world.start(name)
    while world.pending():
        await asyncio.sleep(0.5)
    return world
