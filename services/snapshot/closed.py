"""Nodes that get no further pod, because it cannot be told what is on them or what they are.

    a pod's share cannot be read --close--> closed --the pod is read again, finished or gone--> open
    the node cannot be read      --close--> closed --the node is read again, or gone---------> open

A closed node keeps its pods and counts for them as before. Workers see it as unschedulable and with room for no pod, so
that neither a toleration nor a preemption brings a pod there.
"""

from msgspec.structs import replace

from shared.errors import InvariantBroken
from shared.model.objects import Node
from shared.model.quantity import Quantity
from shared.model.resources import PODS

MOST_REASONS = 3
"""That are named of one node."""


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

    def closes(self, uid: str) -> bool:
        """Whether the pod keeps a node closed."""
        return uid in self._pods

    def node_of(self, uid: str) -> str:
        """The node that the pod keeps closed; empty if none."""
        return self._pods.get(uid, ("", ""))[0]

    def why(self, name: str) -> str:
        """Empty for a node that is open."""
        reasons = [self._nodes[name]] if name in self._nodes else []
        uids = sorted(self._by_node.get(name, ()))
        reasons += [self._pods[uid][1] for uid in uids]
        more = f" and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
        return "; ".join(reasons[:MOST_REASONS]) + more

    def close(self, name: str, problem: str) -> bool:
        """Whether that is news."""
        before, self._nodes[name] = self._nodes.get(name), problem
        return before != problem

    def open(self, name: str) -> None:
        """As far as the node itself is concerned."""
        self._nodes.pop(name, None)

    def close_for(self, uid: str, name: str, problem: str) -> bool:
        """Whether that is news."""
        before = self._pods.get(uid)
        self.open_for(uid)
        self._pods[uid] = name, problem
        self._by_node.setdefault(name, set()).add(uid)
        return before != (name, problem)

    def open_for(self, uid: str) -> str:
        """The node that this pod kept closed; empty if none."""
        name, _ = self._pods.pop(uid, ("", ""))
        if name:
            uids = self._by_node[name]
            uids.discard(uid)
            if not uids:
                del self._by_node[name]
        return name

    def shown(self, node: Node) -> Node:
        """The node as workers are to see it."""
        if node.name not in self:
            return node
        no_room = {**node.status.allocatable, PODS: Quantity(0)}
        spec, status = replace(node.spec, unschedulable=True), replace(node.status, allocatable=no_room)
        return replace(node, spec=spec, status=status)

    def validate(self) -> None:
        indexed = {uid: name for name, uids in self._by_node.items() for uid in uids}
        if indexed != {uid: name for uid, (name, _) in self._pods.items()}:
            raise InvariantBroken("the pods that close nodes are not those that are indexed by node")
