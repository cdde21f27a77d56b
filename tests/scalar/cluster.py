"""A cluster as a plain scheduler sees it: nodes with lists of pods, and the other objects."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from shared.cluster.objects import ClusterObjects
from shared.model.objects import ClusterObject, Node, Pod
from shared.model.resources import HostPort, host_ports
from testing.inprocess.cases import Case
from tests.plugins.interpodaffinity import scalar as affinity
from tests.plugins.podtopologyspread import reference as spreading
from tests.plugins.scalar import Host


@dataclass
class NodeInfo:
    """A node with the pods on it now. `base`: those that were there when PreFilter ran.

    Ports are a set, as in kube-scheduler: a pod that goes frees its ports even if another pod has them, too.
    """

    node: Node
    pods: list[Pod]
    base: tuple[Pod, ...] = ()
    ports: set[HostPort] = field(default_factory=set)
    added: list[Pod] = field(default_factory=list)
    removed: list[Pod] = field(default_factory=list)

    @staticmethod
    def of(node: Node, pods: Sequence[Pod]) -> "NodeInfo":
        return NodeInfo(node, list(pods), tuple(pods), {port for pod in pods for port in host_ports(pod)})

    def add(self, pod: Pod) -> None:
        self.pods.append(pod)
        self.ports |= set(host_ports(pod))
        if pod in self.removed:
            self.removed.remove(pod)
        else:
            self.added.append(pod)

    def remove(self, pod: Pod) -> None:
        self.pods.remove(pod)
        self.ports -= set(host_ports(pod))
        if pod in self.added:
            self.added.remove(pod)
        else:
            self.removed.append(pod)

    def copy(self) -> "NodeInfo":
        return NodeInfo(self.node, list(self.pods), self.base, set(self.ports), list(self.added), list(self.removed))

    @property
    def host(self) -> Host:
        return Host(self.node, tuple(self.pods))


class Cluster:
    """`nominated`: pods without a node that are nominated to one."""

    def __init__(self, case: Case) -> None:
        self.nodes = {node.name: node for node in sorted(case.nodes, key=lambda node: node.name)}
        self.objects = ClusterObjects()
        for each in case.objects:
            self.objects.upsert(each)
        self._placed: dict[str, list[Pod]] = {name: [] for name in self.nodes}
        self.nominated: dict[str, Pod] = {}
        for pod in (*case.pods, *case.pending):
            if pod.status.phase in ("Succeeded", "Failed"):
                continue
            if pod.spec.node_name in self._placed:
                self._placed[pod.spec.node_name].append(pod)
            elif not pod.spec.node_name and pod.status.nominated_node_name:
                self.nominated[pod.uid] = pod

    def info(self, name: str) -> NodeInfo:
        return NodeInfo.of(self.nodes[name], self._placed[name])

    def infos(self) -> list[NodeInfo]:
        return [self.info(name) for name in self.nodes]

    def place(self, pod: Pod, node: str) -> None:
        self.nominated.pop(pod.uid, None)
        on_node = msgspec.structs.replace(pod.spec, node_name=node)
        self._placed[node].append(msgspec.structs.replace(pod, spec=on_node))

    def replace(self, obj: ClusterObject) -> None:
        self.objects.upsert(obj)

    def nominated_to(self, node: str) -> list[Pod]:
        return [pod for pod in self.nominated.values() if pod.status.nominated_node_name == node]

    def affinity_view(self, instead: NodeInfo | None = None) -> affinity.Cluster:
        """For pod affinity, with one node as it is hypothetically."""
        infos = self._infos_with(instead)
        namespaces = {name: namespace.metadata.labels for name, namespace in self.objects.namespaces.items()}
        return affinity.Cluster(
            tuple(info.node for info in infos), tuple(tuple(info.pods) for info in infos), namespaces
        )

    def spreading_view(self, instead: NodeInfo | None = None) -> list[spreading.Host]:
        return [spreading.Host(info.node, info.base, info.added, info.removed) for info in self._infos_with(instead)]

    def index(self, name: str) -> int:
        return list(self.nodes).index(name)

    def _infos_with(self, instead: NodeInfo | None) -> list[NodeInfo]:
        if instead is None:
            return self.infos()
        return [instead if name == instead.node.name else self.info(name) for name in self.nodes]


def names_of(infos: Iterable[NodeInfo]) -> list[str]:
    return [info.node.name for info in infos]
