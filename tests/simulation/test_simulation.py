"""In every run: no node over its capacity, no pod bound twice, none forgotten, nothing left over in the end.

Each run is named by its seed; `flotilla simulation --first SEED --count 1` plays the same scenes with all mishaps.
"""

import asyncio

import pytest

from testing.builders import node
from testing.simulation import running
from testing.simulation.drawing import LEADING, NODES, PROCESSES, draw
from testing.simulation.running import WORLDS, play
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.trees import TreeWorld
from testing.simulation.world import World

SOON = 60.0
MESSAGES = frozenset({"messages"})


def hold(seed: int, scene: str, *, mishaps: frozenset[str] | None = None, round_size: int = 0) -> None:
    """Plays what is drawn for the seed."""
    schedule = draw(seed, scene=scene, mishaps=mishaps, round_size=round_size)
    result = play(schedule)
    assert result.held, f"{result.wrong}\n{schedule}\n" + "\n".join(result.log)


@pytest.mark.parametrize(
    ("seed", "scene"),
    [
        (1, "plain"),
        (2, "wishes"),
        (3, "gangs"),
        (4, "preemption"),
        (5, "waits"),
        (6, "devices"),
        (1, "gangs-trees"),
    ],
)
def test_everything_happens(seed: int, scene: str) -> None:
    hold(seed, scene)


@pytest.mark.parametrize("scene", ["plain", "preemption", "devices"])
def test_only_messages_go_astray(scene: str) -> None:
    hold(11, scene, mishaps=MESSAGES)


@pytest.mark.parametrize(("scene", "seed"), [("gangs-calm", 1), ("preemption-calm", 6), ("devices-calm", 3)])
def test_no_pod_waits_for_time_to_pass_where_nothing_goes_wrong(scene: str, seed: int) -> None:
    hold(seed, scene)


def test_trees_preempt_pods_and_other_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds: list[TreeWorld] = []

    class Observed(TreeWorld):
        def __init__(self, schedule: Schedule) -> None:
            super().__init__(schedule)
            worlds.append(self)

    monkeypatch.setitem(WORLDS, "gangs-trees-calm", Observed)
    hold(3, "gangs-trees-calm")
    (world,) = worlds
    assert {bool(world.root_of(uid)) for uid in world.victims} == {True, False}


def test_the_same_seed_takes_the_same_course() -> None:
    schedule = draw(5, scene="plain", seconds=5.0)
    assert play(schedule).log == play(schedule).log


def test_a_run_that_spins_in_one_step_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing awaits, neither virtual time nor the count of steps would end it."""

    def spins(world: World) -> None:
        while True:
            pass

    monkeypatch.setattr(running, "MAX_SECONDS", 0.5)
    monkeypatch.setattr(World, "furnish", spins)
    assert "more than 0.5 s of CPU" in play(draw(1, scene="plain")).wrong


def test_a_node_that_comes_while_no_snapshot_runs_helps_who_waits() -> None:
    """Workers go on answering by what they know; a verdict from then is no reason to sleep for minutes."""

    async def run() -> None:
        world = await small_world()
        world.processes["snapshot"].kill()
        await asyncio.sleep(0.1)
        world.server.put_node(node("big").capacity(cpu=64, memory="64Gi").build())
        await asyncio.sleep(2.0)
        world.start("snapshot")
        await all_bound(world)

    run_on_virtual_time(run)


def test_pods_are_scheduled_again_after_all_workers_were_lost_during_a_commit() -> None:
    """And the next round was asked for already, about pods of the same class."""

    async def run() -> None:
        world = await small_world()
        world.processes["snapshot"].kill()  # so the commit is out for as long as the workers are away
        world.server.put_node(node("big").capacity(cpu=64, memory="64Gi").build())
        world.start("snapshot")
        while not world.processes["cycle"].core.is_committing:
            await asyncio.sleep(0.0005)
        world.redis.down = True
        for name in ("w1", "w2"):
            world.processes[name].kill()
        await asyncio.sleep(8.0)
        world.redis.down = False
        for name in ("w1", "w2"):
            world.start(name)
        await all_bound(world)

    run_on_virtual_time(run)


def test_a_cycle_whose_lease_was_deleted_goes_on_though_the_snapshot_has_forgotten_the_one_before() -> None:
    """Terms are counted from the date again, so workers have heard of this one or a later one already."""

    async def run() -> None:
        world = await small_world()
        for name in ("cycle", "snapshot"):
            world.processes[name].kill()
        del world.server.leases["flotilla-cycle"]
        world.server.put_node(node("big").capacity(cpu=64, memory="64Gi").build())
        keeper = asyncio.create_task(world.keep())
        try:
            await all_bound(world)
        finally:
            keeper.cancel()

    run_on_virtual_time(run)


@pytest.mark.parametrize("service", LEADING)
def test_a_paused_leader_is_deposed_and_does_no_harm_when_it_goes_on(service: str) -> None:
    """It ends for the Lease that it has lost, which is no fault of its core."""

    async def run() -> None:
        world = await small_world()
        old = world.processes[service]
        world.start(f"{service}-2")
        await asyncio.sleep(3.0)
        old.pause()
        await asyncio.sleep(30.0)
        assert world.leading(service).name == f"{service}-2"
        world.server.put_node(node("big").capacity(cpu=64, memory="64Gi").build())
        old.resume()
        await all_bound(world)
        assert not old.running
        assert world.around.failures == []

    run_on_virtual_time(run)


async def small_world() -> World:
    """Little room, all of it taken, and pods that wait."""
    world = World(Schedule(1, "plain", 4, 0.0, ()))
    for name in NODES:
        world.server.put_node(node(name).capacity(cpu=1, memory="8Gi").build())
    for name in PROCESSES:
        world.start(name)
    await asyncio.sleep(3.0)
    for _ in range(8):
        world.create()
    await asyncio.sleep(8.0)
    assert world.pending()
    return world


async def all_bound(world: World) -> None:
    began = world.now
    while world.pending() and world.now < began + SOON:
        await asyncio.sleep(0.5)
    left = world.pending()
    await world.end()
    assert not left, f"{len(left)} pods are not bound {SOON:g} s later"
