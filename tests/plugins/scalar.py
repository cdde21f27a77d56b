"""What the plugins decide, written down slowly: Python integers, one node at a time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flotilla.results import Code, Status, unresolvable, unschedulable
from shared.config.args import DEFAULT_STRATEGY, NodeResourcesFitArgs
from shared.model.affinity import is_tolerated
from shared.model.objects import Node, NodeAffinity, Pod, Taint
from shared.model.resources import (
    allocatable,
    balance_score_request,
    filter_requests,
    fit_score_request,
    host_ports,
    is_extended_resource,
    is_scalar_resource,
    placed_requests,
)
from shared.model.selectors import (
    node_selector_matches,
    node_selector_term_matches,
    required_node_affinity_matches,
)

BASIC = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True)
class Host:
    """A node and the pods on it."""

    node: Node
    pods: tuple[Pod, ...] = ()

    def capacity(self, resource: str) -> int:
        return allocatable(self.node).get(resource, 0)

    def used(self, resource: str) -> int:
        return sum(placed_requests(pod).requests.get(resource, 0) for pod in self.pods)

    def used_with_defaults(self, resource: str) -> int:
        if resource == "cpu":
            return sum(placed_requests(pod).non_zero_cpu for pod in self.pods)
        if resource == "memory":
            return sum(placed_requests(pod).non_zero_memory for pod in self.pods)
        return self.used(resource)


# Filters: the status, or None where the pod fits


def name_status(pod: Pod, host: Host) -> Status | None:
    if pod.spec.node_name in ("", host.node.name):
        return None
    return unresolvable("node(s) didn't match the requested node name")


def unschedulable_status(pod: Pod, host: Host) -> Status | None:
    cordon = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    if not host.node.spec.unschedulable or is_tolerated(cordon, pod.spec.tolerations):
        return None
    return unresolvable("node(s) were unschedulable")


def taint_status(pod: Pod, host: Host) -> Status | None:
    for taint in host.node.spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not is_tolerated(taint, pod.spec.tolerations):
            return unresolvable("node(s) had untolerated taint(s)")
    return None


def affinity_status(pod: Pod, host: Host, added: NodeAffinity | None) -> Status | None:
    labels = host.node.metadata.labels
    if added is not None and added.required is not None:  # noqa: SIM102
        if not node_selector_matches(added.required, labels, host.node.name):
            return unresolvable("node(s) didn't match scheduler-enforced node affinity")
    if required_node_affinity_matches(pod, host.node):
        return None
    return unresolvable("node(s) didn't match Pod's node affinity/selector")


def ports_status(pod: Pod, host: Host) -> Status | None:
    for wanted in host_ports(pod):
        for taken in (port for there in host.pods for port in host_ports(there)):
            same = (wanted.port, wanted.protocol) == (taken.port, taken.protocol)
            if same and (wanted.ip == taken.ip or wanted.ip == "0.0.0.0" or taken.ip == "0.0.0.0"):
                return unschedulable("node(s) didn't have free ports for the requested pod ports")
    return None


def fit_status(pod: Pod, host: Host, args: NodeResourcesFitArgs) -> Status | None:
    reasons: list[str] = []
    helpless = False
    if len(host.pods) + 1 > host.capacity("pods"):
        reasons.append("Too many pods")
    requests = filter_requests(pod)
    others = sorted(name for name in requests if name not in BASIC)
    for name in (*BASIC, *others):
        request = requests.get(name, 0)
        ignored = name in args.ignored_resources or name.split("/")[0] in args.ignored_resource_groups
        if request == 0 or (is_extended_resource(name) and ignored):
            continue
        if request > host.capacity(name) - host.used(name):
            reasons.append(f"Insufficient {name}")
            helpless = helpless or request > host.capacity(name)
    if not reasons:
        return None
    return Status(Code.UNRESOLVABLE if helpless else Code.UNSCHEDULABLE, tuple(reasons))


# Raw scores


def taint_score(pod: Pod, host: Host) -> int:
    soft = [taint for taint in host.node.spec.taints if taint.effect == "PreferNoSchedule"]
    return sum(not is_tolerated(taint, pod.spec.tolerations) for taint in soft)


def affinity_score(pod: Pod, host: Host, added: NodeAffinity | None) -> int:
    own = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    total = 0
    for affinity in (added, own):
        for wish in affinity.preferred if affinity is not None else ():
            if node_selector_term_matches(wish.preference, host.node.metadata.labels, host.node.name):
                total += wish.weight
    return total


def image_score(pod: Pod, host: Host, hosts: Sequence[Host]) -> int:
    def size_on(where: Host, name: str) -> int | None:
        return next((image.size_bytes for image in where.node.status.images if name in image.names), None)

    containers = [*pod.spec.init_containers, *pod.spec.containers]
    names = [c.image for c in containers] + [v.image.reference for v in pod.spec.volumes if v.image is not None]
    total = 0
    for name in names:
        full = name if ":" in name.split("/")[-1] else f"{name}:latest"
        size = size_on(host, full)
        if size is not None:
            holders = sum(size_on(other, full) is not None for other in hosts)
            total += int(float(size) * (holders / len(hosts)))
    least, most = 23 * 2**20, 1000 * 2**20 * len(containers)
    return 100 * (min(max(total, least), most) - least) // (most - least)


def broken_line(points: Sequence[tuple[int, int]], at: int) -> int:
    """The score at a utilization, on straight lines between points."""
    before = points[0]
    for point in points:
        if at <= point[0]:
            if point == points[0]:
                return point[1]
            return before[1] + truncated((point[1] - before[1]) * (at - before[0]), point[0] - before[0])
        before = point
    return before[1]


def truncated(dividend: int, divisor: int) -> int:
    """Division as Go's: towards zero."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def fit_score(pod: Pod, host: Host, args: NodeResourcesFitArgs) -> int:
    strategy = args.scoring_strategy or DEFAULT_STRATEGY
    total = weights = 0
    for resource in strategy.resources:
        request, capacity = fit_score_request(pod, resource.name), host.capacity(resource.name)
        if capacity == 0 or (request == 0 and is_scalar_resource(resource.name)):
            continue
        score = share_score(host.used_with_defaults(resource.name) + request, capacity, args)
        if strategy.type != "RequestedToCapacityRatio" or score > 0:
            total += score * resource.weight
            weights += resource.weight
    if weights == 0:
        return 0
    if strategy.type == "RequestedToCapacityRatio":
        return math.floor(total / weights + 0.5)
    return total // weights


