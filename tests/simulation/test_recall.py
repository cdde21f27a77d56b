"""A new term of the snapshot leaves attempts with the binders that hold them; what is not part of it ends."""

import asyncio
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from flotilla.plugin import BindingState, PermitPlugin
from flotilla.results import Code, Permission, Status
from services.binder.attempts import AttemptState
from shared.framework.loading import load_frameworks, load_scheduler_config
from shared.messages.binding import PermitAnswer
from testing.simulation import substitutes
from testing.simulation.drawing import PROCESSES
from testing.simulation.processes import Process
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World

PERMIT_AFTER = 60.0
"""Seconds from the beginning; twice as long as a binding may take without a permit."""
SNAPSHOT_DIES = 20.0


class Gate(PermitPlugin):
    """Has each pod wait for an approver."""

    name = "Gate"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def permit(self, state: BindingState, node: str) -> Permission:
        self.asked.append(state.pod.name)
        return Permission(Status(Code.WAIT), 300.0)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    frameworks = load_frameworks(load_scheduler_config(None))
    for framework in frameworks.values():
        framework.permit = [made]
        framework.binding_reads_pod = True
    with patch.object(substitutes, "_frameworks", lambda: frameworks):
        yield made


async def a_waiting_pod() -> tuple[World, str]:
    """And the binder that it waits at, which is not the one that gets orders first."""
    world = World(Schedule(1, "plain", 3, 0.0, ()))
    world.furnish()
    for name in PROCESSES:
        if name != "b1":
            world.start(name)
    world.create("p")
    await until(world, lambda: holders(world) == ["b2"], 10.0)
    world.start("b1")
    return world, "b2"


def holders(world: World) -> list[str]:
    """The binders where a pod waits for its permit."""
    return [each.name for each in binders(world) if AttemptState.WAITING in states(each)]


def binders(world: World) -> list[Process]:
    there = [world.processes[name] for name in ("b1", "b2") if name in world.processes]
    return [each for each in there if each.core is not None]


def states(binder: Process) -> list[AttemptState]:
    return [attempt.state for attempt in binder.core._attempts.all()]


async def until(world: World, holds: object, seconds: float) -> None:
    end = world.now + seconds
    while not holds():  # type: ignore[operator]
        assert world.now < end, "it has not come to that"
        await asyncio.sleep(0.05)


def is_bound(world: World) -> bool:
    return all(each.spec.node_name for each in world.server.pods.values())


def test_a_permit_goes_on_waiting_where_it_waits_when_the_snapshot_is_another(gate: Gate) -> None:
    async def run() -> None:
        world, holder = await a_waiting_pod()
        await asyncio.sleep(SNAPSHOT_DIES - world.now)
        world.processes["snapshot"].kill()
        await asyncio.sleep(1.0)
        world.start("snapshot")
        await asyncio.sleep(PERMIT_AFTER - world.now)
        assert holders(world) == [holder]
        (pod,) = world.server.pods.values()
        world.network.post("permitter", "binder.permits", PermitAnswer(pod.uid, "Gate", allow=True))
        await until(world, lambda: is_bound(world), 1.0)
        assert gate.asked == ["p"]
        await until(world, lambda: not world.processes["snapshot"].core.ledger, 5.0)
        assert world.processes[holder].core.held == 0
        await world.end()

    run_on_virtual_time(run)


def test_what_was_fenced_because_the_ledger_was_lost_ends_at_once(gate: Gate) -> None:
    async def run() -> None:
        world, holder = await a_waiting_pod()
        assert holders(world) == [holder]
        world.processes["snapshot"].kill()
        world.redis.flush()
        for each in list(world.server.nodes.values()):  # no order is sent for a while
            world.server.put_node(replace(each, spec=replace(each.spec, unschedulable=True)))
        world.start("snapshot")
        await until(world, lambda: holders(world) == [], 25.0)
        world.furnish()
        await until(world, lambda: len(holders(world)) == 1, 30.0)
        await world.end()

    run_on_virtual_time(run)


def test_what_was_with_a_binder_that_is_lost_is_given_to_another(gate: Gate) -> None:
    async def run() -> None:
        world, holder = await a_waiting_pod()
        world.processes["snapshot"].kill()
        world.processes[holder].kill()
        world.start("snapshot")
        other = "b2" if holder == "b1" else "b1"
        await until(world, lambda: holders(world) == [other], 25.0)
        assert gate.asked == ["p", "p"]
        await world.end()

    run_on_virtual_time(run)


def test_a_binder_is_asked_again_until_its_answer_has_come(gate: Gate) -> None:
    """The first questions do not arrive."""

    async def run() -> None:
        world, holder = await a_waiting_pod()
        world.processes["snapshot"].kill()
        missed: list[bytes] = []

        def miss(raw: bytes) -> bytes:
            if b"recall" not in raw or len(missed) == 2:
                return raw
            missed.append(raw)
            return b"noise"

        world.processes[holder]._bus.hears = miss
        world.start("snapshot")
        await until(world, lambda: len(missed) == 2, 30.0)
        await asyncio.sleep(10.0)
        assert holders(world) == [holder]
        assert gate.asked == ["p"]
        await world.end()

    run_on_virtual_time(run)
