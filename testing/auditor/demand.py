"""What a pod takes of a node, and what a node has: computed plainly, and apart from how the scheduler does it.

Amounts are exact integers in Kubernetes' units of account: cpu in thousandths, all else in whole units, rounded up.
Status does not count: a pod takes what its spec says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
    """What both take."""
    names = one.amounts.keys() & other.amounts.keys()
    amounts = {name: min(one.amounts[name], other.amounts[name]) for name in names}
    return Demand(amounts, tuple(port for port in one.ports if port in other.ports))


def _most_at_once(pod: Pod) -> Amounts:
    """The most that containers request together at any time: while all run, or while an init container does.

    Init containers start one after the other; a sidecar stays, beside those that follow it and the containers.
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
    """An init container that ends has no say: its port is free before any other pod may need it."""
    lasting = [c for c in pod.spec.init_containers if c.restartable] + pod.spec.containers
    return tuple(
        Port(port.protocol or "TCP", port.host_port, port.host_ip or ANY_ADDRESS)
        for container in lasting
        for port in container.ports
        if port.host_port > 0
    )


def _counted(exact: Mapping[str, int]) -> Amounts:
    """Rounded up; names that no scheduler counts are left out."""
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
