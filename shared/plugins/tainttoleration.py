"""TaintToleration keeps pods off nodes whose taints they do not tolerate, and prefers nodes with fewer such taints.

Nodes share few distinct sets of taints, so each set is judged once and nodes look their set's answer up.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flotilla.events import Action, Registration, Resource
from flotilla.results import SUCCESS, Status, unresolvable
from shared.cluster.interner import Interner
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import ScaleToHighest, Scores
from shared.framework.plugin import FilterPlugin, PodParts, PreScorePlugin, Reads, ScorePlugin, Verdicts
from shared.framework.view import NodeView
from shared.model.affinity import is_tolerated, repel
from shared.model.kinds import ObjectKind
from shared.model.objects import Pod, Taint, Toleration
from shared.plugins.hints.anypod import after_own_update
from shared.plugins.hints.taints import after_taints


class _Judged(NamedTuple):
    """What was found of each set of taints, by its number."""

    sets: Interner[tuple[Taint, ...]]
    answers: NDArray[np.int64]


class TaintToleration(FilterPlugin, PreScorePlugin, ScorePlugin):
    name = "TaintToleration"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE
    score_reads = Reads.NODE
    normalizer = ScaleToHighest(reversed=True)

    def signature(self, pod: Pod) -> Hashable:
        return tuple((t.key, t.operator, t.value, t.effect) for t in pod.spec.tolerations)

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, after_taints),
            Registration(Resource.POD, Action.UPDATE_POD_TOLERATION, after_own_update),
        )

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        return self._by_set(state, view, "repelled", lambda taints: repel(taints, state.pod.spec.tolerations))

    def explain(self, state: CycleState, verdict: int) -> Status:
        return unresolvable("node(s) had untolerated taint(s)")

    def pre_score(self, state: CycleState) -> Status:
        soft = [t for t in state.pod.spec.tolerations if t.effect in ("", "PreferNoSchedule")]
        state.write(self.name, "soft", soft)
        return SUCCESS

    def score(self, state: CycleState, view: NodeView) -> Scores:
        soft: Sequence[Toleration] = state.read(self.name, "soft") or ()
        return self._by_set(state, view, "disliked", lambda taints: _dislikes(taints, soft))

    def _by_set(
        self, state: CycleState, view: NodeView, key: str, judge: Callable[[Sequence[Taint]], int]
    ) -> NDArray[np.int64]:
        """Judges the sets of taints that are new since the last time, and looks each node's up."""
        sets = view.table.taint_sets
        judged: _Judged | None = state.read(self.name, key)
        if judged is None or judged.sets is not sets:
            judged = _Judged(sets, np.zeros(0, dtype=np.int64))
        known = len(judged.answers)
        if known < len(sets):
            fresh = np.array([judge(taints) for taints in sets.items[known:]], dtype=np.int64)
            judged = _Judged(sets, np.concatenate([judged.answers, fresh]))
            state.write(self.name, key, judged)
        return judged.answers[view.taint_set]


def _dislikes(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
    return sum(t.effect == "PreferNoSchedule" and not is_tolerated(t, tolerations) for t in taints)
