"""The plugin: what it works out for a pod, and where hard and soft constraints are judged.

Summary: `hard` and `soft`, for each constraint the pods by domain over the nodes that take part; and the selector of
`fellows` that default constraints were given. Late summary: the domains that the feasible nodes are in.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np

from flotilla.objects import LabelSelector
from flotilla.plugin import (
    SKIP,
    SUCCESS,
    ClassState,
    DomainFilter,
    Ints,
    Mask,
    NodeView,
    ObjectKind,
    Pod,
    PodParts,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    Range,
    Registration,
    ScorePlugin,
    Scores,
    StateKey,
    Status,
    SummaryPlugin,
    Topology,
    Tracker,
)
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import table_of, view_of
from shared.config.args import PodTopologySpreadArgs
from shared.plugins.podtopologyspread import hard, soft
from shared.plugins.podtopologyspread.census import Census, merge_parts
from shared.plugins.podtopologyspread.constraints import (
    Action,
    Constraint,
    Defaults,
    Rules,
    SpreadingHints,
    controller_of,
    fellows,
    kinds_looked_at,
)
from shared.plugins.podtopologyspread.late import late_summary, merge_late
from shared.plugins.podtopologyspread.tracker import follow

T = TypeVar("T")

HARD, SOFT = "hard", "soft"
RULES = {kind: StateKey[Rules](f"{kind} constraints") for kind in (HARD, SOFT)}
CENSUS = {kind: StateKey[Census](f"census of {kind} constraints") for kind in (HARD, SOFT)}
WORKED_OUT = {
    kind: StateKey[tuple[object, int, list[Any]]](f"{kind} constraints by the summary") for kind in (HARD, SOFT)
}
FEASIBLE = StateKey[tuple[int, Mask, Any]]("the summary of feasible nodes")
MOST_STRATA = 64
"""By labels with more combinations of values than this, ladders are not split."""


class PodTopologySpread(PreFilterPlugin, SummaryPlugin[Any, Any], DomainFilter, PreScorePlugin, ScorePlugin):
    name = "PodTopologySpread"
    reads_of_pod = PodParts.TEMPLATE
    normalizer = soft.FewestFirst()
    unranged = soft.IGNORED

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

    def reads_objects(self, state: ClassState) -> Collection[ObjectKind]:
        return kinds_looked_at(state.pod) if self._defaults.apply_to(state.pod) else ()

    # Which constraints there are

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult(SUCCESS if self._prepare(state, HARD, "DoNotSchedule") else SKIP)

    def pre_score(self, state: ClassState) -> Status:
        return SUCCESS if self._prepare(state, SOFT, "ScheduleAnyway") else SKIP

    def _prepare(self, state: ClassState, kind: str, action: Action) -> bool:
        selector = fellows(state.pod, state.objects) if self._defaults.apply_to(state.pod) else None
        rules = self._defaults.rules(state.pod, action, selector)
        if rules.constraints:
            state[RULES[kind]] = rules
        return bool(rules.constraints)

    # What other shards are told

    def summarize(self, state: ClassState, nodes: NodeView) -> Any:
        table = table_of(nodes)
        of_kinds = [rules for kind in (HARD, SOFT) if (rules := state.get(RULES[kind])) is not None]
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

    def summarize_feasible(self, state: ClassState, nodes: NodeView, feasible: Mask) -> Any:
        table, known = table_of(nodes), state.get(FEASIBLE)
        if known is None or known[0] != nodes.nodes_version or not np.array_equal(known[1], feasible):
            of_hard, of_soft = (
                None if state.get(RULES[kind]) is None else self._census(state, kind, table) for kind in (HARD, SOFT)
            )
            if of_hard is None and of_soft is None:
                return None
            known = (nodes.nodes_version, feasible.copy(), late_summary(of_hard, of_soft, feasible))
            state[FEASIBLE] = known
        return known[2]

    def merge_feasible(self, one: Any, other: Any) -> Any:
        if any(len(one[part]) != len(other[part]) for part in ("domains", "reliable")):
            return max(one, other, key=_order)
        return merge_late(one, other)

    # Hard constraints

    def passes_all(self, state: ClassState) -> bool:
        return state.get(RULES[HARD]) is None

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        self._reject(state, nodes)

    def filter_with_open_domains(self, state: ClassState, nodes: NodeView) -> None:
        self._reject(state, nodes, open_domains=True)

    def _reject(self, state: ClassState, nodes: NodeView, *, open_domains: bool = False) -> None:
        view = view_of(nodes)
        limits = self._limits(state, state[RULES[HARD]], view.table)
        census = self._census(state, HARD, view.table)
        hard.reject(limits, census, view, state.pod.namespace, open_domains=open_domains)

    # Soft constraints

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        rules, late, view = state.get(RULES[SOFT]), self.feasible_summary(state), view_of(nodes)
        if rules is None or late is None or len(late["domains"]) != len(rules.constraints):
            return np.zeros(len(nodes), dtype=np.int64)
        census = self._census(state, SOFT, view.table)
        weights = soft.weights(late)
        return soft.scores(rules, self._pods(state, rules, view.table), weights, census, view, state.pod.namespace)

    # Rounds

    def topology(self, state: ClassState, nodes: NodeView) -> Topology | None:
        keys: set[str] = set()
        domains: dict[str, int] = {}
        for kind in (HARD, SOFT):
            rules = state.get(RULES[kind])
            if rules is None:
                continue
            for constraint, part in zip(rules.constraints, self._believed(state, kind, table_of(nodes)), strict=True):
                if kind == HARD or not constraint.is_of_hosts:
                    keys.add(constraint.key)
                if not constraint.is_of_hosts:
                    domains[constraint.key] = len(part["domains"]) + 1
        return Topology(tuple(sorted(keys)), _strata(domains)) if keys else None

    def tracker(self, pod: Pod, summary: Any, feasible: Any, scores: Range | None) -> Tracker | None:
        if summary is None:
            return None
        told = summary["fellows"]
        selector = None if told is None else msgspec.convert(told, LabelSelector)
        hard_rules = self._defaults.rules(pod, "DoNotSchedule", selector) if summary[HARD] else Rules((), True)
        soft_rules = self._defaults.rules(pod, "ScheduleAnyway", selector) if summary[SOFT] else Rules((), True)
        return follow(pod, (hard_rules, soft_rules), summary, feasible, scores)

    # Inside

    def _census(self, state: ClassState, kind: str, table: NodeTable) -> Census:
        census = state.get(CENSUS[kind])
        if census is None or census.table is not table:
            rules = state.get(RULES[kind]) or Rules((), True)
            census = state[CENSUS[kind]] = Census(table, state, rules, of_hosts=kind == HARD)
        census.refresh()
        return census

    def _parts(self, state: ClassState, kind: str, table: NodeTable) -> list[Any]:
        return [] if state.get(RULES[kind]) is None else self._census(state, kind, table).parts()

    def _believed(self, state: ClassState, kind: str, table: NodeTable) -> list[Any]:
        """The merged parts; this shard's own while the shards do not agree on what the constraints are."""
        own = self._parts(state, kind, table)
        summary = self.summary(state)
        return own if summary is None or len(summary[kind]) != len(own) else summary[kind]

    def _limits(self, state: ClassState, rules: Rules, table: NodeTable) -> list[hard.Limit]:
        make = partial(hard.limit, labels=state.pod.metadata.labels, table=table)
        return self._worked_out(state, HARD, rules, table, make)

    def _pods(self, state: ClassState, rules: Rules, table: NodeTable) -> list[Ints]:
        return self._worked_out(state, SOFT, rules, table, partial(soft.pods_by_domain, table=table))

    def _worked_out(
        self, state: ClassState, kind: str, rules: Rules, table: NodeTable, make: Callable[[Constraint, Any], T]
    ) -> list[T]:
        """Something for each constraint; once for a summary, for as long as no node brings a new value."""
        summary, position = self.summary(state), table.node_log.position
        known = state.get(WORKED_OUT[kind])
        if known is None or known[0] is not summary or known[1] != position:
            parts = zip(rules.constraints, self._believed(state, kind, table), strict=True)
            known = state[WORKED_OUT[kind]] = (
                summary,
                position,
                [make(constraint, part) for constraint, part in parts],
            )
        return known[2]


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
