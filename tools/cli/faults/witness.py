"""Sees every change of a pod when it is written, in the order of writing, so that nothing can be explained away.

It holds each binding against what is on the node at that moment. That is strict and fair: nodes never change here, and
what the scheduler knows to be gone is gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from shared.model.objects import Pod, decode_node, decode_pod
from shared.model.wellknown import ZONE
from testing.auditor.usage import Amounts, Demand, NodeUsage, allocatable_of, demand_of, excess
from testing.simulator.cluster import Cluster
from testing.simulator.resources import NODES, PODS
from testing.simulator.store import DELETED, Change, Item
from tools.cli.faults.load import APART, CLAIMING, GANG, MEMBERS, STUCK, TOGETHER, gang_of, kind_of
from tools.cli.faults.volumes import VolumeWitness

_NODE = PODS.field_index["spec.nodeName"]
MOST_KEPT = 100


@dataclass(slots=True)
class Seen:
    """A pod that there is."""

    name: str
    uid: str
    node: str
    demand: Demand

    @property
    def kind(self) -> str:
        return kind_of(self.name)


class Witness:
    """`moved`, `overfull`, `misplaced`, `torn`: what must not be, the first of each. Made before there are any pods."""

    def __init__(self, cluster: Cluster) -> None:
        self.moved: list[str] = []
        self.overfull: list[str] = []
        self.misplaced: list[str] = []
        self.torn: list[str] = []
        self.bindings = self.created = self.gone = 0
        self.volumes = VolumeWitness(cluster)
        self.pods: dict[str, Seen] = {}
        self._nodes = cluster.store.bucket(NODES)
        self._bucket = cluster.store.bucket(PODS)
        self._usage: dict[str, NodeUsage] = {}
        self._bucket.listeners.append(self._on_change)

    def waiting(self) -> Iterator[Pod]:
        """Pods on no node, as they are now."""
        return (decode_pod(item.raw) for item in list(self._bucket.items()) if not item.fields[_NODE])

    def terminating(self) -> int:
        """Pods on their way out."""
        return sum(b'"deletionTimestamp"' in item.raw for item in self._bucket.items())

    def gangs(self) -> dict[str, int]:
        """How many members of each gang that is there are on nodes."""
        found: dict[str, int] = {}
        for seen in self.pods.values():
            if seen.kind in (GANG, STUCK):
                group = gang_of(seen.name)
                found[group] = found.get(group, 0) + bool(seen.node)
        return found

    def halves(self) -> list[str]:
        """Gangs of which some members are on nodes, and others are not."""
        return [f"{group}: {bound} of {MEMBERS} bound" for group, bound in self.gangs().items() if 0 < bound < MEMBERS]

    def has_room(self, demand: Demand, nodes: str) -> str | None:
        """A node, of those whose name begins so, that has usage for this; none if no node has."""
        for item in self._nodes.items():
            if item.name.startswith(nodes):
                totals = self._totals(item.name)
                together = {name: totals.get(name, 0) + amount for name, amount in demand.amounts.items()}
                if not excess(demand.amounts, together, _allocatable(item)):
                    return item.name
        return None

    def _on_change(self, change: Change) -> None:
        item = change.item
        seen = self.pods.get(item.uid)
        if change.type == DELETED:
            self._on_gone(seen)
            return
        if seen is None:
            self.created += 1
            seen = self.pods[item.uid] = Seen(item.name, item.uid, "", demand_of(decode_pod(item.raw)))
        if seen.node != item.fields[_NODE]:
            self._on_node(seen, item.fields[_NODE])

    def _on_gone(self, seen: Seen | None) -> None:
        if seen is not None:
            self.gone += 1
            del self.pods[seen.uid]
            if seen.node:
                self._usage[seen.node].remove(seen.uid)

    def _on_node(self, seen: Seen, node: str) -> None:
        if seen.node:
            _keep(self.moved, f"pod {seen.name} ({seen.uid}) was on node {seen.node} and is now on {node or 'none'}")
            self._usage[seen.node].remove(seen.uid)
        seen.node = node
        if node:
            self.bindings += 1
            self._judge(seen)

    def _judge(self, seen: Seen) -> None:
        where, item = f"pod {seen.name} ({seen.uid}) is bound to node {seen.node}", self._nodes.get("", seen.node)
        usage = self._usage.setdefault(seen.node, NodeUsage())
        clash = usage.port_clash(seen.uid, seen.demand, 0.0)
        usage.add(seen.uid, seen.demand, 0.0, decided=True)
        over = {"nodes": 0.0} if item is None else excess(seen.demand.amounts, usage.totals, _allocatable(item))
        if over:
            _keep(self.overfull, f"{where}, which is over what it has: {over}")
        if clash is not None:
            _keep(self.misplaced, f"{where}, where a pod has its host port: {clash}")
        if seen.kind == STUCK:
            _keep(self.torn, f"{where}, though its gang has a member that fits nowhere")
        if seen.kind == CLAIMING:
            wrong = self.volumes.misplaced(int(seen.name.partition("-")[2]), self._zone(seen.node))
            if wrong:
                _keep(self.misplaced, f"{where}, {wrong}")
        if seen.kind not in (APART, TOGETHER):
            return
        for other in self.pods.values():
            if other is not seen and other.node and other.kind == seen.kind:
                why = self._contradiction(seen, other)
                if why:
                    _keep(self.misplaced, f"{where}, {why} pod {other.name} ({other.uid}) on node {other.node}")

    def _contradiction(self, seen: Seen, other: Seen) -> str:
        if seen.kind == APART and seen.node == other.node:
            return "and is to be apart from"
        if seen.kind == TOGETHER and self._zone(seen.node) != self._zone(other.node):
            return "and is to be in one zone with"
        return ""

    def _zone(self, node: str) -> str:
        item = self._nodes.get("", node)
        return "" if item is None else item.labels.get(ZONE, "")

    def _totals(self, node: str) -> Amounts:
        return self._usage[node].totals if node in self._usage else {}


def _keep(found: list[str], what: str) -> None:
    if len(found) < MOST_KEPT:
        found.append(what)


def _allocatable(node: Item) -> Amounts:
    return allocatable_of(decode_node(node.raw))