def share_score(used: int, capacity: int, args: NodeResourcesFitArgs) -> int:
    strategy = args.scoring_strategy or DEFAULT_STRATEGY
    if strategy.type == "LeastAllocated":
        return 0 if used > capacity else (capacity - used) * 100 // capacity
    if strategy.type == "MostAllocated":
        return min(used, capacity) * 100 // capacity
    assert strategy.requested_to_capacity_ratio is not None
    points = [(point.utilization, point.score * 10) for point in strategy.requested_to_capacity_ratio.shape]
    return broken_line(points, 100 if used > capacity else used * 100 // capacity)


def balanced_score(pod: Pod, host: Host, resources: Sequence[str]) -> int:
    before: list[float] = []
    after: list[float] = []
    for name in resources:
        request, capacity = balance_score_request(pod, name), host.capacity(name)
        if capacity == 0 or (request == 0 and is_scalar_resource(name)):
            continue
        before.append(min(host.used(name) / capacity, 1.0))
        after.append(min((host.used(name) + request) / capacity, 1.0))
    return 50 + (50 + evenness(after) - evenness(before)) // 2


def evenness(shares: Sequence[float]) -> int:
    deviation = 0.0
    if len(shares) == 2:
        deviation = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > 2:
        mean = in_order(shares) / len(shares)
        deviation = math.sqrt(in_order([(share - mean) * (share - mean) for share in shares]) / len(shares))
    return int((1 - deviation) * 100)


def in_order(values: Sequence[float]) -> float:
    """A plain sum: the built-in one corrects rounding errors from Python 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total
