"""NodeResourcesFit keeps pods off nodes without room for them, and scores nodes by how full they would be.

What is short on a node is a set of bits, one for each resource in the order of the reasons; one more bit says that the
node could not hold the pod even if it were empty.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from flotilla.plugin import (
    MAX_NODE_SCORE,
    SUCCESS,
    Action,
    BatchFilter,
    BatchScore,
    ClassState,
    ClusterObjects,
    Code,
    Index,
    Ints,
    Mask,
    Node,
    NodeView,
    Pod,
    PodParts,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    Registration,
    Resource,
    Scores,
    StateKey,
    Status,
)
from shared.config.args import DEFAULT_STRATEGY, NodeResourcesFitArgs
from shared.errors import InvalidObject
from shared.model.devices import DEVICE_CLASS_PREFIX, DeviceClass
from shared.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    allocatable,
    filter_requests,
    fit_score_request,
    is_extended_resource,
    placed_requests,
    pod_requests,
)
from shared.plugins.noderesources.kernels import (
    by_shape,
    least_allocated,
    most_allocated,
    shape_table,
    shares,
    weighted_mean,
)
from shared.plugins.queueing_hints import is_placed

BASIC = (CPU, MEMORY, EPHEMERAL_STORAGE)
PODS_BIT = 1
FIRST_SCALAR_BIT = 1 << (1 + len(BASIC))
UNRESOLVABLE_BIT = 1 << 60
MOST_SCALARS = 50


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pod requests: the basic resources in their order, then the others by name."""

    basic: tuple[int, ...]
    scalars: tuple[tuple[str, int], ...]


WANTED = StateKey[Wanted]("requests that must fit")
SCORED = StateKey[tuple[int, ...]]("requests that nodes are scored by")


class NodeResourcesFit(PreFilterPlugin, BatchFilter, PreScorePlugin, BatchScore):
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

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, after_pod_event),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, after_node_change),
            Registration(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE, after_device_class),
        )

    # Filter

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        state[WANTED] = self._wanted(state.pod)
        return PreFilterResult()

    def _wanted(self, pod: Pod) -> Wanted:
        requests = filter_requests(pod)
        scalars = sorted(
            (name, amount)
            for name, amount in requests.items()
            if amount and name not in BASIC and not self._is_ignored(name)
        )
        if len(scalars) > MOST_SCALARS:
            reason = f"asks for {len(scalars)} extended resources, more than {MOST_SCALARS}"
            raise InvalidObject("Pod", pod.key, "spec.containers", reason)
        return Wanted(tuple(requests.get(name, 0) for name in BASIC), tuple(scalars))

    def filter_batch(self, states: Sequence[ClassState], which: Index | None, nodes: NodeView) -> None:
        wanted = [self._wanted_by(state) for state in states]
        basic = np.array([w.basic for w in wanted], dtype=np.int64)
        short = np.empty((len(states), len(nodes)) if which is None else len(nodes), dtype=np.int64)
        short[:] = (nodes.requested(PODS)[0] >= nodes.allocatable(PODS)[0]) * PODS_BIT
        for i, name in enumerate(BASIC):
            if any(w.basic[i] for w in wanted):
                _add_short(short, basic[:, i, None] if which is None else basic[which, i], nodes, name, 2 << i)
        if not any(w.scalars for w in wanted):
            _reject(nodes, short, BASIC)
            return
        for pod, w in enumerate(wanted):
            of_pod = np.zeros(short.shape, dtype=np.bool_)
            of_pod[pod if which is None else which == pod] = True
            lacking = np.where(of_pod, short, 0)
            for i, (name, amount) in enumerate(w.scalars):
                _add_short(lacking, of_pod * np.int64(amount), nodes, name, FIRST_SCALAR_BIT << i)
            _reject(nodes, lacking, (*BASIC, *(name for name, _ in w.scalars)))

    def _wanted_by(self, state: ClassState) -> Wanted:
        known = state.get(WANTED)
        return self._wanted(state.pod) if known is None else known

    def _is_ignored(self, resource: str) -> bool:
        return is_extended_resource(resource) and (
            resource in self._ignored or resource.partition("/")[0] in self._ignored_groups
        )

    # Score

    def pre_score(self, state: ClassState) -> Status:
        state[SCORED] = self._amounts(state.pod)
        return SUCCESS

    def score_batch(self, states: Sequence[ClassState], which: Index | None, nodes: NodeView) -> Scores:
        requests = [self._requests(state) for state in states]
        found = shares(self._resources, requests, which, nodes, non_zero=True)
        scores = self._strategy_scores(found.used + found.request, found.capacity)
        weights = self._weights if found.counted is None else found.counted * self._weights
        if self._strategy == "RequestedToCapacityRatio":
            return weighted_mean(scores, weights * (scores > 0), rounded=True)
        return weighted_mean(scores, weights, rounded=False)

    def _strategy_scores(self, used: Ints, capacity: Ints) -> Scores:
        if self._strategy == "LeastAllocated":
            return least_allocated(used, capacity)
        if self._strategy == "MostAllocated":
            return most_allocated(used, capacity)
        return by_shape(used, capacity, self._shape)

    def _requests(self, state: ClassState) -> tuple[int, ...]:
        known = state.get(SCORED)
        return self._amounts(state.pod) if known is None else known

    def _amounts(self, pod: Pod) -> tuple[int, ...]:
        return tuple(fit_score_request(pod, resource) for resource in self._resources)


