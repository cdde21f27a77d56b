"""A cycle, or a queue behind it, that says of pods what is not so: the owner judges by its own pods."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shared.model.load import load_of
from testing.builders import node, pod
from testing.simulation.drawing import PROCESSES
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World
from tests.simulation.test_simulation import all_bound


def asks_for_nothing(spec: dict[str, Any]) -> None:
    for container in spec["containers"]:
        container.pop("resources", None)


def goes_before_all_others(spec: dict[str, Any]) -> None:
    spec["priority"] = 2_000_001_000


@pytest.mark.parametrize("forge", [asks_for_nothing, goes_before_all_others])
def test_forged_pods_get_no_place_and_no_pod_is_evicted_for_them(forge: Callable[[dict[str, Any]], None]) -> None:
    """The queue forges them, and the cycle decides and commits them."""

    async def run() -> None:
        world = World(Schedule(1, "plain", 4, 0.0, ()))
        world.server.put_node(node("n0").capacity(cpu=4, memory="8Gi").build())
        world.server.put_pod(pod("there").uid("u-there").request(cpu="3").on("n0").build())
        for name in PROCESSES:
            world.start(name)
        await asyncio.sleep(3.0)
        forged = 0

        def hears(raw: bytes) -> bytes:
            nonlocal forged
            message = msgspec.msgpack.decode(raw, strict=False)
            if message["type"] != "batch":
                return raw
            for queued in message["pods"]:
                forge(queued["pod"]["spec"])
                forged += 1
            return msgspec.msgpack.encode(message)

        world.processes["cycle"]._bus.hears = hears
        world.server.put_pod(pod("p").uid("u-p").request(cpu="2").build())
        await asyncio.sleep(10.0)
        assert forged
        assert world.pending() == ["p"]
        assert "u-there" in world.server.pods
        assert not world.auditor.broken
        world.processes["cycle"]._bus.hears = None
        world.server.put_node(node("n1").capacity(cpu=4, memory="8Gi").build())
        await all_bound(world)
        assert world.server.pods["u-p"].spec.node_name == "n1"

    run_on_virtual_time(run)


@pytest.mark.parametrize("asks", [{}, {"cpu": 0}])
def test_a_cycle_that_says_of_a_large_pod_that_nothing_must_be_free_gets_it_no_place(asks: dict[str, int]) -> None:
    """The loads that it commits are true, and it decides as if the pod requested nothing."""

    async def run() -> None:
        world = World(Schedule(1, "plain", 4, 0.0, ()))
        world.server.put_node(node("n0").capacity(cpu=4, memory="8Gi").build())
        for name in PROCESSES:
            world.start(name)
        await asyncio.sleep(3.0)
        large = pod("p").uid("u-p").request(cpu="100").build()
        load = msgspec.msgpack.decode(msgspec.msgpack.encode(load_of(large)))
        forged = 0

        def cycle_hears(raw: bytes) -> bytes:
            message = msgspec.msgpack.decode(raw, strict=False)
            if message["type"] != "batch":
                return raw
            for queued in message["pods"]:
                asks_for_nothing(queued["pod"]["spec"])
            return msgspec.msgpack.encode(message)

        def snapshot_hears(raw: bytes) -> bytes:
            nonlocal forged
            message = msgspec.msgpack.decode(raw, strict=False)
            if message.get("type") != "commit" or not message.get("decisions"):
                return raw
            message["loads"] = [load for _ in message["loads"]]
            for decision in message["decisions"]:
                decision["asks"] = asks
                forged += 1
            return msgspec.msgpack.encode(message)

        world.processes["cycle"]._bus.hears = cycle_hears
        world.processes["snapshot"]._bus.hears = snapshot_hears
        world.server.put_pod(large)
        await asyncio.sleep(5.0)
        assert forged
        assert world.pending() == ["p"]
        assert not world.auditor.broken

    run_on_virtual_time(run)
