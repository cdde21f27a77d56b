"""The cluster as the page shows it: nodes, what is requested of them, and which pod is where.

stale --the whole state--> following --delta by delta--> following
  ^                            |
  +-- a delta is lost, or the snapshot began another term
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.messages.state import (
    Change,
    Delta,
    Heartbeat,
    NodeRemoved,
    NodeUpserted,
    NominationGone,
    PodGone,
    PodNominated,
    PodPlaced,
)
from shared.model.load import PodLoad
from shared.model.objects import Node
from shared.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, allocatable
from tools.following import DeltaFollower
from tools.live_state import StateBuilder

MAX_LABEL_VALUES = 200
"""Distinct values of a label by which nodes can be grouped."""
CORDONED = 1
"""A flag of a node on the page."""


@dataclass(slots=True, eq=False)
class NodeEntry:
    """`id`: its number on the page. A node without a Node object has no capacity: only pods name it."""

    id: int
    name: str
    allocatable: Mapping[str, int] = field(default_factory=dict)
    requested: dict[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    pods: dict[str, None] = field(default_factory=dict)
    unschedulable: bool = False

    @property
    def flags(self) -> int:
        return CORDONED if self.unschedulable else 0


class PlacedPod(NamedTuple):
    key: str
    node: NodeEntry
    load: PodLoad


class Nomination(NamedTuple):
    key: str
    node: str


class Changes(NamedTuple):
    """Since they were last taken: nodes that are new or have another shape, nodes of which another amount is used."""

    added: list[NodeEntry]
    used: list[NodeEntry]
    gone: list[int]

    def __bool__(self) -> bool:
        return bool(self.added or self.used or self.gone)


class ClusterModel:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeEntry] = {}
        self.pods: dict[str, PlacedPod] = {}
        """By uid."""
        self.nominations: dict[str, Nomination] = {}
        self.resources: list[str] = [CPU, MEMORY, PODS, EPHEMERAL_STORAGE]
        """Columns of the page's nodes: these, then others as they appear."""
        self.placed = 0
        """Pods that were given a place while it was followed."""
        self._follower = DeltaFollower()
        self._next_id = 0
        self._requested: dict[str, int] = {}
        self._allocatable: dict[str, int] = {}
        """Sums over all nodes."""
        self._added: dict[int, NodeEntry] = {}
        self._used: dict[int, NodeEntry] = {}
        self._gone: list[int] = []

    @property
    def stale(self) -> bool:
        """Whether the whole state has to be loaded, for the first time or again."""
        return not self._follower.loaded

    def load(self, state: StateBuilder, epoch: int, seq: int, now: float) -> None:
        """The whole state, of this number; if it has some of what the next deltas change already, that does no harm."""
        self._gone += [entry.id for entry in self.nodes.values()]
        self.nodes, self.pods, self.nominations = {}, {}, {}
        self._added, self._used = {}, {}
        self._requested, self._allocatable = {}, {}
        for node in state.nodes.values():
            self._on_node(node)
        for uid, (name, load, key, _) in state.pods.items():
            self._place(uid, PlacedPod(key, self._entry(name), load))
        for uid, (name, _, key) in state.nominations.items():
            self.nominations[uid] = Nomination(key, name)
        self._follow(self._follower.load(epoch, seq, now) or [])

    def take(self, message: Delta | Heartbeat, now: float) -> None:
        self._follow(self._follower.take(message, now))
        self._follower.lost(now)

    def _follow(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            for change in delta.changes:
                self._apply(change, delta.loads)

    def _apply(self, change: Change, loads: list[PodLoad]) -> None:
        match change:
            case PodPlaced(uid=uid, node=name, load=load, key=key):
                self._on_placed(uid, name, loads[load], key)
            case PodGone(uid=uid):
                self._remove(uid)
            case NodeUpserted(node=node):
                self._on_node(node)
            case NodeRemoved(name=name):
                self._on_node_removed(name)
            case PodNominated(uid=uid, node=name, key=key):
                self.nominations[uid] = Nomination(key, name)
            case NominationGone(uid=uid):
                self.nominations.pop(uid, None)

    def _on_placed(self, uid: str, name: str, load: PodLoad, key: str) -> None:
        """A pod is placed several times: when it is decided, seen on its node, and started."""
        before = self.pods.get(uid)
        if before is not None and before.node.name == name and before.load.requests == load.requests:
            return
        self.nominations.pop(uid, None)
        self.placed += before is None
        self._place(uid, PlacedPod(key, self._entry(name), load))

    def _on_node(self, node: Node) -> None:
        entry = self._entry(node.name)
        self._resize(entry, allocatable(node))
        entry.labels = node.metadata.labels
        entry.unschedulable = node.spec.unschedulable
        self.resources += [each for each in entry.allocatable if each not in self.resources]
        self._added[entry.id] = entry

    def _on_node_removed(self, name: str) -> None:
        """Pods stay until they are gone themselves."""
        entry = self.nodes.get(name)
        if entry is None:
            return
        self._resize(entry, {})
        if entry.pods:
            self._added[entry.id] = entry
        else:
            self._forget(entry)

    def _resize(self, entry: NodeEntry, amounts: Mapping[str, int]) -> None:
        _add(self._allocatable, entry.allocatable, -1)
        _add(self._allocatable, amounts)
        entry.allocatable = amounts

    def _entry(self, name: str) -> NodeEntry:
        entry = self.nodes.get(name)
        if entry is None:
            self._next_id += 1
            entry = self.nodes[name] = NodeEntry(self._next_id, name)
            self._added[entry.id] = entry
        return entry

    def _place(self, uid: str, pod: PlacedPod) -> None:
        self._remove(uid)
        self.pods[uid] = pod
        pod.node.pods[uid] = None
        _add(pod.node.requested, pod.load.requests)
        _add(self._requested, pod.load.requests)
        self._used[pod.node.id] = pod.node

    def _remove(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        node = pod.node
        node.pods.pop(uid, None)
        _add(node.requested, pod.load.requests, -1)
        _add(self._requested, pod.load.requests, -1)
        self._used[node.id] = node
        if not node.pods and not node.allocatable and not node.labels:
            self._forget(node)

    def _forget(self, entry: NodeEntry) -> None:
        self.nodes.pop(entry.name, None)
        self._added.pop(entry.id, None)
        self._used.pop(entry.id, None)
        self._gone.append(entry.id)

    # For the page

    def take_changes(self) -> Changes:
        used = [entry for number, entry in self._used.items() if number not in self._added]
        changes = Changes(list(self._added.values()), used, self._gone)
        self._added, self._used, self._gone = {}, {}, []
        return changes

    def amounts(self, entry: NodeEntry) -> list[int]:
        """What is requested, in the order of `resources`."""
        return [len(entry.pods) if name == PODS else entry.requested.get(name, 0) for name in self.resources]

    def capacity(self, entry: NodeEntry) -> list[int]:
        return [entry.allocatable.get(name, 0) for name in self.resources]

    def label_keys(self) -> list[str]:
        """Labels that group nodes: some nodes have a value in common, and there are not too many values."""
        values: dict[str, set[str]] = {}
        for entry in self.nodes.values():
            for key, value in entry.labels.items():
                values.setdefault(key, set()).add(value)
        most = min(MAX_LABEL_VALUES, max(1, len(self.nodes) // 2))
        return sorted(key for key, found in values.items() if len(found) <= most)

    def totals(self) -> list[tuple[str, int, int]]:
        """Resource, requested, allocatable."""
        requested = {**self._requested, PODS: len(self.pods)}
        amounts = ((name, requested.get(name, 0), self._allocatable.get(name, 0)) for name in self.resources)
        return [each for each in amounts if each[2]]

    def pods_on(self, entry: NodeEntry) -> Iterator[PlacedPod]:
        return (self.pods[uid] for uid in entry.pods)


def _add(sums: dict[str, int], amounts: Mapping[str, int], sign: int = 1) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + sign * amount
