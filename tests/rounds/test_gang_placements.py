"""Gangs against a solver that tries all placements: a gang is placed if and only if it has one."""

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from shared.messages.queue import Gang
from shared.model.objects import Node, Pod
from shared.model.workloads import TopologyConstraint
from testing.builders import PodBuilder, node, pod
from tests.rounds.all_placements import BLOCK, RACK, fitting_domains
from tests.rounds.gangs import GangRun, members
from tests.rounds.test_hard_rules import HOST, ZONE, _apart, _near, _spread

ENDED = "the search for a placement ended"
TOPOLOGIES: list[tuple[TopologyConstraint, ...]] = [
    (),
    (TopologyConstraint(key=RACK),),
    (TopologyConstraint(key=RACK, preferred=True),),
    (TopologyConstraint(key=BLOCK), TopologyConstraint(key=RACK)),
    (TopologyConstraint(key=BLOCK), TopologyConstraint(key=RACK, preferred=True)),
]


class Case(NamedTuple):
    nodes: list[Node]
    pods: list[Pod]
    least: int
    topology: tuple[TopologyConstraint, ...]

    @property
    def required(self) -> list[str]:
        return [each.key for each in self.topology if not each.preferred]


def case_of(seed: int) -> Case:
    dice = random.Random(seed)
    nodes: list[Node] = []
    for i in range(dice.randint(2, 6)):
        rack = dice.randrange(3)
        built = node(f"n{i}").capacity(cpu=dice.randint(1, 4), memory="8Gi", pods="20")
        built = built.label({HOST: f"n{i}", ZONE: dice.choice("xy"), "disk": dice.choice(["ssd", "hdd"])})
        if dice.random() < 0.9:
            built = built.label({RACK: f"r{rack}", BLOCK: f"b{rack // 2}"})
        nodes.append(built.build())
    pods: list[Pod] = []
    for kind in range(dice.randint(1, 3)):
        pods += members(_rule(dice, pod("kind").label(app="abc"[kind])), dice.randint(1, 3), f"{kind}-")
    dice.shuffle(pods)
    least = len(pods) if dice.random() < 0.7 else dice.randint(1, len(pods))
    return Case(nodes, pods, least, dice.choice(TOPOLOGIES))


def _rule(dice: random.Random, made: PodBuilder) -> PodBuilder:
    made = made.request(cpu=dice.randint(1, 3)).never_preempting()
    if dice.random() < 0.3:
        made = made.node_selector(disk="ssd")
    if dice.random() < 0.5:
        return made
    key, app = dice.choice([HOST, ZONE]), dice.choice("abc")
    rule = dice.choice([_apart(key, app), _apart(key, app), _near(ZONE, app), _spread(key, app, 1, None)])
    return rule(made)


def decide(case: Case, shards: int, round_size: int = 256) -> GangRun:
    run = GangRun(shards=shards, round_size=round_size)
    run.add_nodes(case.nodes)
    run.settle()
    run.take((Gang("ns/g", case.least, topology=case.topology), case.pods))
    run.settle()
    assert run.told_once(case.pods)
    return run


def check(seed: int, shards: int) -> bool:
    """Whether the search came to its end."""
    case = case_of(seed)
    run = decide(case, shards)
    placed = run.places(case.pods)
    fitting = fitting_domains(case.nodes, case.pods, case.least, case.required)
    told = f"seed {seed}, {shards} shards: placed {placed}, fits in {fitting}"
    if placed:
        assert fitting, told
        assert len(placed) >= case.least, told
        assert len({_values(case.nodes, where, case.required) for where in placed.values()}) == 1, told
        return True
    why = next(iter(run.unfit(case.pods).values())).unfit.message
    if fitting:
        assert ENDED in why, f"{told}: {why}"
    return ENDED not in why


def _values(nodes: Sequence[Node], name: str, keys: Sequence[str]) -> tuple[str | None, ...]:
    labels = next(each for each in nodes if each.metadata.name == name).metadata.labels
    return tuple(labels.get(key) for key in keys)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_a_gang_is_placed_if_and_only_if_it_has_a_placement(shards: int) -> None:
    first = random.randrange(10**6)
    print(f"seeds from {first}")
    ended = [check(first + i, shards) for i in range(20)]
    assert sum(ended) >= 16
