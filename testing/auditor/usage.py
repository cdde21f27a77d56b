"""Node usage: what pods request and what nodes have, computed independently of the scheduler.

Amounts are exact integers: cpu in thousandths, everything else in whole units, rounded up. A pod takes what its spec
says; of its status only the extended resources count that it gets as devices.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from shared.errors import InvariantBroken
from shared.model.objects import Node, Pod, decode_pod
from shared.model.quantity import MILLI, UNIT

Amounts = Counter[str]
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


NOTHING = Demand(Counter())


def demand_of(pod: Pod) -> Demand:
    """What the pod requests. Host ports are those of containers and sidecars: other init containers end before."""
    exact = _largest_requests(pod)
    if pod.spec.resources is not None:
        for name, quantity in pod.spec.resources.requests.items():
            if name in ("cpu", "memory") or name.startswith("hugepages-"):
                exact[name] = quantity
    exact.update(pod.spec.overhead)
    amounts = _counted(exact)
    amounts[PODS] = 1
    lasting = [c for c in pod.spec.init_containers if c.restartable] + pod.spec.containers
    ports = tuple(
        Port(port.protocol or "TCP", port.host_port, port.host_ip or ANY_ADDRESS)
        for container in lasting
        for port in container.ports
        if port.host_port > 0
    )
    return Demand(amounts, ports)


def decode_audited_pod(raw: bytes | msgspec.Raw) -> Pod:
    """The pod without requests for extended resources that it gets as devices, which need no room on the node.

    Raises InvalidObject.
    """
    if b'"extendedResourceClaimStatus"' not in bytes(raw):
        return decode_pod(raw)
    pod = msgspec.json.decode(raw)
    served = pod.get("status", {}).get("extendedResourceClaimStatus") or {}
    names = {each["resourceName"] for each in served.get("requestMappings") or ()}
    for container in (*pod["spec"].get("containers", ()), *pod["spec"].get("initContainers", ())):
        for amounts in (container.get("resources") or {}).values():
            if isinstance(amounts, dict):
                for name in names & amounts.keys():
                    del amounts[name]
    return decode_pod(msgspec.json.encode(pod))


def allocatable_of(node: Node) -> Amounts:
    return _counted(node.status.allocatable)


def _largest_requests(pod: Pod) -> Amounts:
    """The maximum that containers request at any time: all containers together, or one init container.

    Init containers run one after another; a sidecar keeps running beside those that follow it and the containers.
    """
    running: Amounts = Counter()
    largest: Amounts = Counter()
    for container in pod.spec.init_containers:
        if container.restartable:
            running.update(container.resources.requests)
        else:
            largest |= running + Counter(container.resources.requests)
    for container in pod.spec.containers:
        running.update(container.resources.requests)
    return largest | running


def _counted(exact: Mapping[str, int]) -> Amounts:
    """Round up; drop resources that schedulers do not account for."""
    return Counter(
        {
            name: -(-quantity // (MILLI if name == "cpu" else UNIT))
            for name, quantity in exact.items()
            if name in ("cpu", "memory", "ephemeral-storage", PODS)
            or "/" in name
            or name.startswith(("hugepages-", "attachable-volumes-"))
        }
    )


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

    def __init__(self) -> None:
        self.totals: Amounts = Counter()
        self.pods: dict[str, PodUsage] = {}

    def add(self, uid: str, demand: Demand, now: float, *, decided: bool) -> None:
        """Add a pod, or update its demand. `decided`: the scheduler placed it."""
        before = self.pods.get(uid)
        if before is not None:
            if before.demand == demand:
                return
            self.remove(uid)
            ports = tuple(port for port in before.demand.ports if port in demand.ports)
            self.pods[uid] = PodUsage(demand, Demand(before.demand.amounts & demand.amounts, ports), now)
        else:
            self.pods[uid] = PodUsage(demand, demand) if decided else PodUsage(demand, NOTHING, now)
        self.totals.update(demand.amounts)

    def remove(self, uid: str) -> None:
        self.totals.subtract(self.pods.pop(uid).demand.amounts)

    def counted(self, since: float) -> Amounts:
        """The totals that a decision made after `since` had to account for."""
        totals: Amounts = Counter()
        for pod in self.pods.values():
            totals.update(pod.counted(since).amounts)
        return totals

    def port_clash(self, uid: str, wanted: Demand, since: float) -> tuple[str, Port] | None:
        """Another pod on the node that uses one of the wanted ports, and that port."""
        for port in wanted.ports:
            for other, pod in self.pods.items():
                for taken in pod.counted(since).ports if other != uid else ():
                    if taken.clashes_with(port):
                        return other, taken
        return None

    def validate(self, name: str) -> None:
        recount: Amounts = Counter()
        for pod in self.pods.values():
            recount.update(pod.demand.amounts)
        if self.totals != recount:
            raise InvariantBroken(f"node {name}: totals are {self.totals}, recounted {recount}")


def excess(wanted: Amounts, totals: Amounts, allocatable: Amounts) -> dict[str, float]:
    """For each wanted resource whose total exceeds the allocatable: both numbers, by name."""
    numbers: dict[str, float] = {}
    for name, amount in wanted.items():
        if amount and totals[name] > allocatable[name]:
            numbers[f"{name} requested"] = totals[name]
            numbers[f"{name} allocatable"] = allocatable[name]
    return numbers
