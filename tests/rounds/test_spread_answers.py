"""Pods of ReplicaSets: the cycle follows their scores, and asks where it cannot."""

from dataclasses import replace

import msgspec
import pytest

from shared.messages.evaluation import Ties
from shared.model.objects import Pod
from shared.model.wellknown import HOSTNAME, ZONE
from testing.builders import node
from tests.rounds.known_answers import (
    KINDS,
    REPLICA_SETS,
    Run,
    one_by_one,
)
from tests.rounds.support import BY_NAME


def replicas(*of: str) -> list[Pod]:
    """A pod of each of these ReplicaSets."""
    kinds = [KINDS[f"replica of {name}"] for name in of]
    metadata = (msgspec.structs.replace(kind.metadata, name=f"r{i:03}") for i, kind in enumerate(kinds))
    return [replace(kind, metadata=each).build() for kind, each in zip(kinds, metadata, strict=True)]


def zoned(run: Run, count: int = 60) -> Run:
    run.add_objects(REPLICA_SETS)
    run.add_nodes(
        [
            node(f"n{i:03}")
            .capacity(cpu=4 + i % 2 * 4, memory="8Gi", pods=9)
            .label({HOSTNAME: f"n{i:03}", ZONE: "xyz"[i % 3]})
            .build()
            for i in range(count)
        ]
    )
    run.settle()
    return run


@pytest.mark.parametrize("ties", [BY_NAME, Ties(seed=7)], ids=["all want the same nodes", "each wants others"])
@pytest.mark.parametrize("of", ["a" * 30, "ab" * 15], ids=["one ReplicaSet", "two in turn"])
def test_pods_of_replica_sets_are_rarely_asked_about_and_go_where_they_would_go_if_all_were(
    ties: Ties, of: str
) -> None:
    known, asked = zoned(Run(2, 1, ties, relabels=False)), zoned(Run(2, 1, ties, relabels=False))
    asked.known.is_off = True
    costs, of_all = one_by_one(known, replicas(*of)), one_by_one(asked, replicas(*of))
    assert known.placed == asked.placed
    assert 2 * sum(costs) <= sum(of_all)


def test_a_few_pods_of_one_replica_set_at_a_time_need_no_ask_either() -> None:
    run = zoned(Run(2, relabels=False))
    pods = replicas(*"a" * 32)
    one_by_one(run, pods[:4])
    before = run.asks
    for start in range(4, 32, 4):
        run.submit(pods[start : start + 4])
        run.settle()
    assert run.asks - before <= 2


def test_where_labels_of_bound_pods_change_spread_pods_are_asked_about() -> None:
    """A constraint might count them by the new label."""
    run = zoned(Run(2))
    assert all(one_by_one(run, replicas(*"aaaaaa")))


def test_a_pod_of_another_class_that_is_counted_ends_what_is_known() -> None:
    run = zoned(Run(2, relabels=False))
    one_by_one(run, replicas(*"bbbb"))
    one_by_one(run, [replace(KINDS["large replica of b"]).build()])
    last = replace(KINDS["replica of b"], metadata=msgspec.structs.replace(KINDS["replica of b"].metadata, name="last"))
    assert one_by_one(run, [last.build()])[0] >= 2
