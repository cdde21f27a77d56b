"""All processes end and start again, and the API server that is asked then lags: lists and watches show the past."""

import asyncio

import pytest

from shared.kube.events_and_conditions import BINDING_FENCED
from testing.builders import node, pod
from testing.simulation.drawing import PROCESSES
from testing.simulation.loop import VirtualLoop
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World

LEASE, MARK = "flotilla-snapshot", "flotilla.io/settled"


class Lagging(World):
    """One node with room for one of two pods; the first is bound before all processes end."""

    def __init__(self) -> None:
        super().__init__(Schedule(1, "plain", 4, 0.0, ()))

    async def run_until_bound(self) -> int:
        """The version just before the first pod was bound."""
        self.server.put_node(node("n0").capacity(cpu=4, memory="8Gi").build())
        await self.start_all()
        await asyncio.sleep(3.0)
        self.server.put_pod(pod("a").uid("u1").request(cpu="3").build())
        while not self.around.transport.bindings:
            await asyncio.sleep(0.0001)
        self.server.put_pod(pod("b").uid("u2").request(cpu="3").priority(10).build())
        while not self.server.pods["u1"].spec.node_name:
            await asyncio.sleep(0.001)
        return max(change.version for change in self.server.history if change.key == "u1") - 1

    async def start_all(self) -> None:
        for name in PROCESSES:
            self.start(name)

    async def end_all(self, how: str) -> None:
        for process in self.processes.values():
            getattr(process, how)()
        while any(process.running for process in self.processes.values()):
            await asyncio.sleep(0.01)

    def lag(self, version: int, seconds: float) -> None:
        """Lists are of this version for so long, and watches tell what is later only then."""
        loop, transport = asyncio.get_running_loop(), self.around.transport
        assert isinstance(loop, VirtualLoop)
        transport.behind_until = until = loop.time() + seconds

        def shown() -> int:
            return version if loop.time() < until else self.server.version

        transport._shown = transport._requests._shown = shown  # type: ignore[method-assign]

    async def hold_for(self, seconds: float) -> None:
        ends = self.now + seconds
        while self.now < ends:
            await asyncio.sleep(0.1)
            assert not self.auditor.broken + self.server.broken


@pytest.mark.parametrize("redis", ["keep", "flush"])
@pytest.mark.parametrize(("how", "seconds"), [("stop", 5.0), ("kill", 25.0), ("stop", 40.0)])
def test_a_node_stays_within_its_capacity_though_the_list_is_of_before_a_binding(
    how: str, seconds: float, redis: str
) -> None:
    async def run() -> None:
        world = Lagging()
        before = await world.run_until_bound()
        await world.end_all(how)
        assert (MARK in world.server.leases[LEASE]["metadata"].get("annotations", {})) is (how == "stop")
        if redis == "flush":
            world.redis.flush()
        world.lag(before, seconds)
        await world.start_all()
        await world.hold_for(seconds + 30.0)
        assert world.server.pods["u2"].spec.node_name == "n0", "it makes its way, by preemption"
        await world.end()

    run_on_virtual_time(run)


def test_the_snapshot_says_that_it_waits_for_a_newer_list_and_goes_on_once_there_is_one() -> None:
    async def run() -> None:
        world = Lagging()
        before = await world.run_until_bound()
        await world.end_all("stop")
        world.lag(before, 5.0)
        await world.start_all()
        await asyncio.sleep(4.0)
        snapshot = world.processes["snapshot"]
        (reason,) = (each for each in snapshot.shell._context.health.reasons() if "listing" in each)
        assert f"of version {before}, older than this term" in reason
        assert not snapshot.shell._begun
        await asyncio.sleep(3.0)
        assert snapshot.shell._begun
        assert snapshot.shell._context.health.reasons() == []
        conditions = {each.type for pod in world.server.pods.values() for each in pod.status.conditions}
        assert BINDING_FENCED not in conditions
        await world.end()

    run_on_virtual_time(run)
