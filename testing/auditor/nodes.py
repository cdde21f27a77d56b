"""Recent versions of nodes: a pod was decided on a node as it was some time before the binding is seen."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.model.objects import Node, Taint
from testing.auditor.usage import Amounts, allocatable_of


@dataclass(frozen=True, slots=True)
class NodeState:
    """The fields of a node that decide whether a pod may be on it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    unschedulable: bool
    allocatable: Amounts


def node_state(node: Node) -> NodeState:
    return NodeState(node.name, node.metadata.labels, node.spec.taints, node.spec.unschedulable, allocatable_of(node))


@dataclass(frozen=True, slots=True)
class Version:
    """A node from `since` on: its state, None if deleted, or `unknown` after a gap in the watch."""

    since: float
    standing: NodeState | None
    unknown: bool = False


class Nodes:
    def __init__(self) -> None:
        self._versions: dict[str, deque[Version]] = {}
        self._resource_versions: dict[str, str] = {}
        self._gone: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self._resource_versions)

    def names(self) -> set[str]:
        return set(self._resource_versions)

    def current(self, name: str) -> NodeState | None:
        versions = self._versions.get(name)
        return versions[-1].standing if versions else None

    def states_since(self, name: str, since: float) -> Iterator[NodeState]:
        """Its states at any time after `since`, newest first."""
        for version in reversed(self._versions.get(name, ())):
            if version.standing is not None:
                yield version.standing
            if version.since <= since:
                return

    def was_unknown(self, name: str, since: float) -> bool:
        """Whether, after `since`, it may have had a state that the watch did not show."""
        for version in reversed(self._versions.get(name, ())):
            if version.unknown:
                return True
            if version.since <= since:
                return False
        return False

    def update(self, node: Node, now: float, horizon: float) -> bool:
        """Returns whether the node has changed. States replaced before `horizon` are forgotten."""
        self._resource_versions[node.name] = node.metadata.resource_version
        standing = node_state(node)
        if self.current(node.name) == standing:
            return False
        self._append(node.name, Version(now, standing), horizon)
        return True

    def remove(self, name: str, now: float, horizon: float) -> None:
        if self._resource_versions.pop(name, None) is not None:
            self._append(name, Version(now, None), horizon)
            self._gone.append((now, name))

    def mark_unknown(self, name: str, since: float, horizon: float) -> None:
        """From `since` on its state may have differed from what is known."""
        self._append(name, Version(since, None, unknown=True), horizon)

    def is_as_known(self, node: Node) -> bool:
        return self._resource_versions.get(node.name) == node.metadata.resource_version and self.current(
            node.name
        ) == node_state(node)

    def _append(self, name: str, version: Version, horizon: float) -> None:
        versions = self._versions.setdefault(name, deque())
        versions.append(version)
        while len(versions) > 1 and versions[1].since < horizon:
            versions.popleft()
        while self._gone and self._gone[0][0] < horizon:
            _, gone = self._gone.popleft()
            if gone not in self._resource_versions:
                self._versions.pop(gone, None)
