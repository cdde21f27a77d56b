"""Observes every write of pods, claims and volumes in the simulator, in order, and checks it at once.

It checks each binding against what is on the node at that moment. That is strict but fair: nodes do not change in these
runs, and the scheduler knows only of deletions that have happened.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from shared.model.objects import Pod, decode_node, decode_pod
from shared.model.wellknown import ZONE
from testing.auditor.usage import Amounts, Demand, NodeUsage, allocatable_of, demand_of, excess
from testing.simulator.cluster import SimulatedCluster
from testing.simulator.resources import NODES, PODS, builtin
from testing.simulator.store import DELETED, Change, Item
from tools.faults.workload import (
    APART,
    CLAIMING,
    GANGS,
    MEMBERS,
    NAMESPACE,
    STUCK,
    TOGETHER,
    claim_of,
    gang_of,
    kind_of,
)

CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
MAX_VIOLATIONS = 100
_NODE = PODS.field_index["spec.nodeName"]


class VolumeWitness:
    """`broken`: the first violations. `bound`: the volume of each claim."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.broken: list[str] = []
        self.bound: dict[str, str] = {}
        self._owner: dict[str, str] = {}
        self._reserved: dict[str, str] = {}
        self._zones: dict[str, str] = {}
        self._claims = cluster.store.bucket(CLAIMS)
        self._claims.listeners.append(self._on_claim)
        cluster.store.bucket(VOLUMES).listeners.append(self._on_volume)

    def misplaced(self, pod_number: int, zone: str) -> str:
        """What is wrong with the claim of a pod bound in this zone; empty if nothing."""
        claim = claim_of(pod_number)
        volume = self.bound.get(claim)
        if volume is None:
            return f"but its claim {claim} has no volume yet"
        there = self._zones.get(volume, "")
        return "" if there == zone else f"but its volume {volume} is in zone {there}, not {zone}"

    def _on_claim(self, change: Change) -> None:
        if change.type == DELETED or change.item.namespace != NAMESPACE:
            return
        claim, volume = change.item.name, change.item.decode()["spec"].get("volumeName", "")
        before = self.bound.get(claim, "")
        if before and before != volume:
            _keep(self.broken, f"claim {claim} had volume {before} and now has {volume or 'none'}")
        if volume and not before:
            self.bound[claim] = volume
            other = self._owner.setdefault(volume, claim)
            if other != claim:
                _keep(self.broken, f"volume {volume} is bound to claim {other} and to {claim}")

    def _on_volume(self, change: Change) -> None:
        if change.type == DELETED:
            return
        volume, spec = change.item.name, change.item.decode()["spec"]
        terms = spec.get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", [])
        zones = (each["values"][0] for term in terms for each in term["matchExpressions"] if each["key"] == ZONE)
        self._zones[volume] = next(zones, "")
        claim, before = spec.get("claimRef", {}).get("name", ""), self._reserved.get(volume, "")
        if before and claim and before != claim:
            _keep(self.broken, f"volume {volume} was reserved for claim {before} and now for {claim}")
        self._reserved[volume] = claim


@dataclass(slots=True)
class Seen:
    """An existing pod."""

    name: str
    uid: str
    node: str
    demand: Demand

    @property
    def kind(self) -> str:
        return kind_of(self.name)


class Witness:
    """`moved`, `overfull`, `misplaced`, `torn`: the first violations of each kind. Create it before any pods."""

    def __init__(self, cluster: SimulatedCluster) -> None:
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

    @property
    def nodes(self) -> int:
        return len(self._nodes)

    def waiting(self) -> Iterator[Pod]:
        """The pending pods."""
        return (decode_pod(item.raw) for item in list(self._bucket.items()) if not item.fields[_NODE])

    def terminating(self) -> int:
        """The number of pods that are being deleted."""
        return sum(b'"deletionTimestamp"' in item.raw for item in self._bucket.items())

    def gangs(self) -> dict[str, int]:
        """The number of bound members of each gang."""
        found: dict[str, int] = {}
        for seen in self.pods.values():
            if seen.kind in GANGS:
                group = gang_of(seen.name)
                found[group] = found.get(group, 0) + bool(seen.node)
        return found

    def partial_gangs(self) -> list[str]:
        """Gangs with some but not all members bound."""
        return [f"{group}: {bound} of {MEMBERS} bound" for group, bound in self.gangs().items() if 0 < bound < MEMBERS]

    def has_room(self, demand: Demand, nodes: str) -> str | None:
        """A node whose name begins with `nodes` and that fits this demand; None if there is none."""
        for item in self._nodes.items():
            if item.name.startswith(nodes):
                usage = self._usage.get(item.name, NodeUsage())
                if not excess(demand.amounts, usage.totals + demand.amounts, _allocatable(item)):
                    return item.name
        return None

    def _on_change(self, change: Change) -> None:
        item = change.item
        seen = self.pods.get(item.uid)
        if change.type == DELETED:
            if seen is not None:
                self.gone += 1
                del self.pods[seen.uid]
                if seen.node:
                    self._usage[seen.node].remove(seen.uid)
            return
        if seen is None:
            self.created += 1
            seen = self.pods[item.uid] = Seen(item.name, item.uid, "", demand_of(decode_pod(item.raw)))
        if seen.node != item.fields[_NODE]:
            self._on_node(seen, item.fields[_NODE])

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
            _keep(self.overfull, f"{where}, which exceeds its capacity: {over}")
        if clash is not None:
            _keep(self.misplaced, f"{where}, where its host port is in use: {clash}")
        if seen.kind == STUCK:
            _keep(self.torn, f"{where}, but its gang has a member that fits nowhere")
        if seen.kind == CLAIMING:
            wrong = self.volumes.misplaced(int(seen.name.partition("-")[2]), self._zone(seen.node))
            if wrong:
                _keep(self.misplaced, f"{where}, {wrong}")
        for other in self.pods.values() if seen.kind in (APART, TOGETHER) else ():
            if other is seen or not other.node or other.kind != seen.kind:
                continue
            there = f"pod {other.name} ({other.uid}) on node {other.node}"
            if seen.kind == APART and seen.node == other.node:
                _keep(self.misplaced, f"{where}, but must not share it with {there}")
            if seen.kind == TOGETHER and self._zone(seen.node) != self._zone(other.node):
                _keep(self.misplaced, f"{where}, but must be in the zone of {there}")

    def _zone(self, node: str) -> str:
        item = self._nodes.get("", node)
        return "" if item is None else item.labels.get(ZONE, "")


def _keep(found: list[str], what: str) -> None:
    if len(found) < MAX_VIOLATIONS:
        found.append(what)


def _allocatable(node: Item) -> Amounts:
    return allocatable_of(decode_node(node.raw))
