"""Whatever happens: no node over its capacity, no pod bound twice, none forgotten, nothing left over in the end.

Each run is named by its seed; `play(seed, ...)` plays it again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

import pytest

from testing.builders import node
from testing.simulation.loop import VirtualLoop
from testing.simulation.world import NODES, SERVICES, World

EVERYTHING = frozenset({"kill", "twins", "bus", "store", "flush", "stall"})
FAILOVER = frozenset({"kill", "kill snapshot", "long stall", "twins"})
ROUND_SIZES = (1, 3, 16)
SOON = 60.0


def play(seed: int, mishaps: frozenset[str], bad_luck: float, *, round_size: int = 0, wishes: float = 0.0) -> None:
    play_in(partial(World, wishes=wishes), seed, mishaps, bad_luck, round_size=round_size)


def play_in(
    make: Callable[..., World],
    seed: int,
    mishaps: frozenset[str],
    bad_luck: float,
    *,
    round_size: int = 0,
    seconds: float = 40.0,
) -> None:
    async def run() -> None:
        size = round_size or ROUND_SIZES[seed % len(ROUND_SIZES)]
        world = make(seed, mishaps=mishaps, bad_luck=bad_luck, round_size=size)
        try:
            await world.run(seconds)
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}: {wrong}\n" + "\n".join(world.log)) from None

    on_virtual_time(run)


def on_virtual_time(run: Callable[[], Coroutine[None, None, None]]) -> None:
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())
    assert loop.errors == []


@pytest.mark.parametrize("seed", range(2))
def test_only_messages_go_astray(seed: int) -> None:
    play(seed, frozenset(), 0.15)


@pytest.mark.parametrize("seed", [4, 7, 9, 19, 111])
def test_everything_happens(seed: int) -> None:
    play(seed, EVERYTHING, 0.15)


@pytest.mark.parametrize("seed", range(200, 202))
def test_snapshots_come_and_go_and_the_api_server_stands_still(seed: int) -> None:
    play(seed, FAILOVER, 0.05)


@pytest.mark.parametrize(("seed", "round_size"), [(1001, 1), (1002, 256), (1003, 16)])
def test_pods_that_matter_to_others_while_everything_happens(seed: int, round_size: int) -> None:
    """Spreading, affinity, anti-affinity, and pods that go before others; so there are searches, too."""
    play(seed, EVERYTHING, 0.15, round_size=round_size, wishes=0.6)


@pytest.mark.parametrize("seed", [805, 815])
def test_redis_loses_everything_while_snapshots_come_and_go(seed: int) -> None:
    """Also who starts while another waits for what it cannot know has to wait."""
    play(seed, FAILOVER | {"flush"}, 0.1, round_size=16)


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

    on_virtual_time(run)


def test_pods_are_scheduled_again_after_all_workers_were_lost_during_a_commit() -> None:
    """And the next round was asked for already, about pods of the same class."""

    async def run() -> None:
        world = await small_world()
        world.processes["snapshot"].kill()  # so the commit is out for as long as the workers are away
        world.server.put_node(node("big").capacity(cpu=64, memory="64Gi").build())
        world.start("snapshot")
        while not world.processes["cycle"].core._commit:
            await asyncio.sleep(0.0005)
        world.store.down = True
        for name in ("w1", "w2"):
            world.processes[name].kill()
        await asyncio.sleep(8.0)
        world.store.down = False
        for name in ("w1", "w2"):
            world.start(name)
        await all_bound(world)

    on_virtual_time(run)


async def small_world() -> World:
    """Little room, all of it taken, and pods that wait."""
    world = World(1, mishaps=frozenset(), bad_luck=0.0, round_size=4)
    for name in NODES:
        world.server.put_node(node(name).capacity(cpu=1, memory="8Gi").build())
    for name in SERVICES:
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
