"""The nodes of the cluster as the workers see them, and when each was last written to."""

from collections.abc import Iterator, Mapping

import msgspec

from services.snapshot.closed import ClosedNodes
from services.snapshot.hostnames import Hostnames
from shared.cluster.images import ImageSizes
from shared.errors import InvariantBroken
from shared.messages.state import Change, NodeRemoved, NodeUpserted, SharedHostnames
from shared.model.objects import Node, ObjectMeta
from shared.model.resources import allocatable
from shared.model.wellknown import HOSTNAME, PREFER_AVOID_PODS

READ_ANNOTATIONS = frozenset({PREFER_AVOID_PODS})


class Nodes:
    """The methods that take something answer with what the workers are to be told."""

    def __init__(self, seq: int = 0) -> None:
        """`seq`: the number of the state before any node is known."""
        self.closed = ClosedNodes()
        self._settled: dict[str, Node] = {}
        """As workers see them."""
        self._reported: dict[str, Node] = {}
        self._written: dict[str, int] = {}
        self._allocatable: dict[str, Mapping[str, int]] = {}
        self.last_removal = seq
        """The number of the state from which on a node was no longer there: what was judged since knows which are."""
        self._images = ImageSizes()
        self._hostnames = Hostnames()

    def __contains__(self, name: str) -> bool:
        return name in self._settled

    def __len__(self) -> int:
        return len(self._settled)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._settled.values())

    @property
    def shared_hostnames(self) -> list[str]:
        return self._hostnames.shared

    def see(self, node: Node) -> list[Change]:
        """Kubelets and others report all the time, and mostly nothing that anybody reads."""
        name = node.name
        annotations = {k: v for k, v in node.metadata.annotations.items() if k in READ_ANNOTATIONS}
        metadata = msgspec.structs.replace(node.metadata, resource_version="", annotations=annotations)
        node = msgspec.structs.replace(node, metadata=metadata)
        before = self._reported.get(name)
        self._reported[name] = node
        settled = self.closed.shown(self._images.settle(node, before))
        if self._settled.get(name) == settled:
            return []
        self._settled[name] = settled
        self._allocatable.pop(name, None)
        return [NodeUpserted(settled), *self._count(before, node)]

    def reported(self, name: str) -> Node | None:
        """As the watch showed it last."""
        return self._reported.get(name)

    def show_again(self, name: str) -> list[Change]:
        """The node may have been closed or opened."""
        return self.see(self._reported[name]) if name in self._reported else []

    def drop(self, name: str, seq: int) -> list[Change]:
        """`seq`: the number of the state that is without it."""
        self.last_removal = seq
        self.closed.open(name)
        del self._settled[name]
        self._allocatable.pop(name, None)
        reported = self._reported.pop(name)
        self._images.forget(reported)
        self._written.pop(name, None)
        return [NodeRemoved(name), *self._count(reported, None)]

    def allocatable(self, name: str) -> Mapping[str, int]:
        """In scheduler units, of a node that is there."""
        found = self._allocatable.get(name)
        if found is None:
            found = self._allocatable[name] = allocatable(self._settled[name])
        return found

    def write(self, name: str, seq: int) -> None:
        """An evaluation from before may no longer be trusted on this node."""
        if name in self._settled:
            self._written[name] = seq

    def written(self, name: str) -> int:
        return self._written.get(name, 0)

    def _count(self, before: Node | None, now: Node | None) -> list[Change]:
        changed = self._hostnames.replace(_hostname(before), _hostname(now))
        return [SharedHostnames(self._hostnames.shared)] if changed else []

    def validate(self) -> None:
        if any(found != allocatable(self._settled[name]) for name, found in self._allocatable.items()):
            raise InvariantBroken("the amounts of a node are not those that it has to allocate")
        self.closed.validate()
        if any(node != self.closed.shown(node) for node in self._settled.values()):
            raise InvariantBroken("a closed node is shown as open")
        values = [_hostname(node) for node in self._reported.values()]
        if self._hostnames.shared != sorted({v for v in values if v is not None and values.count(v) > 1}):
            raise InvariantBroken("other hostnames are shared than those that are counted")


def bare_node(name: str) -> Node:
    """A node of which nothing is known: pods may be on it, and none may come."""
    return Node(metadata=ObjectMeta(name=name))


def _hostname(node: Node | None) -> str | None:
    return None if node is None else node.metadata.labels.get(HOSTNAME)
