"""The nodes of the cluster as the workers see them, when each was last written to, and which are closed.

A node is closed, and gets no further pod, if the node itself or a pod on it cannot be read: what is on it is unknown.

    a pod's load cannot be read  --close--> closed --the pod is read again, finished or gone--> open
    the node cannot be read      --close--> closed --the node is read again, or gone---------> open

A closed node keeps its pods. Workers see it as unschedulable and with room for no pod, so that neither a toleration nor
a preemption brings a pod there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Set

from msgspec.structs import replace

from shared.cluster.images import ImageSizes
from shared.errors import InvariantBroken
from shared.messages.state import Change, NodeRemoved, NodeUpserted, SharedHostnames
from shared.model.objects import Node
from shared.model.quantity import Quantity
from shared.model.resources import PODS, allocatable
from shared.model.wellknown import HOSTNAME, PREFER_AVOID_PODS

READ_ANNOTATIONS = frozenset({PREFER_AVOID_PODS})
MAX_REASONS = 3
"""Reasons that are named of one closed node."""


class Nodes:
    """Methods that change nodes return the changes for the workers."""

    def __init__(self, seq: int = 0) -> None:
        """`seq`: of the state before any node is known."""
        self.closed = ClosedNodes()
        self._shown: dict[str, Node] = {}
        """As workers see them."""
        self._reported: dict[str, Node] = {}
        """As the watch shows them, without what no plugin reads."""
        self._written: dict[str, int] = {}
        self._allocatable: dict[str, Mapping[str, int]] = {}
        self.last_removal = seq
        """The number of the state from which on a node was gone: later evaluations know which nodes there are."""
        self._images = ImageSizes()
        self._hostnames: Counter[str] = Counter()

    def begin_term(self, seq: int) -> None:
        """`seq`: of the state with which the term begins. Evaluations of earlier terms do not count."""
        self.last_removal = seq
        self._written = dict.fromkeys(self._shown, seq)

    def __contains__(self, name: str) -> bool:
        return name in self._shown

    def __len__(self) -> int:
        return len(self._shown)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._shown.values())

    def get(self, name: str) -> Node | None:
        """As workers see it."""
        return self._shown.get(name)

    @property
    def shared_hostnames(self) -> list[str]:
        """The values of the hostname label that several nodes have; normally none, and a hostname is a node."""
        return sorted(value for value, count in self._hostnames.items() if count > 1)

    def upsert(self, node: Node) -> list[Change]:
        """Most updates of nodes are heartbeats, which change nothing here."""
        name = node.name
        annotations = {k: v for k, v in node.metadata.annotations.items() if k in READ_ANNOTATIONS}
        node = replace(node, metadata=replace(node.metadata, resource_version="", annotations=annotations))
        before = self._reported.get(name)
        self._reported[name] = node
        shown = self.closed.shown(self._images.settle(node, before))
        if self._shown.get(name) == shown:
            return []
        self._shown[name] = shown
        self._allocatable.pop(name, None)
        return [NodeUpserted(shown), *self._count_hostname(before, node)]

    def reported(self, name: str) -> Node | None:
        return self._reported.get(name)

    def refresh(self, name: str) -> list[Change]:
        """The node may have been closed or opened."""
        return self.upsert(self._reported[name]) if name in self._reported else []

    def remove(self, name: str, seq: int) -> list[Change]:
        """`seq`: of the state without the node."""
        self.last_removal = seq
        self.closed.open(name)
        del self._shown[name]
        self._allocatable.pop(name, None)
        reported = self._reported.pop(name)
        self._images.forget(reported)
        self._written.pop(name, None)
        return [NodeRemoved(name), *self._count_hostname(reported, None)]

    def allocatable(self, name: str) -> Mapping[str, int]:
        """In scheduler units."""
        found = self._allocatable.get(name)
        if found is None:
            found = self._allocatable[name] = allocatable(self._shown[name])
        return found

    def set_written(self, name: str, seq: int) -> None:
        """Earlier evaluations of this node no longer count."""
        if name in self._shown:
            self._written[name] = seq

    def written(self, name: str) -> int:
        return self._written.get(name, 0)

    def _count_hostname(self, before: Node | None, now: Node | None) -> list[Change]:
        old, new, counts = _hostname(before), _hostname(now), self._hostnames
        if old == new:
            return []
        changed = False
        if old is not None:
            counts[old] -= 1
            changed = counts[old] == 1
            if not counts[old]:
                del counts[old]
        if new is not None:
            counts[new] += 1
            changed = changed or counts[new] == 2
        return [SharedHostnames(self.shared_hostnames)] if changed else []

    def validate(self) -> None:
        if any(found != allocatable(self._shown[name]) for name, found in self._allocatable.items()):
            raise InvariantBroken("the cached amounts of a node are not its allocatable")
        self.closed.validate()
        if any(node != self.closed.shown(node) for node in self._shown.values()):
            raise InvariantBroken("a closed node is shown as open")
        values = map(_hostname, self._reported.values())
        if self._hostnames != Counter(value for value in values if value is not None):
            raise InvariantBroken("the nodes of each hostname are miscounted")


class ClosedNodes:
    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        """Why a node itself is closed."""
        self._pods: dict[str, tuple[str, str]] = {}
        """By uid: the node that the pod closes, and why."""
        self._by_node: dict[str, set[str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._nodes or name in self._by_node

    def __len__(self) -> int:
        return len(self._nodes.keys() | self._by_node.keys())

    @property
    def pods(self) -> Set[str]:
        """The uids of the pods that close a node."""
        return self._pods.keys()

    def is_closed_by(self, uid: str) -> bool:
        """Whether the pod closes a node."""
        return uid in self._pods

    def node_of(self, uid: str) -> str:
        """The node that the pod closes; empty if none."""
        return self._pods.get(uid, ("", ""))[0]

    def why(self, name: str) -> str:
        """Empty if the node is open."""
        reasons = [self._nodes[name]] if name in self._nodes else []
        reasons += [self._pods[uid][1] for uid in sorted(self._by_node.get(name, ()))]
        more = f" and {len(reasons) - MAX_REASONS} more" if len(reasons) > MAX_REASONS else ""
        return "; ".join(reasons[:MAX_REASONS]) + more

    def close(self, name: str, problem: str) -> bool:
        """Returns whether that is news."""
        before, self._nodes[name] = self._nodes.get(name), problem
        return before != problem

    def open(self, name: str) -> bool:
        """The node itself is readable. Returns whether that opens it; its pods may keep it closed."""
        return self._nodes.pop(name, None) is not None and name not in self._by_node

    def close_for(self, uid: str, name: str, problem: str) -> bool:
        """Returns whether that is news."""
        before = self._pods.get(uid)
        self.open_for(uid)
        self._pods[uid] = name, problem
        self._by_node.setdefault(name, set()).add(uid)
        return before != (name, problem)

    def open_for(self, uid: str) -> str:
        """Returns the node that this pod closed; empty if none."""
        name, _ = self._pods.pop(uid, ("", ""))
        if name:
            uids = self._by_node[name]
            uids.discard(uid)
            if not uids:
                del self._by_node[name]
        return name

    def shown(self, node: Node) -> Node:
        """The node as workers see it."""
        if node.name not in self:
            return node
        no_room = {**node.status.allocatable, PODS: Quantity(0)}
        spec, status = replace(node.spec, unschedulable=True), replace(node.status, allocatable=no_room)
        return replace(node, spec=spec, status=status)

    def validate(self) -> None:
        indexed = {uid: name for name, uids in self._by_node.items() for uid in uids}
        if indexed != {uid: name for uid, (name, _) in self._pods.items()}:
            raise InvariantBroken("the index of pods that close nodes is wrong")


def _hostname(node: Node | None) -> str | None:
    return None if node is None else node.metadata.labels.get(HOSTNAME)
