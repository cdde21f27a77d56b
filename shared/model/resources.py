"""Requests of pods and capacities of nodes, in the scheduler's units."""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from shared.model.base import Count
from shared.model.node import Node
from shared.model.pod import Container, ContainerStatus, Pod
from shared.model.quantity import MILLI, UNIT, Quantity

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

# Amounts are added up in int64 columns and scored in float64. Up to this bound an amount is exact as a float, and the
# sum of a thousand of the largest still fits in an int64; it is 8 Pi, so no real amount is cut.
MAX_AMOUNT = 2**53

NON_ZERO_CPU = 100
NON_ZERO_MEMORY = 200 * 1024 * 1024
_NON_ZERO: dict[str, Quantity] = {CPU: Quantity(NON_ZERO_CPU * MILLI), MEMORY: Quantity(NON_ZERO_MEMORY * UNIT)}

_HUGE_PAGES = "hugepages-"
_DNS_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED_NAME = re.compile(r"(?=.{1,63}\Z)([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


@lru_cache(maxsize=4096)
def is_extended_resource(name: str) -> bool:
    """Whether it is a resource outside Kubernetes' own domain, such as `example.com/gpu`."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    domain, _, rest = name.partition("/")
    # quota counts it under this name, which must be valid
    return bool(_DNS_SUBDOMAIN.fullmatch(f"requests.{domain}") and _QUALIFIED_NAME.fullmatch(rest))


@lru_cache(maxsize=4096)
def is_scalar_resource(name: str) -> bool:
    """Whether the scheduler counts the resource, besides cpu, memory and ephemeral storage."""
    return (
        is_extended_resource(name) or name.startswith((_HUGE_PAGES, "attachable-volumes-")) or "kubernetes.io/" in name
    )


@lru_cache(maxsize=4096)
def _unit(name: str) -> int:
    """Nano-units per scheduler unit of the resource; 0 if the scheduler does not count it."""
    if name == CPU:
        return MILLI
    return UNIT if name in (MEMORY, EPHEMERAL_STORAGE) or is_scalar_resource(name) else 0


class PlacedRequests(msgspec.Struct, frozen=True):
    """What a pod occupies of its node.

    `requests` has cpu in thousandths, the rest in whole units. Non-zero amounts, for scoring, also count a default for
    each container that requests no cpu or no memory.
    """

    requests: dict[str, int]
    non_zero_cpu: int
    non_zero_memory: int


class HostPort(msgspec.Struct, frozen=True, gc=False):
    ip: str
    protocol: str
    port: Count


def pod_requests(pod: Pod, *, use_status: bool) -> dict[str, Quantity]:
    """A pod's requests: containers, init containers and sidecars, pod-level resources, overhead.

    With `use_status`, granted and actual resources of resized containers or pods count as well.
    """
    return {name: Quantity(amount) for name, amount in _requests(pod, use_status, {}).items()}


def filter_requests(pod: Pod) -> dict[str, int]:
    """What a node must have free for the pod: cpu in thousandths, the rest in units. Status does not count."""
    return _amounts(_requests(pod, False, {}))


def fit_score_request(pod: Pod, resource: str) -> int:
    """The amount that NodeResourcesFit's score counts for the pod: cpu in thousandths, the rest in units.

    A container that does not mention cpu or memory counts with a default. As in kube-scheduler v1.36, neither pod-level
    requests nor status count here.
    """
    default = int(_NON_ZERO.get(resource, 0))
    amount = int(pod.spec.overhead.get(resource, 0))
    if pod.spec.init_containers:
        amount += _container_requests(pod, False, _NON_ZERO).get(resource, 0)
    else:
        for container in pod.spec.containers:
            amount += container.resources.requests.get(resource, default)
    return _ceil(amount, MILLI if resource == CPU else UNIT)


def balance_score_request(pod: Pod, resource: str) -> int:
    """The amount that NodeResourcesBalancedAllocation counts for the pod: its requests."""
    return _ceil(_requests(pod, True, {}).get(resource, 0), MILLI if resource == CPU else UNIT)


def placed_requests(pod: Pod) -> PlacedRequests:
    """What a bound pod occupies. Status counts."""
    if _is_plain(pod):
        return _plain_placed_requests(pod)
    requests = _requests(pod, True, {})
    defaults = _NON_ZERO
    if _sets_pod_level_requests(pod):
        defaults = {name: amount for name, amount in _NON_ZERO.items() if name not in requests}
    non_zero = _requests(pod, True, defaults) if defaults else requests
    return PlacedRequests(_amounts(requests), _ceil(non_zero.get(CPU, 0), MILLI), _ceil(non_zero.get(MEMORY, 0), UNIT))


def _plain_placed_requests(pod: Pod) -> PlacedRequests:
    """The common case in one pass."""
    effective = _effective_requests(pod)
    requests: dict[str, Count] = {}
    cpu = memory = 0
    for container in pod.spec.containers:
        own = effective.get(container.name, container.resources.requests)
        _add(requests, own)
        if CPU not in own:
            cpu += _NON_ZERO[CPU]
        if MEMORY not in own:
            memory += _NON_ZERO[MEMORY]
    _add(requests, pod.spec.overhead)
    cpu += requests.get(CPU, 0)
    memory += requests.get(MEMORY, 0)
    return PlacedRequests(_amounts(requests), _ceil(cpu, MILLI), _ceil(memory, UNIT))


def allocatable(node: Node) -> dict[str, int]:
    """A node's capacity: cpu in thousandths, the rest in units, `pods` as a number.

    Negative amounts count as 0.
    """
    amounts = _amounts(node.status.allocatable)
    pods = node.status.allocatable.get(PODS)
    if pods is not None:
        amounts[PODS] = _ceil(pods, UNIT)
    if amounts and min(amounts.values()) < 0:
        return {name: max(amount, 0) for name, amount in amounts.items()}
    return amounts


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports that the pod uses, sidecars' first."""
    spec = pod.spec
    return tuple(
        HostPort(port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for containers in ([c for c in spec.init_containers if c.restartable], spec.containers)
        for container in containers
        for port in container.ports
        if port.host_port > 0
    )


def _ceil(amount: int, unit: int) -> int:
    return min(-(-amount // unit), MAX_AMOUNT)


def _amounts(quantities: Mapping[str, int]) -> dict[str, int]:
    amounts = {}
    for name, quantity in quantities.items():
        unit = _unit(name)
        if unit:
            amount = -(-quantity // unit)
            amounts[name] = amount if amount < MAX_AMOUNT else MAX_AMOUNT
    return amounts


def _is_plain(pod: Pod) -> bool:
    """Whether the requests are just the sum of containers and overhead; `use_status` may prevent that."""
    return not pod.spec.init_containers and pod.spec.resources is None


def _telling_statuses(pod: Pod) -> list[ContainerStatus]:
    status = pod.status
    return [
        each for each in (*status.container_statuses, *status.init_container_statuses) if each.resources is not None
    ]


def _requests(pod: Pod, use_status: bool, non_missing: Mapping[str, int]) -> dict[str, int]:
    spec = pod.spec
    if not non_missing and _is_plain(pod) and not (use_status and _telling_statuses(pod)):
        totals: dict[str, int] = {}
        for container in spec.containers:
            if totals:
                _add(totals, container.resources.requests)
            else:
                totals.update(container.resources.requests)
    else:
        totals = _container_requests(pod, use_status, non_missing)
        if _sets_pod_level_requests(pod):
            _apply_pod_level(pod, use_status, totals)
    if spec.overhead:
        _add(totals, spec.overhead)
    return totals


def _container_requests(pod: Pod, use_status: bool, non_missing: Mapping[str, int]) -> dict[str, int]:
    """The most that the containers need at any time: while running, or during an init container."""
    effective = _effective_requests(pod) if use_status else {}

    def wanted(container: Container, resizable: bool) -> dict[str, int]:
        own = effective.get(container.name) if resizable else None
        return {**non_missing, **(container.resources.requests if own is None else own)}

    running: dict[str, Count] = {}
    for container in pod.spec.containers:
        _add(running, wanted(container, True))
    sidecars: dict[str, Count] = {}
    starting: dict[str, Count] = {}
    for container in pod.spec.init_containers:
        request = wanted(container, container.restartable)
        if container.restartable:
            _add(running, request)
            _add(sidecars, request)
            _raise(starting, sidecars)
        else:
            _add(request, sidecars)
            _raise(starting, request)
    _raise(running, starting)
    return running


def _effective_requests(pod: Pod) -> dict[str, dict[str, int]]:
    """By container name, what counts for containers whose status reports resources."""
    statuses = _telling_statuses(pod)
    if not statuses:
        return {}
    specs = {container.name: container for container in (*pod.spec.containers, *pod.spec.init_containers)}
    infeasible = _is_resize_infeasible(pod)
    effective = {}
    for status in statuses:
        container = specs.get(status.name)
        if container is not None and status.resources is not None:
            spec = container.resources.requests
            effective[status.name] = _greatest(spec, status.resources.requests, status.allocated_resources, infeasible)
    return effective


def _sets_pod_level_requests(pod: Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and any(_is_pod_level(name) for name in resources.requests)


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(_HUGE_PAGES)


def _apply_pod_level(pod: Pod, use_status: bool, totals: dict[str, int]) -> None:
    """Replace the containers' sums by pod-level requests."""
    if pod.spec.resources is None:
        return
    requests: Mapping[str, Count] = pod.spec.resources.requests
    amounts = requests
    if use_status and pod.status.resources is not None:
        actual, allocated = pod.status.resources.requests, pod.status.allocated_resources
        amounts = _greatest(requests, actual, allocated, _is_resize_infeasible(pod))
    for name in requests:
        if _is_pod_level(name):
            totals[name] = amounts.get(name, 0)


def _is_resize_infeasible(pod: Pod) -> bool:
    """Whether a pending resize is infeasible on the node, so that its new requests do not count."""
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _greatest(
    spec: Mapping[str, Count], actual: Mapping[str, Count], allocated: Mapping[str, Count], infeasible: bool
) -> dict[str, int]:
    amounts = dict(actual)
    _raise(amounts, allocated)
    if not infeasible:
        _raise(amounts, spec)
    return amounts


def _add(totals: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        totals[name] = totals.get(name, 0) + amount


def _raise(totals: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        present = totals.get(name)
        if present is None or amount > present:
            totals[name] = amount