def _add_short(short: Ints, request: Ints, nodes: NodeView, resource: str, bit: int) -> None:
    """Set `bit` where a request exceeds what is free, and the unresolvable bit where it exceeds all there is."""
    capacity = nodes.allocatable(resource)[0]
    lacks: Mask = request > capacity - nodes.requested(resource)[0]
    if lacks.any():
        short |= (lacks & (request > 0)) * (bit + (request > capacity) * np.int64(UNRESOLVABLE_BIT))


def _reject(nodes: NodeView, short: Ints, resources: Sequence[str]) -> None:
    if not short.any():
        return
    for bits in np.unique(short).tolist():
        if bits:
            reasons = ["Too many pods"] if bits & PODS_BIT else []
            reasons += [f"Insufficient {name}" for i, name in enumerate(resources) if bits & (2 << i)]
            code = Code.UNRESOLVABLE if bits & UNRESOLVABLE_BIT else Code.UNSCHEDULABLE
            nodes.reject(short == bits, Status(code, tuple(reasons)))


# Queueing hints. A node is looked at as if it were empty, and resources that the profile ignores are not ignored here.


def after_pod_event(pod: Pod, before: Pod, now: Pod | None, objects: ClusterObjects) -> bool:
    """A placed pod is gone, or one on a node has less of what this one wants, or this one wants less."""
    if now is None:
        return is_placed(before)
    if now.uid == pod.uid:
        return True
    if not now.spec.node_name:
        return False
    had, has = placed_requests(before).requests, placed_requests(now).requests
    wanted = placed_requests(pod).requests
    return any(amount and had.get(name, 0) > has.get(name, 0) for name, amount in wanted.items())


def after_node_change(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The empty node has room for the pod, and it is new or has more of something than before."""
    wanted = {name: amount for name, amount in filter_requests(pod).items() if amount}
    room = allocatable(now)
    if room.get(PODS, 0) < 1 or any(
        amount > room.get(name, 0) and not _is_left_to_devices(name, room, objects) for name, amount in wanted.items()
    ):
        return False
    if before is None:
        return True
    had = allocatable(before)
    return room.get(PODS, 0) > had.get(PODS, 0) or any(
        room.get(name, 0) > had.get(name, 0) or _is_left_to_devices(name, room, objects) for name in wanted
    )


def after_device_class(pod: Pod, before: DeviceClass | None, now: DeviceClass, objects: ClusterObjects) -> bool:
    """Devices of the class can serve as a resource that the pod requests."""
    resource = now.spec.extended_resource_name
    names = [] if resource is None else [resource]
    if before is None:
        names.append(DEVICE_CLASS_PREFIX + now.name)
    elif (before.spec.extended_resource_name or "") == (resource or ""):
        return False
    requests = pod_requests(pod, use_status=False) if names else {}
    return any(name in requests for name in names)


def _is_left_to_devices(name: str, room: dict[str, int], objects: ClusterObjects) -> bool:
    """A node that has none of the resource may still have a device that serves as one."""
    return name not in BASIC and not room.get(name) and objects.devices.provides(name)
