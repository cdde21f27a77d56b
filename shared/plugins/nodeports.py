"""NodePorts keeps a pod off nodes where another pod has a host port that it wants."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.results import SKIP, PreFilterResult, Status, unschedulable
from shared.cluster.columns import IntColumn, LoadColumn
from shared.cluster.nodetable import NodeTable
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import FilterPlugin, PodParts, PreFilterPlugin, Verdicts
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.load import PodLoad
from shared.model.objects import Pod
from shared.model.resources import HostPort, host_ports
from shared.plugins.hints import nodeports as hints
from shared.plugins.hostports import conflict


@dataclass(frozen=True, slots=True)
class PortUsers(LoadColumn):
    """How many ports of pods on a node clash with the wanted one."""

    wanted: HostPort

    def fill(self, table: NodeTable, column: IntColumn) -> None:
        for _, node, load in table.placed():
            if load.ports:
                row = table.row_of(node)
                if row is not None:
                    column[row] += self.amount(load)

    def amount(self, load: PodLoad) -> int:
        return sum(conflict(self.wanted, port) for port in load.ports)


class NodePorts(PreFilterPlugin, FilterPlugin):
    name = "NodePorts"
    reads_of_pod = PodParts.TEMPLATE

    def signature(self, pod: Pod) -> Hashable:
        return tuple((port.ip, port.protocol, port.port) for port in host_ports(pod))

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def events(self) -> Sequence[Registration]:
        return (
            Registration(Resource.NODE, Action.ADD),
            Registration(Resource.POD, Action.DELETE, hints.after_pod_gone),
        )

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        return PreFilterResult() if host_ports(state.pod) else PreFilterResult(SKIP)

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        users = np.zeros(len(view), dtype=np.int64)
        for port in host_ports(state.pod):
            users += view.of_loads(PortUsers(port))
        return (users > 0).astype(np.int64)

    def explain(self, state: CycleState, verdict: int) -> Status:
        return unschedulable("node(s) didn't have free ports for the requested pod ports")
