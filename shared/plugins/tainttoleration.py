"""TaintToleration keeps pods off nodes whose taints they do not tolerate, and prefers nodes with fewer such taints.

Nodes share few distinct sets of taints, so each set is judged once and nodes look their set's answer up.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from flotilla.objects import Taint, Toleration
from flotilla.plugin import (
    SUCCESS,
    Action,
    ClassState,
    ClusterObjects,
    FilterPlugin,
    Ints,
    Mask,
    Node,
    NodeView,
    Pod,
    PodParts,
    PreScorePlugin,
    Reads,
    Registration,
    Resource,
    ScaleToHighest,
    ScorePlugin,
    Scores,
    StateKey,
    Status,
    unresolvable,
)
from shared.model.affinity import is_tolerated, repel
from shared.plugins.queueing_hints import after_own_update

UNTOLERATED = unresolvable("node(s) had untolerated taint(s)")


@dataclass(slots=True)
class _Judged:
    """The answer for each set of taints, by its number."""

    sets: Sequence[tuple[Taint, ...]]
    answers: Ints


REPELLED = StateKey[_Judged]("the sets of taints that repel the pod")
DISLIKED = StateKey[_Judged]("the number of PreferNoSchedule taints in each set")
SOFT_TOLERATIONS = StateKey[list[Toleration]]("tolerations of PreferNoSchedule taints")


class TaintToleration(FilterPlugin, PreScorePlugin, ScorePlugin):
    name = "TaintToleration"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE
    score_reads = Reads.NODE
    normalizer = ScaleToHighest(reversed=True)

    def signature(self, pod: Pod) -> Hashable:
        return tuple((t.key, t.operator, t.value, t.effect) for t in pod.spec.tolerations)

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, after_taints),
            Registration(Resource.POD, Action.UPDATE_POD_TOLERATION, after_own_update),
        )

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        nodes.reject(repelled(state, nodes), UNTOLERATED)

    def pre_score(self, state: ClassState) -> Status:
        state[SOFT_TOLERATIONS] = [t for t in state.pod.spec.tolerations if t.effect in ("", "PreferNoSchedule")]
        return SUCCESS

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        soft = state.get(SOFT_TOLERATIONS) or []
        return _by_set(state, nodes, DISLIKED, lambda taints: _dislikes(taints, soft))


def repelled(state: ClassState, nodes: NodeView) -> Mask:
    """Which nodes have a taint that keeps the pod off."""
    return _by_set(state, nodes, REPELLED, lambda taints: repel(taints, state.pod.spec.tolerations)) > 0


def _by_set(
    state: ClassState, nodes: NodeView, key: StateKey[_Judged], judge: Callable[[Sequence[Taint]], int]
) -> Ints:
    """Judge the sets of taints that are new since the last time, and look each node's up."""
    taints = nodes.taints
    judged = state.get(key)
    if judged is None or judged.sets is not taints.values:
        judged = state[key] = _Judged(taints.values, np.zeros(0, dtype=np.int64))
    known = len(judged.answers)
    if known < len(taints.values):
        fresh = np.array([judge(each) for each in taints.values[known:]], dtype=np.int64)
        judged.answers = np.concatenate([judged.answers, fresh])
    return judged.answers[taints.numbers]


def _dislikes(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
    return sum(t.effect == "PreferNoSchedule" and not is_tolerated(t, tolerations) for t in taints)


def after_taints(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The node admits the pod and did not before."""
    tolerations = pod.spec.tolerations
    if repel(now.spec.taints, tolerations):
        return False
    return before is None or repel(before.spec.taints, tolerations)
