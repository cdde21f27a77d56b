"""One of two workers lies in every answer, with its own credentials and in the real protocol: everything is bound."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from services.worker.events import Answer
from shared.cluster.nodetable import shard_of
from shared.messages.rounds import ClassAnswer, Ladder, Proposals
from testing.builders import node
from testing.simulation.drawing import NODES, PROCESSES, SHARDS
from testing.simulation.schedule import Schedule
from testing.simulation.substitutes import run_on_virtual_time
from testing.simulation.world import World
from tests.simulation.test_simulation import all_bound

LIAR = "w1"
MUCH = 1 << 40
Lie = Callable[[Proposals], Proposals]


def of_the_future(proposals: Proposals) -> Proposals:
    return replace(proposals, seq=1 << 62)


def best_of_all(proposals: Proposals, of_others: bool) -> Proposals:
    """All pods are to go to one node, which scores beyond everything."""
    where = next(name for name in NODES if (shard_of(name, SHARDS) in proposals.shards) is not of_others)
    ladder = Ladder([where] * 256, [MUCH] * 256, [0] * 256)

    def lie(answer: ClassAnswer) -> ClassAnswer:
        return replace(answer, ladder=ladder, topology=None, summary=replace(answer.summary, feasible=1), beside={})

    return replace(proposals, answers=[lie(answer) for answer in proposals.answers])


class Liar:
    """A worker's core, whose proposals are replaced on their way out."""

    def __init__(self, core: Any, lie: Lie) -> None:
        self._core, self._lie = core, lie

    def handle(self, event: Any, now: float) -> list[Any]:
        effects = self._core.handle(event, now)
        return [
            Answer(self._lie(each.message))
            if isinstance(each, Answer) and isinstance(each.message, Proposals)
            else each
            for each in effects
        ]

    def next_deadline(self) -> float | None:
        deadline: float | None = self._core.next_deadline()
        return deadline


@pytest.mark.parametrize(
    ("lie", "kind"),
    [
        (of_the_future, "sequence"),
        (lambda proposals: best_of_all(proposals, of_others=False), "capacity"),
        (lambda proposals: best_of_all(proposals, of_others=True), "shard"),
    ],
    ids=["of the future", "over capacity", "the node of another"],
)
def test_a_worker_that_always_lies_loses_its_shards_and_everything_is_bound(lie: Lie, kind: str) -> None:
    async def run() -> None:
        world = World(Schedule(1, "plain", 16, 0.0, ()))
        for name in NODES:
            world.server.put_node(node(name).capacity(cpu=16, memory="64Gi", pods=4).build())
        for name in PROCESSES:
            world.start(name)
        await asyncio.sleep(3.0)
        runner = world.processes[LIAR].shell._runner
        runner._core = Liar(runner._core, lie)
        for _ in range(8):
            world.create()
        while world.processes[LIAR].running and world.now < 1060.0:
            await asyncio.sleep(0.25)
        failures = list(world.around.failures)
        assert not world.processes[LIAR].running, "it was told to end"
        assert any(f"worker {LIAR} is at fault ({kind})" in each for each in failures), failures
        assert all(LIAR in each for each in failures), "no other process is blamed, and none fails"
        world.around.failures.clear()
        await all_bound(world)

    run_on_virtual_time(run)
