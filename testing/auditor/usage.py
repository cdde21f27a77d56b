"""Node usage: what pods request and what nodes have, computed independently of the scheduler.

Amounts are exact integers: cpu in thousandths, everything else in whole units, rounded up. Status does not count: a pod
takes what its spec says.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared.errors import InvariantBroken
from shared.model.objects import Container, Node, Pod
from shared.model.quantity import MILLI, UNIT

Amounts = dict[str, int]
PODS = "pods"
ANY_ADDRESS = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class Port:
    protocol: str
    number: int
    address: str

    def clashes_with(self, other: "Port") -> bool:
        same_number = (self.protocol, self.number) == (other.protocol, other.number)
        return same_number and (self.address == other.address or ANY_ADDRESS in (self.address, other.address))


@dataclass(frozen=True, slots=True)
class Demand:
    amounts: Amounts
    ports: tuple[Port, ...] = ()


NOTHING = Demand({})


def demand_of(pod: Pod) -> Demand:
    exact = _most_at_once(pod)
    if pod.spec.resources is not None:
        exact |= {name: q for name, q in pod.spec.resources.requests.items() if _is_of_whole_pods(name)}
    _add(exact, pod.spec.overhead)
    return Demand({**_counted(exact), PODS: 1}, _host_ports(pod))


def allocatable_of(node: Node) -> Amounts:
    return _counted(node.status.allocatable)


def least(one: Demand, other: Demand) -> Demand:
    """The minimum of two demands."""
    names = one.amounts.keys() & other.amounts.keys()
    amounts = {name: min(one.amounts[name], other.amounts[name]) for name in names}
    return Demand(amounts, tuple(port for port in one.ports if port in other.ports))


def _most_at_once(pod: Pod) -> Amounts:
    """The maximum that containers request at any time: all containers together, or one init container.

    Init containers run one after another; a sidecar keeps running beside those that follow it and the containers.
    """
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in pod.spec.init_containers:
        if container.restartable:
            _add(sidecars, container.resources.requests)
        else:
            _raise(most, _together(sidecars, [container]))
    _raise(most, _together(sidecars, pod.spec.containers))
    return most


def _together(sidecars: Amounts, containers: Iterable[Container]) -> Amounts:
    total = dict(sidecars)
    for container in containers:
        _add(total, container.resources.requests)
    return total


def _host_ports(pod: Pod) -> tuple[Port, ...]:
    """Host ports of containers and sidecars; other init containers end before they could conflict."""
    lasting = [c for c in pod.spec.init_containers if c.restartable] + pod.spec.containers
    return tuple(
        Port(port.protocol or "TCP", port.host_port, port.host_ip or ANY_ADDRESS)
        for container in lasting
        for port in container.ports
        if port.host_port > 0
    )


def _counted(exact: Mapping[str, int]) -> Amounts:
    """Round up; drop resources that schedulers do not account for."""
    return {
        name: -(-quantity // (MILLI if name == "cpu" else UNIT))
        for name, quantity in exact.items()
        if name in ("cpu", "memory", "ephemeral-storage", PODS)
        or "/" in name
        or name.startswith(("hugepages-", "attachable-volumes-"))
    }


def _is_of_whole_pods(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, quantity in more.items():
        total[name] = total.get(name, 0) + quantity


def _raise(most: Amounts, other: Mapping[str, int]) -> None:
    for name, quantity in other.items():
        most[name] = max(most.get(name, 0), quantity)


@dataclass(slots=True)
class PodUsage:
    """A pod on a node. At `changed` someone other than the scheduler placed or resized it.

    A decision that may be older than that had to account for `known` only.
    """

    demand: Demand
    known: Demand
    changed: float = -math.inf

    def counted(self, since: float) -> Demand:
        return self.known if self.changed >= since else self.demand


class NodeUsage:
    """The pods on one node. `totals` is updated with each change; `validate` recounts."""

    __slots__ = ("pods", "ports", "totals")

    def __init__(self) -> None:
        self.totals: Amounts = {}
        self.pods: dict[str, PodUsage] = {}
        self.ports: dict[tuple[str, int], list[tuple[str, Port]]] = {}

    def add(self, uid: str, demand: Demand, now: float, *, decided: bool) -> None:
        """Add a pod, or update its demand. `decided`: the scheduler placed it."""
        before = self.pods.get(uid)
        if before is not None:
            if before.demand == demand:
                return
            self.remove(uid)
            self.pods[uid] = PodUsage(demand, least(before.demand, demand), now)
        else:
            self.pods[uid] = PodUsage(demand, demand) if decided else PodUsage(demand, NOTHING, now)
        for name, amount in demand.amounts.items():
            self.totals[name] = self.totals.get(name, 0) + amount
        for port in demand.ports:
            self.ports.setdefault((port.protocol, port.number), []).append((uid, port))

    def remove(self, uid: str) -> None:
        demand = self.pods.pop(uid).demand
        for name, amount in demand.amounts.items():
            self.totals[name] -= amount
        for port in demand.ports:
            key = (port.protocol, port.number)
            left = [user for user in self.ports.get(key, ()) if user[0] != uid]
            if left:
                self.ports[key] = left
            else:
                self.ports.pop(key, None)

    def counted(self, since: float) -> Amounts:
        """The totals that a decision made after `since` had to account for."""
        totals: Amounts = {}
        for pod in self.pods.values():
            for name, amount in pod.counted(since).amounts.items():
                totals[name] = totals.get(name, 0) + amount
        return totals

    def port_clash(self, uid: str, wanted: Demand, since: float) -> tuple[str, Port] | None:
        """Another pod on the node that uses one of the wanted ports, and that port."""
        for port in wanted.ports:
            for other, taken in self.ports.get((port.protocol, port.number), ()):
                if other != uid and taken.clashes_with(port) and taken in self.pods[other].counted(since).ports:
                    return other, taken
        return None

    def validate(self, name: str) -> None:
        recount: Amounts = {}
        users: list[tuple[str, Port]] = []
        for uid, pod in self.pods.items():
            for resource, amount in pod.demand.amounts.items():
                recount[resource] = recount.get(resource, 0) + amount
            users += [(uid, port) for port in pod.demand.ports]
        if {resource: amount for resource, amount in self.totals.items() if amount} != _positive(recount):
            raise InvariantBroken(f"node {name}: totals are {self.totals}, recounted {recount}")
        indexed = [user for of_number in self.ports.values() for user in of_number]
        if sorted(indexed, key=repr) != sorted(users, key=repr):
            raise InvariantBroken(f"node {name}: the port index does not match the pods")


def excess(wanted: Mapping[str, int], totals: Mapping[str, int], allocatable: Mapping[str, int]) -> dict[str, float]:
    """For each wanted resource whose total exceeds the allocatable: both numbers, by name."""
    numbers: dict[str, float] = {}
    for name, amount in wanted.items():
        if amount and totals.get(name, 0) > allocatable.get(name, 0):
            numbers[f"{name} requested"] = totals[name]
            numbers[f"{name} allocatable"] = allocatable.get(name, 0)
    return numbers


def _positive(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}
