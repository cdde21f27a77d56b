"""PodTopologySpread: hard constraints reject nodes, soft ones score them.

Summary: `hard` and `soft`, for each constraint the pods by domain over the nodes that take part; and `fellows`, the
selector that default constraints were given. Late summary: the domains that the feasible nodes are in.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

from flotilla.nodes import ABSENT, Ints, Mask, NodeView
from flotilla.objects import LabelSelector, ObjectKind, Pod
from flotilla.plugin import (
    ClassState,
    DomainFilter,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    Scores,
    StateKey,
    SummaryPlugin,
    Tracker,
)
from flotilla.results import (
    MAX_NODE_SCORE,
    SKIP,
    SUCCESS,
    PreFilterResult,
    Range,
    Status,
    Topology,
    unresolvable,
    unschedulable,
)
from shared.cluster.columns import Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.topology import pod_count
from shared.cluster.view import TableView, view_of
from shared.config.args import PodTopologySpreadArgs
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates
from shared.plugins.base import InTreePlugin
from shared.plugins.grouping import IGNORED, Follower, Grouped, GroupedScore
from shared.plugins.podtopologyspread.constraints import (
    Action,
    Constraint,
    Defaults,
    Rules,
    controller_of,
    default_selector,
    default_selector_kinds,
    spreading_registrations,
)
from shared.plugins.podtopologyspread.counts import (
    ConstraintCounts,
    Part,
    ShardCounts,
    by_number,
    counted,
    late_summary,
    merge_late,
    merge_parts,
    weights,
)
from shared.plugins.podtopologyspread.following import SpreadFollower, can_follow, group_rows
from shared.plugins.podtopologyspread.tracker import follow

T = TypeVar("T")

MISMATCH = "node(s) didn't match pod topology spread constraints"
SKEWED = unschedulable(MISMATCH)
LABEL_MISSING = unresolvable(f"{MISMATCH} (missing required label)")
NO_DOMAIN = 1 << 31
"""In place of the lowest count, if there is no domain."""
MAX_STRATA = 64
"""By labels with more combinations of values than this, ladders are not split."""

HARD, SOFT = "hard", "soft"
ACTIONS: Mapping[str, Action] = {HARD: "DoNotSchedule", SOFT: "ScheduleAnyway"}


class FewestFirst:
    """The lower the raw score, the better; all alike if there is nothing to tell them apart by."""

    def __call__(self, raw: Scores, low: int, high: int) -> Scores:
        alike = np.full(raw.shape, MAX_NODE_SCORE, dtype=np.int64)
        scaled = MAX_NODE_SCORE * (high + low - raw) // high if high > 0 else alike
        return np.where(raw == IGNORED, 0, scaled)


@dataclass(frozen=True, slots=True)
class Limit:
    """A hard constraint by the merged summary: in a domain at most `max_skew` more pods than in the emptiest.

    `pods`: by the number of the domain, and 0 at the end, for nodes that have none. `low`: the two lowest counts.
    """

    constraint: Constraint
    own: int
    pods: Ints
    low: tuple[int, int]
    too_few: bool

    @classmethod
    def by(cls, constraint: Constraint, part: Part, pod: Pod, table: NodeTable) -> "Limit":
        low = (*sorted([*part["domains"].values(), *part["low"]])[:2], NO_DOMAIN, NO_DOMAIN)
        too_few = len(part["domains"]) + part["private"] < constraint.min_domains
        own = int(constraint.matches(pod.metadata.labels))
        return cls(constraint, own, by_number(part, constraint, table), low[:2], too_few)

    def fits(self, counts: ConstraintCounts, nodes: TableView, namespace: str) -> Mask:
        """Which nodes stay within the skew. Hypothetical pods count in the domains of their own node."""
        index = nodes.index
        there: Ints = self.pods[counts.domain[index]]
        if len(counts.private):
            there = there + np.where(counts.is_private[index], counts.pods[index], 0)
        lowest: int | Ints = self.low[0]
        if nodes.hypothetical_pods:
            change = np.where(counts.taking_part[index], _change(self.constraint, nodes, namespace), 0)
            others = np.where(there == self.low[0], self.low[1], self.low[0])
            there = there + change
            lowest = np.where(change == 0, lowest, np.minimum(there, others))
        if self.too_few:
            lowest = 0
        return there + (self.own - self.constraint.max_skew) <= lowest


def _change(constraint: Constraint, nodes: NodeView, namespace: str) -> Ints:
    """By how much the hypothetical pods change the count of each node.

    Planned pods count as placed ones do. Nominated pods and victims count whenever the selector matches, even if they
    are terminating or the selector is empty.
    """
    change = nodes.change_of(pod_count([namespace], constraint.selector, with_terminating=True), planned=False)
    if not constraint.counts:
        return change
    return change + nodes.change_of(pod_count([namespace], constraint.selector), planned=True)


@dataclass(slots=True)
class Prepared:
    """The constraints of one kind that apply to a class, and what was computed from them."""

    kind: str
    state: ClassState
    rules: Rules
    shard: ShardCounts | None = None
    computed: tuple[object, int, list[Any]] | None = None

    def counts(self, table: NodeTable) -> ShardCounts:
        if self.shard is None or self.shard.table is not table:
            self.shard = ShardCounts(table, self.state, self.rules, of_hosts=self.kind == HARD)
        self.shard.refresh()
        return self.shard

    def merged_parts(self, summary: Any, table: NodeTable) -> list[Any]:
        """This shard's own parts while the shards do not agree on what the constraints are."""
        own = self.counts(table).parts
        return own if summary is None or len(summary[self.kind]) != len(own) else summary[self.kind]

    def by_summary(self, summary: Any, table: NodeTable, make: Callable[[Constraint, Any], T]) -> list[T]:
        """Something for each constraint; computed once for a summary, until a node object changes."""
        position = table.node_log.position
        if self.computed is None or self.computed[0] is not summary or self.computed[1] != position:
            parts = zip(self.rules.constraints, self.merged_parts(summary, table), strict=True)
            self.computed = summary, position, [make(constraint, part) for constraint, part in parts]
        return self.computed[2]


