"""Gangs that preempt, carried out: searches, rehearsals, commits and evictions together, on virtual time."""

import pytest

from shared.model.objects import Node, Pod
from testing.builders import node, pod
from testing.inprocess.pipeline import bound
from tests.rounds.preempting_gangs import PreemptingGangs, gang_of, pod_group
from tests.rounds.preempting_world import where_they_are
from tests.rounds.support import BY_NAME


def full(nodes: int, *, priority: int = 0) -> tuple[list[Node], list[Pod]]:
    made = [node(f"n{i}").capacity(cpu=4, memory="64Gi", pods=110).build() for i in range(nodes)]
    low = [
        bound(
            pod(f"low{i}-{j}").request(cpu=1).priority(priority).started(f"2024-01-0{1 + j}T00:00:00Z").build(), f"n{i}"
        )
        for i in range(nodes)
        for j in range(4)
    ]
    return made, low


@pytest.mark.parametrize("shards", [1, 3])
def test_a_gang_makes_just_enough_pods_go(shards: int) -> None:
    run = PreemptingGangs(shards=shards, round_size=256, ties=BY_NAME)
    nodes, low = full(3)
    run.add_nodes(nodes)
    run.add_pods(low)
    run.settle()
    gang = gang_of("train", 5, pod("train").request(cpu=2).priority(10))
    run.submit_gang(pod_group("train", 5), gang)
    run.run_for(60)
    assert len(where_they_are(run, gang)) == 5
    assert len(run.victims) == 10
    assert not run.promised
