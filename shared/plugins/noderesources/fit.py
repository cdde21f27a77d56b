"""NodeResourcesFit keeps pods off nodes without room for them, and scores nodes by how full they would be.

A verdict is a set of bits, one for each resource that is short, in the order in which the reasons are given; one more
bit says that the node could not hold the pod even if it were empty.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.results import MAX_NODE_SCORE, SUCCESS, Code, PreFilterResult, Status
from shared.cluster.changes import Rows
from shared.cluster.nodetable import CPU, EPHEMERAL, MEMORY, PODS, Amounts
from shared.config.args import DEFAULT_STRATEGY, NodeResourcesFitArgs
from shared.errors import InvalidObject
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import Scores
from shared.framework.plugin import FilterPlugin, PodParts, PreFilterPlugin, PreScorePlugin, ScorePlugin, Verdicts
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import Pod
from shared.model.resources import filter_requests, fit_score_request, is_extended_resource, placed_requests
from shared.plugins.hints import resources as hints
from shared.plugins.noderesources.kernels import (
    by_shape,
    least_allocated,
    most_allocated,
    shape_table,
    weighted_mean,
)
from shared.plugins.noderesources.scorer import shares

BASIC = (("cpu", CPU), ("memory", MEMORY), ("ephemeral-storage", EPHEMERAL))
PODS_BIT = 1
FIRST_SCALAR_BIT = 1 << (1 + len(BASIC))
UNRESOLVABLE_BIT = 1 << 60
MOST_SCALARS = 50

_FILTER = "filter requests"
_SCORE = "score requests"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pod asks for: the basic resources in their order, then the others by name."""

    basic: tuple[int, ...]
    scalars: tuple[tuple[str, int], ...]


