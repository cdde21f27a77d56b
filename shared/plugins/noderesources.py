"""NodeResourcesFit and NodeResourcesBalancedAllocation: room for a pod, and scores by how full nodes would be.

Arithmetic is over resources x nodes; if classes of pods have an axis, it comes first, and everything broadcasts.
Divisions truncate, as kube-scheduler's integer divisions do (all operands are non-negative where it matters).
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from flotilla.events import Action, Registration, Resource
from flotilla.nodes import Index, Ints, Mask, NodeView, PodColumn
from flotilla.objects import ClusterObjects, Node, ObjectKind, Pod, PodLoad
from flotilla.plugin import BatchFilter, BatchScore, ClassState, PreFilterPlugin, PreScorePlugin, Scores, StateKey
from flotilla.results import MAX_NODE_SCORE, SKIP, SUCCESS, Code, PreFilterResult, Status
from shared.cluster.devices import Devices
from shared.config.args import DEFAULT_STRATEGY, NodeResourcesBalancedAllocationArgs, NodeResourcesFitArgs
from shared.config.feature_gates import DEFAULT_GATES, Feature, FeatureGates
from shared.devices.pod_claims import extended_resources, is_provided_by_devices
from shared.devices.pools import DeviceNode
from shared.errors import InvalidObject
from shared.model.devices import DEVICE_CLASS_PREFIX, DeviceClass
from shared.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    allocatable,
    balance_score_request,
    filter_requests,
    fit_score_request,
    is_extended_resource,
    is_scalar_resource,
    placed_requests,
    pod_requests,
)
from shared.plugins.base import InTreePlugin, is_placed

Fractions = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shares:
    """Resources x nodes, with an axis of classes in front if `request` has one.

    `counted` is None if all resources count for all classes on all nodes; otherwise `capacity` is at least one.
    """

    request: Ints
    used: Ints
    capacity: Ints
    counted: Mask | None


def shares(
    resources: Sequence[str],
    requests: Sequence[tuple[int, ...]],
    which: Index | None,
    nodes: NodeView,
    *,
    non_zero: bool,
    devices: Devices | None = None,
) -> Shares:
    """For every class on every node; with `which`, for class `which[i]` on the i-th node only.

    A resource does not count on nodes that have none of it, nor, unless it is a basic one, for pods that do not request
    it. `devices`: with them, a node that has none of a resource has the devices of the class that provides it.
    """
    amounts = np.array(requests, dtype=np.int64).reshape(len(requests), len(resources))
    request = amounts[:, :, None] if which is None else amounts[which].T
    resources = tuple(resources)
    if resources == (CPU, MEMORY):
        used = nodes.non_zero_requested() if non_zero else nodes.requested(CPU, MEMORY)
        capacity = nodes.allocatable(CPU, MEMORY)
        if capacity.all():
            return Shares(request, used, capacity, None)
    else:
        names = tuple("" if name == "pods" else name for name in resources)  # how many pods is not an amount
        used, capacity = nodes.requested(*names), nodes.allocatable(*names)
        if non_zero:
            used = used.copy()
            for number, name in enumerate((CPU, MEMORY)):
                if name in resources:
                    used[resources.index(name)] = nodes.non_zero_requested()[number]
        if devices is not None and amounts.any():
            used, capacity = _with_devices(resources, used, capacity, nodes, devices)
    optional = np.array([is_scalar_resource(name) for name in resources])[:, None]
    counted = (capacity > 0) & (~optional | (request > 0))
    return Shares(request, used, np.maximum(capacity, 1), counted)


@dataclass(frozen=True, slots=True)
class _Requested(PodColumn):
    """How much of a resource pods request."""

    resource: str

    def amount(self, pod: PodLoad) -> int:
        return pod.requests.get(self.resource, 0)


def _with_devices(
    resources: Sequence[str], used: Ints, capacity: Ints, nodes: NodeView, devices: Devices
) -> tuple[Ints, Ints]:
    """Used and there, of the devices that provide a resource on nodes that have none of it otherwise."""
    used, capacity = used.copy(), capacity.copy()
    for number, name in enumerate(resources):
        device_class = devices.allocator.by_resource.get(name)
        if device_class is None:
            continue
        planned = nodes.change_of(_Requested(name))
        for i in np.flatnonzero((capacity[number] == 0) & nodes.valid).tolist():
            node = nodes.node(i)
            there, taken = devices.allocator.class_totals(DeviceNode(node.name, node.metadata.labels), device_class)
            capacity[number, i], used[number, i] = there, taken + planned[i]
    return used, capacity


def least_allocated(used: Ints, capacity: Ints) -> Scores:
    """The free share in percent; 0 when overfull. `capacity` is positive."""
    scores: Scores = np.maximum(capacity - used, 0) * MAX_NODE_SCORE // capacity
    return scores


def most_allocated(used: Ints, capacity: Ints) -> Scores:
    """The used share in percent. `capacity` is positive."""
    return np.minimum(used, capacity) * MAX_NODE_SCORE // capacity


def by_shape(used: Ints, capacity: Ints, shape: Scores) -> Scores:
    """A score looked up by utilization in percent (`shape` has 101 entries). `capacity` is positive."""
    return shape[np.where(used > capacity, 100, used * 100 // capacity)]


def shape_table(points: list[tuple[int, int]]) -> Scores:
    """The broken line through (utilization, score) points, at 0 to 100 percent.

    Slopes truncate towards 0, also where they fall.
    """
    table = np.empty(101, dtype=np.int64)
    for p in range(101):
        table[p] = points[-1][1]
        for i, (utilization, score) in enumerate(points):
            if p <= utilization:
                if i == 0:
                    table[p] = score
                else:
                    u0, s0 = points[i - 1]
                    rise = (score - s0) * (p - u0)
                    table[p] = s0 + (abs(rise) // (utilization - u0)) * (1 if rise >= 0 else -1)
                break
    return table


def weighted_mean(scores: Scores, weights: Ints, *, rounded: bool) -> Scores:
    """Over the resources: sum of scores x weights over the sum of weights; 0 where no weight is.

    `rounded`: half up, else down.
    """
    total = (scores * weights).sum(axis=-2)
    weight = weights.sum(axis=-2)
    if weight.shape == (1,) and not rounded:
        of_all: Scores = total // max(1, int(weight[0]))
        return of_all
    divisor = np.maximum(weight, 1)
    mean = np.floor(total / divisor + 0.5).astype(np.int64) if rounded else total // divisor
    return np.where(weight > 0, mean, 0)


def balance(used: Ints, capacity: Ints, counted: Mask | None) -> Scores:
    """100 for equal shares of all resources, less the standard deviation of the shares in percent.

    A resource counts only where `counted` says so; with fewer than two nothing is out of balance.
    `capacity` is positive.
    """
    fractions = np.minimum(used / capacity, 1.0)
    if counted is None and fractions.shape[-2] == 2:
        deviation = np.abs(fractions[..., 0, :] - fractions[..., 1, :]) / 2
    else:
        deviation = _deviation(*np.broadcast_arrays(fractions, True if counted is None else counted))
    scores: Scores = ((1 - deviation) * MAX_NODE_SCORE).astype(np.int64)
    return scores


def _deviation(fractions: Fractions, counted: Mask) -> Fractions:
    count = np.count_nonzero(counted, axis=-2)
    divisor = np.maximum(count, 1)
    mean = _in_order(np.where(counted, fractions, 0.0)) / divisor
    distance = np.where(counted, fractions - mean[..., None, :], 0.0)
    of_many = np.sqrt(_in_order(distance * distance) / divisor)
    # The deviation of two shares is half their difference; computed so, it rounds as kube-scheduler's does.
    highest = np.where(counted, fractions, -np.inf).max(axis=-2)
    lowest = np.where(counted, fractions, np.inf).min(axis=-2)
    of_two = np.where(count == 2, highest - lowest, 0.0) / 2
    return np.where(count > 2, of_many, of_two)


def _in_order(values: Fractions) -> Fractions:
    """The sum over the resources, one after the other: floating point sums depend on the order."""
    total: Fractions = values[..., 0, :].copy()
    for resource in range(1, values.shape[-2]):
        total += values[..., resource, :]
    return total


BASIC = (CPU, MEMORY, EPHEMERAL_STORAGE)
PODS_BIT = 1
FIRST_SCALAR_BIT = 1 << (1 + len(BASIC))
UNRESOLVABLE_BIT = 1 << 60
MAX_SCALARS = 50


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pod requests: the basic resources in their order, then the others by name."""

    basic: tuple[int, ...]
    scalars: tuple[tuple[str, int], ...]


