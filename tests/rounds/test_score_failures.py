"""What becomes of a pod that cannot be scored: its attempt fails, and no other pod waits."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from flotilla.plugin import ClassState, NodeView, Normalizer, ScorePlugin, Scores
from flotilla.results import Code
from services.cycle.events import Decided, Failed, Unschedulable
from shared.cluster.nodetable import shard_of
from shared.config.points import ExtensionPoint
from shared.framework.profile import Framework
from shared.messages.rounds import ClassAnswer
from shared.model.objects import Pod
from testing.builders import expr, pod
from testing.inprocess.pipeline import Outcome, Pipeline
from tests.rounds.script import Script, class_of, summary
from tests.rounds.support import QUIET, framework_with, small_node, small_pod

FEW_STEPS = 10_000


def apart(count: int, shards: int) -> list[str]:
    """Names of nodes, no two of them neighbours in a shard if that can be."""
    by_shard = {shard_of(f"n{i}", shards): f"n{i}" for i in range(100)}
    names = [*by_shard.values(), *(f"m{i}" for i in range(count))]
    return names[:count]


def outcome(
    pods: list[Pod], nodes: list[str], shards: int = 1, *, frameworks: Mapping[str, Framework] = QUIET, **options: Any
) -> list[Outcome]:
    """With three small nodes besides, which have no room for a pod that wants three cpus."""
    run = Pipeline(frameworks, shards=shards, **options)
    run.add_nodes([small_node(name) for name in nodes] + [small_node(f"small-{i}", cpu=1) for i in range(3)])
    run.submit(pods)
    run.settle(most=FEW_STEPS)
    return [run.outcomes[each.uid] for each in pods]


# PreScore


WRONG = pod("wrong").request(cpu=3).prefer_node(1, expr("size", "Gt", "big")).build()


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("feasible", [2, 3])
def test_a_pre_score_failure_fails_a_pod_that_has_several_nodes_to_choose_from(shards: int, feasible: int) -> None:
    (told,) = outcome([WRONG], apart(feasible, shards), shards)
    assert isinstance(told, Failed)
    assert (told.status.code, told.status.plugin) == (Code.ERROR, "NodeAffinity")
    assert "big" in told.status.message


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_pre_score_failure_does_not_matter_to_a_pod_with_one_feasible_node(shards: int) -> None:
    assert outcome([WRONG], ["only"], shards) == [Decided(WRONG.uid, "only")]


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_pre_score_failure_does_not_hide_that_no_node_is_feasible(shards: int) -> None:
    (told,) = outcome([WRONG], [], shards)
    assert isinstance(told, Unschedulable)
    assert told.unfit.message == "0/3 nodes are available: 3 Insufficient cpu."


# Scores


class Scored(ScorePlugin):
    """Gives every node the score that the pod's label says."""

    name = "Scored"

    def signature(self, pod: Pod) -> str:
        return pod.metadata.labels.get("score", "50")

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        return np.full(len(nodes), int(self.signature(state.pod)), dtype=np.int64)


def as_it_is(raw: Scores, low: int, high: int) -> Scores:
    return raw


class Normalised(Scored):
    name = "Normalised"
    normalizer: ClassVar[Normalizer | None] = staticmethod(as_it_is)


@pytest.mark.parametrize("plugin", [Scored, Normalised])
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("score", [-1, 101, 1 << 40])
def test_a_score_out_of_range_fails_its_pods_and_the_others_go_on(
    plugin: type[Scored], shards: int, score: int
) -> None:
    frameworks = framework_with(plugin, ExtensionPoint.SCORE)
    pods = [small_pod("wrong", score=str(score)), small_pod("right"), small_pod("wrong-too", score=str(score))]
    told = outcome(pods, apart(2, shards), shards, frameworks=frameworks)
    for failed in (told[0], told[2]):
        assert isinstance(failed, Failed)
        assert failed.status.code is Code.ERROR
        assert f"{plugin.name!r} returns an invalid score {score}" in failed.status.message
    assert isinstance(told[1], Decided)


@pytest.mark.parametrize("score", [0, 100])
def test_scores_at_the_ends_of_the_range_are_good(score: int) -> None:
    frameworks = framework_with(Scored, ExtensionPoint.SCORE)
    (told,) = outcome([small_pod("right", score=str(score))], ["a"], frameworks=frameworks)
    assert told == Decided("default/right", "a")


def test_a_pod_whose_feasible_nodes_no_worker_proposes_fails() -> None:
    script, wanted = Script("w0"), small_pod("p")
    (told,) = script.answer(script.submit(wanted)["w0"], "w0", ClassAnswer(class_of(wanted), summary=summary(2)))
    assert isinstance(told, Failed)
    assert told.status.message == "2 nodes are feasible, but no worker offers one"
    assert script.core.pods_held == 0