class NodeResourcesFit(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    name = "NodeResourcesFit"
    reads_of_pod = PodParts.TEMPLATE

    def __init__(self, args: NodeResourcesFitArgs) -> None:
        strategy = args.scoring_strategy or DEFAULT_STRATEGY
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._resources = tuple(resource.name for resource in strategy.resources)
        self._weights = np.array([[resource.weight] for resource in strategy.resources], dtype=np.int64)
        self._strategy = strategy.type
        ratio = strategy.requested_to_capacity_ratio
        points = [] if ratio is None else [(p.utilization, p.score * MAX_NODE_SCORE // 10) for p in ratio.shape]
        self._shape = shape_table(points) if points else np.zeros(101, dtype=np.int64)

    def signature(self, pod: Pod) -> Hashable:
        placed = placed_requests(pod)
        return (
            tuple(sorted(filter_requests(pod).items())),
            self._amounts(pod),
            tuple(sorted(placed.requests.items())),
            placed.non_zero_cpu,
            placed.non_zero_memory,
        )

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, hints.after_pod_event),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, hints.after_node_change),
            Registration(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE, hints.after_device_class),
        )

    # Filter

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        state.write(self.name, _FILTER, self._wanted(state.pod))
        return PreFilterResult()

    def _wanted(self, pod: Pod) -> Wanted:
        requests = filter_requests(pod)
        scalars = sorted(
            (name, amount)
            for name, amount in requests.items()
            if amount and name not in ("cpu", "memory", "ephemeral-storage") and not self._is_ignored(name)
        )
        if len(scalars) > MOST_SCALARS:
            reason = f"asks for {len(scalars)} extended resources, more than {MOST_SCALARS}"
            raise InvalidObject("Pod", pod.key, "spec.containers", reason)
        return Wanted(tuple(requests.get(name, 0) for name, _ in BASIC), tuple(scalars))

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        verdicts: Verdicts = self.filter_all([state], None, view)[0]
        return verdicts

    def filter_all(self, states: Sequence[CycleState], which: Rows | None, view: NodeView) -> Verdicts:
        wanted = [self._wanted_by(state) for state in states]
        basic = np.array([w.basic for w in wanted], dtype=np.int64)
        shape = (len(states), len(view)) if which is None else (len(view),)
        verdicts = np.empty(shape, dtype=np.int64)
        verdicts[:] = (view.used[PODS] >= view.allocatable[PODS]) * PODS_BIT
        for i, (_, number) in enumerate(BASIC):
            if any(w.basic[i] for w in wanted):
                request = basic[:, i, None] if which is None else basic[which, i]
                short = _short(request, view.allocatable[number], view.used[number], 2 << i)
                if short is not None:
                    verdicts |= short
        for pod, w in enumerate(wanted):
            if w.scalars:
                at = (pod, slice(None)) if which is None else which == pod
                verdicts[at] |= self._short_of_scalars(w, view)[... if which is None else at]
        return verdicts

    def _short_of_scalars(self, wanted: Wanted, view: NodeView) -> Verdicts:
        verdicts = np.zeros(len(view), dtype=np.int64)
        for i, (name, amount) in enumerate(wanted.scalars):
            number = view.table.resources.known(name)
            if number is None:
                verdicts |= (FIRST_SCALAR_BIT << i) | UNRESOLVABLE_BIT
            else:
                short = _short(np.int64(amount), view.allocatable[number], view.used[number], FIRST_SCALAR_BIT << i)
                if short is not None:
                    verdicts |= short
        return verdicts

    def explain(self, state: CycleState, verdict: int) -> Status:
        wanted = self._wanted_by(state)
        names = [*(name for name, _ in BASIC), *(name for name, _ in wanted.scalars)]
        reasons = ["Too many pods"] if verdict & PODS_BIT else []
        reasons += [f"Insufficient {name}" for i, name in enumerate(names) if verdict & (2 << i)]
        return Status(Code.UNRESOLVABLE if verdict & UNRESOLVABLE_BIT else Code.UNSCHEDULABLE, tuple(reasons))

    def _wanted_by(self, state: CycleState) -> Wanted:
        known: Wanted | None = state.read(self.name, _FILTER)
        return self._wanted(state.pod) if known is None else known

    def _is_ignored(self, resource: str) -> bool:
        return is_extended_resource(resource) and (
            resource in self._ignored or resource.partition("/")[0] in self._ignored_groups
        )

    # Score

    def pre_score(self, state: CycleState) -> Status:
        state.write(self.name, _SCORE, self._amounts(state.pod))
        return SUCCESS

    def score(self, state: CycleState, view: NodeView) -> Scores:
        scores: Scores = self.score_all([state], None, view)[0]
        return scores

    def score_all(self, states: Sequence[CycleState], which: Rows | None, view: NodeView) -> Scores:
        requests = [self._requests(state) for state in states]
        found = shares(self._resources, requests, which, view, non_zero=True)
        scores = self._strategy_scores(found.used + found.request, found.capacity)
        weights = self._weights if found.counted is None else found.counted * self._weights
        if self._strategy == "RequestedToCapacityRatio":
            return weighted_mean(scores, weights * (scores > 0), rounded=True)
        return weighted_mean(scores, weights, rounded=False)

    def _strategy_scores(self, used: Amounts, capacity: Amounts) -> Scores:
        if self._strategy == "LeastAllocated":
            return least_allocated(used, capacity)
        if self._strategy == "MostAllocated":
            return most_allocated(used, capacity)
        return by_shape(used, capacity, self._shape)

    def _requests(self, state: CycleState) -> tuple[int, ...]:
        known: tuple[int, ...] | None = state.read(self.name, _SCORE)
        return self._amounts(state.pod) if known is None else known

    def _amounts(self, pod: Pod) -> tuple[int, ...]:
        return tuple(fit_score_request(pod, resource) for resource in self._resources)


def _short(request: Amounts | np.int64, capacity: Amounts, used: Amounts, bit: int) -> Verdicts | None:
    """`bit` where a request does not fit into what is free, and the unresolvable bit where not even into all there is;
    None where everything fits."""
    short = request > capacity - used
    if not short.any():
        return None
    return (short & (request > 0)) * (bit + (request > capacity) * np.int64(UNRESOLVABLE_BIT))
