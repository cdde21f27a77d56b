"""NodePorts keeps a pod off nodes where another pod has a host port that it wants."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from flotilla.plugin import (
    SKIP,
    Action,
    ClassState,
    ClusterObjects,
    FilterPlugin,
    NodeView,
    Pod,
    PodColumn,
    PodLoad,
    PodParts,
    PreFilterPlugin,
    PreFilterResult,
    Registration,
    Resource,
    unschedulable,
)
from shared.model.resources import HostPort, host_ports
from shared.plugins.queueing_hints import is_placed

ANY_ADDRESS = "0.0.0.0"
TAKEN = unschedulable("node(s) didn't have free ports for the requested pod ports")


def conflict(one: HostPort, other: HostPort) -> bool:
    """Two users of a port conflict unless both name an address, and not the same one."""
    return (
        one.port == other.port
        and one.protocol == other.protocol
        and (one.ip == other.ip or ANY_ADDRESS in (one.ip, other.ip))
    )


@dataclass(frozen=True, slots=True)
class PortUsers(PodColumn):
    """How many ports of pods on a node conflict with the wanted one."""

    wanted: HostPort

    def amount(self, pod: PodLoad) -> int:
        return sum(conflict(self.wanted, port) for port in pod.ports)


class NodePorts(PreFilterPlugin, FilterPlugin):
    name = "NodePorts"
    reads_of_pod = PodParts.TEMPLATE

    def signature(self, pod: Pod) -> Hashable:
        return tuple((port.ip, port.protocol, port.port) for port in host_ports(pod))

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.NODE, Action.ADD),
            Registration(Resource.POD, Action.DELETE, after_pod_deletion),
        )

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult() if host_ports(state.pod) else PreFilterResult(SKIP)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        for port in host_ports(state.pod):
            nodes.reject(nodes.of_pods(PortUsers(port)) > 0, TAKEN)


def after_pod_deletion(pod: Pod, before: Pod, now: None, objects: ClusterObjects) -> bool:
    """The deleted pod had one of the ports."""
    if not is_placed(before):
        return False
    freed = host_ports(before)
    return bool(freed) and any(conflict(wanted, port) for wanted in host_ports(pod) for port in freed)
