"""What is said while nothing happens."""

import asyncio

from services.snapshot.service import HEARTBEAT_INTERVAL
from shared.messages.codec import Message
from shared.messages.queue import Absorbed
from shared.messages.state import Delta, Heartbeat
from testing.builders import node
from testing.simulation.drawing import PROCESSES
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World


def test_heartbeats_become_rare_while_nothing_changes_and_follow_a_change_soon() -> None:
    async def run() -> None:
        world = World(Schedule(1, "plain", 4, 0.0, ()))
        heard: list[tuple[float, Message]] = []
        world.network.overhears.append(lambda message: heard.append((world.now, message)))
        world.server.put_node(node("n0").capacity(cpu=4, memory="8Gi").build())
        for name in PROCESSES:
            world.start(name)
        await asyncio.sleep(10.0)
        heard.clear()
        await asyncio.sleep(10.0)
        for kind in (Heartbeat, Absorbed):
            times = {at for at, message in heard if isinstance(message, kind)}
            assert 9 <= len(times) <= 11, kind
        heard.clear()
        world.server.put_node(node("n1").capacity(cpu=4, memory="8Gi").build())
        await asyncio.sleep(1.0)
        changed = next(at for at, message in heard if isinstance(message, Delta))
        beats = sorted({at for at, message in heard if isinstance(message, Heartbeat) and at > changed})
        assert beats[0] - changed <= HEARTBEAT_INTERVAL + 0.01
        assert beats[1] - beats[0] <= HEARTBEAT_INTERVAL + 0.01, "a lost delta is noticed, though one of them is lost"

    run_on_virtual_time(run)
