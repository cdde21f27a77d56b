"""The plugin: what it works out for a pod, and where hard and soft constraints are judged.

Summary: `hard` and `soft`, for each constraint the pods by domain over the nodes that take part; and the selector of
`fellows` that default constraints were given. Late summary: the domains that the feasible nodes are in.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from flotilla.events import Registration
from flotilla.results import SKIP, SUCCESS, PreFilterResult, Range, Status, Topology, unresolvable, unschedulable
from shared.cluster.labels import Mask
from shared.cluster.nodetable import NodeTable
from shared.config.args import PodTopologySpreadArgs
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import Scores
from shared.framework.plugin import (
    FilterPlugin,
    PodParts,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    SummaryPlugin,
    Tracker,
    Verdicts,
)
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import LabelSelector, Pod
from shared.plugins.hints.spreading import SpreadingHints
from shared.plugins.podtopologyspread import hard, soft
from shared.plugins.podtopologyspread.census import Census, merge_parts
from shared.plugins.podtopologyspread.constraints import Action, Constraint, Defaults, Rules
from shared.plugins.podtopologyspread.late import late_summary, merge_late
from shared.plugins.podtopologyspread.owners import controller_of, fellows, kinds_looked_at
from shared.plugins.podtopologyspread.tracker import follow

T = TypeVar("T")

HARD, SOFT = "hard", "soft"
MISMATCH = "node(s) didn't match pod topology spread constraints"
MOST_STRATA = 64
"""By labels with more combinations of values than this, ladders are not split."""


class PodTopologySpread(PreFilterPlugin, SummaryPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    name = "PodTopologySpread"
    reads_of_pod = PodParts.TEMPLATE
    normalizer = soft.FewestFirst()
    unranged = soft.IGNORED
    opens = True

    def __init__(self, args: PodTopologySpreadArgs) -> None:
        self._defaults = Defaults(args)

    def signature(self, pod: Pod) -> Hashable:
        """Of a pod without any rule its namespace and labels: by these others count it."""
        own = pod.spec.topology_spread_constraints
        if not own and not self._defaults.constraints:
            return pod.namespace, tuple(sorted(pod.metadata.labels.items()))
        owner = None if own else controller_of(pod)
        affinity = pod.spec.affinity
        node_affinity = None if affinity is None else affinity.node_affinity
        return (
            pod.namespace,
            tuple(sorted(pod.metadata.labels.items())),
            msgspec.msgpack.encode(own) if own else None,
            None if owner is None else (owner.api_version, owner.kind, owner.name),
            tuple(sorted(pod.spec.node_selector.items())),
            None if node_affinity is None else msgspec.msgpack.encode(node_affinity),
            tuple((t.key, t.operator, t.value, t.effect) for t in pod.spec.tolerations),
        )

    def events(self) -> Sequence[Registration]:
        return SpreadingHints(self._defaults).registrations()

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return kinds_looked_at(state.pod) if self._defaults.apply_to(state.pod) else ()

    # Which constraints there are

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        return PreFilterResult(SUCCESS if self._prepare(state, HARD, "DoNotSchedule") else SKIP)

    def pre_score(self, state: CycleState) -> Status:
        return SUCCESS if self._prepare(state, SOFT, "ScheduleAnyway") else SKIP

    def _prepare(self, state: CycleState, kind: str, action: Action) -> bool:
        selector = fellows(state.pod, state.objects) if self._defaults.apply_to(state.pod) else None
        rules = self._defaults.rules(state.pod, action, selector)
        if rules.constraints:
            state.write(self.name, kind, rules)
        return bool(rules.constraints)

    # What other shards are told

    def summarize(self, state: CycleState, table: NodeTable) -> Any:
        of_kinds = [rules for kind in (HARD, SOFT) if (rules := self._rules(state, kind)) is not None]
        if not of_kinds:
            return None
        selector = of_kinds[0].fellows
        return {
            "fellows": None if selector is None else msgspec.to_builtins(selector),
            HARD: self._parts(state, HARD, table),
            SOFT: self._parts(state, SOFT, table),
        }

    def merge(self, one: Any, other: Any) -> Any:
        """While a service or controller changes, shards may not agree on the constraints: then one of them is right."""
        if one is None or other is None:
            return other if one is None else one
        if any(len(one[kind]) != len(other[kind]) for kind in (HARD, SOFT)):
            return max(one, other, key=_order)
        merged: dict[str, Any] = {"fellows": max(one["fellows"], other["fellows"], key=repr)}
        for kind in (HARD, SOFT):
            merged[kind] = [merge_parts(a, b) for a, b in zip(one[kind], other[kind], strict=True)]
        return merged

    def summarize_feasible(self, state: CycleState, table: NodeTable, feasible: Mask) -> Any:
        position = table.node_log.position
        known: tuple[int, Mask, Any] | None = state.read(self.name, "late")
        if known is None or known[0] != position or not np.array_equal(known[1], feasible):
            of_hard, of_soft = (
                None if self._rules(state, kind) is None else self._census(state, kind, table) for kind in (HARD, SOFT)
            )
            if of_hard is None and of_soft is None:
                return None
            known = (position, feasible.copy(), late_summary(of_hard, of_soft, feasible))
            state.write(self.name, "late", known)
        return known[2]

    def merge_feasible(self, one: Any, other: Any) -> Any:
        if any(len(one[part]) != len(other[part]) for part in ("domains", "reliable")):
            return max(one, other, key=_order)
        return merge_late(one, other)

    # Hard constraints

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        rules = self._rules(state, HARD)
        if rules is None:
            return np.zeros(len(view), dtype=np.int64)
        census = self._census(state, HARD, view.table)
        return hard.verdicts(self._limits(state, rules, view.table), census, view, state.pod.namespace)

    def filter_open(self, state: CycleState, view: NodeView) -> Verdicts:
        """Domains may open; what a node lacks, or counts for itself alone, stays as it is."""
        rules = self._rules(state, HARD)
        if rules is None:
            return np.zeros(len(view), dtype=np.int64)
        census = self._census(state, HARD, view.table)
        return hard.verdicts_openly(self._limits(state, rules, view.table), census, view, state.pod.namespace)

    def explain(self, state: CycleState, verdict: int) -> Status:
        if verdict == hard.NO_LABEL:
            return unresolvable(f"{MISMATCH} (missing required label)")
        return unschedulable(MISMATCH)

    # Soft constraints

    def score(self, state: CycleState, view: NodeView) -> Scores:
        rules, late = self._rules(state, SOFT), state.late.get(self.name)
        if rules is None or late is None or len(late["domains"]) != len(rules.constraints):
            return np.zeros(len(view), dtype=np.int64)
        census = self._census(state, SOFT, view.table)
        weights = soft.weights(late)
        return soft.scores(rules, self._pods(state, rules, view.table), weights, census, view, state.pod.namespace)

    # Rounds

    def topology(self, state: CycleState, table: NodeTable) -> Topology | None:
        keys: set[str] = set()
        domains: dict[str, int] = {}
        for kind in (HARD, SOFT):
            rules = self._rules(state, kind)
            if rules is None:
                continue
            for constraint, part in zip(rules.constraints, self._believed(state, kind, table), strict=True):
                if kind == HARD or not constraint.is_of_hosts:
                    keys.add(constraint.key)
                if not constraint.is_of_hosts:
                    domains[constraint.key] = len(part["domains"]) + 1
        return Topology(tuple(sorted(keys)), _strata(domains)) if keys else None

    def tracker(self, pod: Pod, summary: Any, late: Any, scores: Range | None) -> Tracker | None:
        if summary is None:
            return None
        told = summary["fellows"]
        selector = None if told is None else msgspec.convert(told, LabelSelector)
        hard_rules = self._defaults.rules(pod, "DoNotSchedule", selector) if summary[HARD] else Rules((), True)
        soft_rules = self._defaults.rules(pod, "ScheduleAnyway", selector) if summary[SOFT] else Rules((), True)
        return follow(pod, (hard_rules, soft_rules), summary, late, scores)

    # Inside

    def _rules(self, state: CycleState, kind: str) -> Rules | None:
        rules: Rules | None = state.read(self.name, kind)
        return rules

    def _census(self, state: CycleState, kind: str, table: NodeTable) -> Census:
        census: Census | None = state.read(self.name, f"{kind} census")
        rules = self._rules(state, kind)
        if census is None or census.table is not table:
            census = Census(table, state, rules or Rules((), True), of_hosts=kind == HARD)
            state.write(self.name, f"{kind} census", census)
        census.refresh()
        return census

    def _parts(self, state: CycleState, kind: str, table: NodeTable) -> list[Any]:
        return [] if self._rules(state, kind) is None else self._census(state, kind, table).parts()

    def _believed(self, state: CycleState, kind: str, table: NodeTable) -> list[Any]:
        """What all shards have; this one's own part while they do not agree on what the constraints are."""
        own = self._parts(state, kind, table)
        summary = state.summaries.get(self.name)
        return own if summary is None or len(summary[kind]) != len(own) else summary[kind]

    def _limits(self, state: CycleState, rules: Rules, table: NodeTable) -> list[hard.Limit]:
        make = partial(hard.limit, labels=state.pod.metadata.labels, table=table)
        return self._worked_out(state, HARD, rules, table, make)

    def _pods(self, state: CycleState, rules: Rules, table: NodeTable) -> list[NDArray[np.int64]]:
        return self._worked_out(state, SOFT, rules, table, partial(soft.pods_by_domain, table=table))

    def _worked_out(
        self, state: CycleState, kind: str, rules: Rules, table: NodeTable, make: Callable[[Constraint, Any], T]
    ) -> list[T]:
        """Something for each constraint; once for a summary, for as long as no node brings a new value."""
        stamp = (state.summaries.get(self.name), table.node_log.position)
        known: tuple[tuple[object, int], list[T]] | None = state.read(self.name, f"{kind} worked out")
        if known is None or known[0][0] is not stamp[0] or known[0][1] != stamp[1]:
            parts = zip(rules.constraints, self._believed(state, kind, table), strict=True)
            known = (stamp, [make(constraint, part) for constraint, part in parts])
            state.write(self.name, f"{kind} worked out", known)
        return known[1]


def _order(summary: dict[str, Any]) -> str:
    return repr(sorted(summary.items()))


def _strata(domains: dict[str, int]) -> tuple[str, ...]:
    """The labels with the fewest values first, as many as make few combinations."""
    chosen: list[str] = []
    combinations = 1
    for key, number in sorted(domains.items(), key=lambda item: (item[1], item[0])):
        combinations *= number
        if combinations > MOST_STRATA:
            break
        chosen.append(key)
    return tuple(sorted(chosen))