PREPARED = {kind: StateKey[Prepared](f"{kind} constraints") for kind in (HARD, SOFT)}
FEASIBLE = StateKey[tuple[int, Mask, Any]]("the summary of feasible nodes")


class PodTopologySpread(
    InTreePlugin, PreFilterPlugin, SummaryPlugin[Any, Any], DomainFilter, PreScorePlugin, ScorePlugin, GroupedScore
):
    name = "PodTopologySpread"
    normalizer = FewestFirst()
    unranged = IGNORED

    def __init__(self, args: PodTopologySpreadArgs, gates: FeatureGates = DEFAULT_GATES) -> None:
        self._defaults = Defaults(args, gates)
        self.registrations = spreading_registrations(self._defaults)

    def signature(self, pod: Pod) -> Hashable:
        """Namespace and labels also of a pod without any constraint: by these others count it."""
        labels = tuple(sorted(pod.metadata.labels.items()))
        own = pod.spec.topology_spread_constraints
        if not own and not self._defaults.constraints:
            return pod.namespace, labels
        owner = None if own else controller_of(pod)
        affinity = pod.spec.affinity
        node_affinity = None if affinity is None else affinity.node_affinity
        return (
            pod.namespace,
            labels,
            msgspec.msgpack.encode(own) if own else None,
            None if owner is None else (owner.api_version, owner.kind, owner.name),
            tuple(sorted(pod.spec.node_selector.items())),
            None if node_affinity is None else msgspec.msgpack.encode(node_affinity),
            tuple((t.key, t.operator, t.value, t.effect) for t in pod.spec.tolerations),
        )

    def reads_objects(self, state: ClassState) -> Collection[ObjectKind]:
        return default_selector_kinds(state.pod) if self._defaults.apply_to(state.pod) else ()

    # Which constraints there are

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult(self._prepare(state, HARD))

    def pre_score(self, state: ClassState) -> Status:
        return self._prepare(state, SOFT)

    def _prepare(self, state: ClassState, kind: str) -> Status:
        selector = default_selector(state.pod, state.objects) if self._defaults.apply_to(state.pod) else None
        rules = self._defaults.rules(state.pod, ACTIONS[kind], selector)
        if not rules.constraints:
            return SKIP
        state[PREPARED[kind]] = Prepared(kind, state, rules)
        return SUCCESS

    # Summaries for other shards

    def summarize(self, state: ClassState, nodes: NodeView) -> Any:
        table = view_of(nodes).table
        hard, soft = state.get(PREPARED[HARD]), state.get(PREPARED[SOFT])
        either = hard or soft
        if either is None:
            return None
        selector = either.rules.default_selector
        return {
            "fellows": None if selector is None else msgspec.to_builtins(selector),
            HARD: [] if hard is None else list(hard.counts(table).parts),
            SOFT: [] if soft is None else list(soft.counts(table).parts),
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
        known = state.get(FEASIBLE)
        if known is None or known[0] != nodes.nodes_version or not np.array_equal(known[1], feasible):
            table = view_of(nodes).table
            hard, soft = state.get(PREPARED[HARD]), state.get(PREPARED[SOFT])
            if hard is None and soft is None:
                return None
            hard_counts = None if hard is None else hard.counts(table)
            soft_counts = None if soft is None else soft.counts(table)
            known = (nodes.nodes_version, feasible.copy(), late_summary(hard_counts, soft_counts, feasible))
            state[FEASIBLE] = known
        return known[2]

    def merge_feasible(self, one: Any, other: Any) -> Any:
        if any(len(one[part]) != len(other[part]) for part in ("domains", "reliable")):
            return max(one, other, key=_order)
        return merge_late(one, other)

    # Hard constraints

    def passes_all(self, state: ClassState) -> bool:
        return state.get(PREPARED[HARD]) is None

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        self._reject(state, nodes)

    def filter_with_open_domains(self, state: ClassState, nodes: NodeView) -> None:
        """Reject only for what trackers do not look at: missing labels, hostnames, nodes that take no part."""
        self._reject(state, nodes, open_domains=True)

    def _reject(self, state: ClassState, nodes: NodeView, *, open_domains: bool = False) -> None:
        """The first constraint that a node fails gives the reason."""
        view, prepared = view_of(nodes), state[PREPARED[HARD]]

        def limit(constraint: Constraint, part: Part) -> Limit:
            return Limit.by(constraint, part, state.pod, view.table)

        limits = prepared.by_summary(self.summary(state), view.table, limit)
        for bound, counts in zip(limits, prepared.counts(view.table).constraints, strict=True):
            if counts is None:
                continue
            view.reject(~counts.labelled[view.index], LABEL_MISSING)
            fits = bound.fits(counts, view, state.pod.namespace)
            if open_domains and not bound.constraint.is_of_hosts:
                fits |= counts.taking_part[view.index]
            view.reject(~fits, SKEWED)

    # Soft constraints

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        """Nodes whose domains have many of the pods score high, and are normalized so that few is better."""
        prepared, late, view = state.get(PREPARED[SOFT]), self.feasible_summary(state), view_of(nodes)
        if prepared is None or late is None or len(late["domains"]) != len(prepared.rules.constraints):
            return np.zeros(len(nodes), dtype=np.int64)
        shard = prepared.counts(view.table)

        def pods_by_domain(constraint: Constraint, part: Part | None) -> Ints | None:
            return None if part is None else by_number(part, constraint, view.table)

        pods = prepared.by_summary(self.summary(state), view.table, pods_by_domain)
        total = np.zeros(len(nodes), dtype=np.float64)
        of_each = zip(prepared.rules.constraints, pods, weights(late), shard.constraints, strict=True)
        for constraint, of_domain, weight, counts in of_each:
            column = counted(constraint, state.pod.namespace)
            values = view.label(constraint.key).numbers
            if column is None:
                count = np.zeros(len(view), dtype=np.int64)
            elif counts is None or of_domain is None:  # of hosts: counted node by node
                count = view.of_pods(column)
            else:
                count = of_domain[values]
                if view.hypothetical_pods:
                    count = count + np.where(counts.taking_part[view.index], view.change_of(column), 0)
            total += np.where(values == ABSENT, 0.0, count * weight + (constraint.max_skew - 1))
        whole = np.floor(total)
        rounded = (whole + (total - whole >= 0.5)).astype(np.int64)
        return np.where(shard.has_keys[view.index], rounded, IGNORED)

    # Rounds

    def topology(self, state: ClassState, nodes: NodeView) -> Topology | None:
        keys: set[str] = set()
        domains: dict[str, int] = {}
        for kind, key in PREPARED.items():
            prepared = state.get(key)
            if prepared is None:
                continue
            parts = prepared.merged_parts(self.summary(state), view_of(nodes).table)
            for constraint, part in zip(prepared.rules.constraints, parts, strict=True):
                if kind == HARD or not constraint.is_of_hosts:
                    keys.add(constraint.key)
                if not constraint.is_of_hosts:
                    domains[constraint.key] = len(part["domains"]) + 1
        return Topology(tuple(sorted(keys)), _strata(domains)) if keys else None

    def tracker(self, pod: Pod, summary: Any, feasible: Any, scores: Range | None) -> Tracker | None:
        if summary is None:
            return None
        return follow(
            pod, (self._rules(pod, summary, HARD), self._rules(pod, summary, SOFT)), summary, feasible, scores
        )

    def _rules(self, pod: Pod, summary: Any, kind: str) -> Rules:
        """Those of which the summary tells."""
        encoded = summary["fellows"]
        selector = None if encoded is None else msgspec.convert(encoded, LabelSelector)
        return self._defaults.rules(pod, ACTIONS[kind], selector) if summary[kind] else Rules((), True)

    # Between rounds

    def can_follow(self, state: ClassState) -> bool:
        soft = state.get(PREPARED[SOFT])
        return soft is not None and state.get(PREPARED[HARD]) is None and can_follow(soft.rules)

    def group(self, state: ClassState, nodes: NodeView, rows: Rows) -> Grouped | None:
        return group_rows(state[PREPARED[SOFT]].counts(view_of(nodes).table), state.pod.namespace, rows)

    def follower(self, pod: Pod, summary: Any) -> Follower | None:
        if summary is None or summary[HARD] or not summary[SOFT]:
            return None
        rules = self._rules(pod, summary, SOFT)
        is_told = len(rules.constraints) == len(summary[SOFT])
        return SpreadFollower(pod, rules) if is_told and can_follow(rules) else None


def _order(summary: dict[str, Any]) -> str:
    return repr(sorted(summary.items()))


def _strata(domains: dict[str, int]) -> tuple[str, ...]:
    """The labels with the fewest values first, as many as make few combinations."""
    chosen: list[str] = []
    combinations = 1
    for key, number in sorted(domains.items(), key=lambda item: (item[1], item[0])):
        combinations *= number
        if combinations > MAX_STRATA:
            break
        chosen.append(key)
    return tuple(sorted(chosen))
