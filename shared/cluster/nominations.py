"""Nominated pods: not bound yet, with room reserved on a node where pods are being preempted for them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.cluster.nodetable import LoadKind


@dataclass(frozen=True, slots=True)
class Nominated:
    """What a nominated pod will occupy; `key`: its `namespace/name`."""

    kind: "LoadKind"
    key: str


class Nominations:
    """By node name; the node need not exist."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._on: dict[str, dict[str, Nominated]] = {}

    def __len__(self) -> int:
        return len(self._node_of)

    def __iter__(self) -> Iterator[str]:
        """The nodes with nominated pods."""
        return iter(self._on)

    def of(self, node: str) -> dict[str, Nominated]:
        """The pods nominated to a node, by uid."""
        return self._on.get(node, {})

    def add(self, uid: str, node: str, nominated: Nominated) -> None:
        self._node_of[uid] = node
        self._on.setdefault(node, {})[uid] = nominated

    def remove(self, uid: str) -> str | None:
        """The node that the pod was nominated to, if any."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            on_node = self._on[node]
            del on_node[uid]
            if not on_node:
                del self._on[node]
        return node