WANTED = StateKey[Wanted]("requests that must fit")
SCORED = StateKey[tuple[int, ...]]("requests that nodes are scored by")


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


def after_node_change(
    pod: Pod, before: Node | None, now: Node, objects: ClusterObjects, *, serves_resources: bool = True
) -> bool:
    """The empty node has room for the pod, and it is new or has more of something than before.

    `serves_resources`: devices may serve as extended resources.
    """

    def is_left_to_devices(name: str) -> bool:
        """A node that has none of the resource may still have a device that serves as one."""
        return serves_resources and name not in BASIC and not room.get(name) and objects.devices.provides(name)

    wanted = {name: amount for name, amount in filter_requests(pod).items() if amount}
    room = allocatable(now)
    if room.get(PODS, 0) < 1 or any(
        amount > room.get(name, 0) and not is_left_to_devices(name) for name, amount in wanted.items()
    ):
        return False
    if before is None:
        return True
    had = allocatable(before)
    return room.get(PODS, 0) > had.get(PODS, 0) or any(
        room.get(name, 0) > had.get(name, 0) or is_left_to_devices(name) for name in wanted
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


# The plugins


class NodeResourcesFit(InTreePlugin, PreFilterPlugin, BatchFilter, PreScorePlugin, BatchScore):
    """Keeps pods off nodes without room for them, and scores nodes by how full they would be.

    What is short on a node is a set of bits, one for each resource in the order of the reasons; one more bit says that
    the node could not hold the pod even if it were empty.
    """

    name = "NodeResourcesFit"

    def __init__(self, args: NodeResourcesFitArgs, gates: FeatureGates = DEFAULT_GATES) -> None:
        serves_resources = self._serves_resources = gates.enabled(Feature.RESOURCES_BY_DEVICES)
        after_node = partial(after_node_change, serves_resources=serves_resources)
        registrations = [
            Registration(Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, after_pod_event),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, after_node),
        ]
        if serves_resources:
            registrations.append(Registration(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE, after_device_class))
        self.registrations = registrations
        strategy = args.scoring_strategy or DEFAULT_STRATEGY
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._resources = tuple(resource.name for resource in strategy.resources)
        self._weights = np.array([[resource.weight] for resource in strategy.resources], dtype=np.int64)
        self._strategy = strategy.type
        ratio = strategy.requested_to_capacity_ratio
        points = [] if ratio is None else [(p.utilization, p.score * MAX_NODE_SCORE // 10) for p in ratio.shape]
        self._shape = shape_table(points) if points else np.zeros(101, dtype=np.int64)
        self.packs = strategy.type == "MostAllocated" or bool((np.diff(self._shape) > 0).any())

    def signature(self, pod: Pod) -> Hashable:
        placed = placed_requests(pod)
        return (
            tuple(sorted(filter_requests(pod).items())),
            self._amounts(pod),
            tuple(sorted(placed.requests.items())),
            placed.non_zero_cpu,
            placed.non_zero_memory,
        )

    def reads_objects(self, state: ClassState) -> Collection[ObjectKind]:
        """Device classes may provide extended resources."""
        return {ObjectKind.DEVICE_CLASS} if self._serves_resources and extended_resources(state.pod) else ()

    # Filter

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        state[WANTED] = self._wanted(state.pod)
        return PreFilterResult()

    def _wanted(self, pod: Pod) -> Wanted:
        requests = filter_requests(pod)
        scalars: list[tuple[str, int]] = []
        for name, amount in sorted(requests.items()):
            ignored = name in self._ignored or name.partition("/")[0] in self._ignored_groups
            if amount and name not in BASIC and not (ignored and is_extended_resource(name)):
                scalars.append((name, amount))
        if len(scalars) > MAX_SCALARS:
            reason = f"asks for {len(scalars)} extended resources, more than {MAX_SCALARS}"
            raise InvalidObject("Pod", pod.key, "spec.containers", reason)
        return Wanted(tuple(requests.get(name, 0) for name in BASIC), tuple(scalars))

    def filter_batch(self, states: Sequence[ClassState], which: Index | None, nodes: NodeView) -> None:
        wanted = [state.get(WANTED) or self._wanted(state.pod) for state in states]
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
                request = of_pod * np.int64(amount)
                if self._serves_resources and states[pod].objects.devices.provides(name):
                    request = request * (nodes.allocatable(name)[0] > 0)  # without any, it is a matter of devices
                _add_short(lacking, request, nodes, name, FIRST_SCALAR_BIT << i)
            _reject(nodes, lacking, (*BASIC, *(name for name, _ in w.scalars)))

    # Score

    def pre_score(self, state: ClassState) -> Status:
        state[SCORED] = self._amounts(state.pod)
        return SUCCESS

    def score_batch(self, states: Sequence[ClassState], which: Index | None, nodes: NodeView) -> Scores:
        requests = [state.get(SCORED) or self._amounts(state.pod) for state in states]
        found = shares(self._resources, requests, which, nodes, non_zero=True, devices=self._devices(states))
        used, capacity = found.used + found.request, found.capacity
        weights = self._weights if found.counted is None else found.counted * self._weights
        if self._strategy == "LeastAllocated":
            return weighted_mean(least_allocated(used, capacity), weights, rounded=False)
        if self._strategy == "MostAllocated":
            return weighted_mean(most_allocated(used, capacity), weights, rounded=False)
        scores = by_shape(used, capacity, self._shape)
        return weighted_mean(scores, weights * (scores > 0), rounded=True)

    def _devices(self, states: Sequence[ClassState]) -> Devices | None:
        return _devices_behind(self._resources, states) if self._serves_resources else None

    def _amounts(self, pod: Pod) -> tuple[int, ...]:
        return tuple(fit_score_request(pod, resource) for resource in self._resources)


def _devices_behind(resources: Sequence[str], states: Sequence[ClassState]) -> Devices | None:
    """The cluster's devices, if nodes are scored by a resource that a device class provides."""
    devices = states[0].objects.devices
    provided = any(is_provided_by_devices(name) and devices.provides(name) for name in resources)
    return devices if provided and isinstance(devices, Devices) else None


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


REQUESTS = StateKey[tuple[int, ...]]("requests that balance is scored by")


class NodeResourcesBalancedAllocation(InTreePlugin, PreScorePlugin, BatchScore):
    """Prefers nodes whose resource use a pod would balance.

    The score is the change: 75 if the pod leaves the balance as it is, up to 100 if it improves it, down to 50 if it
    worsens it.
    """

    name = "NodeResourcesBalancedAllocation"

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, gates: FeatureGates = DEFAULT_GATES) -> None:
        self._serves_resources = gates.enabled(Feature.RESOURCES_BY_DEVICES)
        self._resources = tuple(resource.name for resource in args.resources)

    def signature(self, pod: Pod) -> Hashable:
        return self._amounts(pod), tuple(sorted(placed_requests(pod).requests.items()))

    def reads_objects(self, state: ClassState) -> Collection[ObjectKind]:
        """Device classes may provide extended resources."""
        return {ObjectKind.DEVICE_CLASS} if self._serves_resources and extended_resources(state.pod) else ()

    def pre_score(self, state: ClassState) -> Status:
        requests = self._amounts(state.pod)
        if not any(requests):
            return SKIP
        state[REQUESTS] = requests
        return SUCCESS

    def score_batch(self, states: Sequence[ClassState], which: Index | None, nodes: NodeView) -> Scores:
        requests = [state.get(REQUESTS) or self._amounts(state.pod) for state in states]
        devices = _devices_behind(self._resources, states) if self._serves_resources else None
        found = shares(self._resources, requests, which, nodes, non_zero=False, devices=devices)
        after = found.used + found.request
        both = np.empty((2, *after.shape), dtype=np.int64)
        both[0], both[1] = after, found.used
        with_pod, without = balance(both, found.capacity, found.counted)
        half = MAX_NODE_SCORE // 2
        scores: Scores = half + (half + with_pod - without) // 2
        asks = np.array([any(amounts) for amounts in requests])
        return scores if asks.all() else scores * (asks[:, None] if which is None else asks[which])

    def _amounts(self, pod: Pod) -> tuple[int, ...]:
        return tuple(balance_score_request(pod, resource) for resource in self._resources)
