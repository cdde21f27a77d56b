"""What nodes were like lately: a pod was decided on a node as it was some moments before the binding is seen."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.model.objects import Node, Taint
from testing.auditor.demand import Amounts, allocatable_of


@dataclass(frozen=True, slots=True)
class Standing:
    """What decides whether pods may be on a node."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    unschedulable: bool
    allocatable: Amounts


def standing_of(node: Node) -> Standing:
    return Standing(node.name, node.metadata.labels, node.spec.taints, node.spec.unschedulable, allocatable_of(node))


@dataclass(frozen=True, slots=True)
class Version:
    """A node from `since` on: so, gone (None), or `unseen`: nobody was told."""

    since: float
    standing: Standing | None
    unseen: bool = False


class Nodes:
    def __init__(self) -> None:
        self._versions: dict[str, deque[Version]] = {}
        self._resource_versions: dict[str, str] = {}
        self._gone: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self._resource_versions)

    def names(self) -> set[str]:
        return set(self._resource_versions)

    def current(self, name: str) -> Standing | None:
        versions = self._versions.get(name)
        return versions[-1].standing if versions else None

    def lately(self, name: str, since: float) -> Iterator[Standing]:
        """As it was at any time after `since`, the newest first."""
        for version in reversed(self._versions.get(name, ())):
            if version.standing is not None:
                yield version.standing
            if version.since <= since:
                return

    def was_unseen(self, name: str, since: float) -> bool:
        """Whether, after `since`, it may have been as nobody was told."""
        for version in reversed(self._versions.get(name, ())):
            if version.unseen:
                return True
            if version.since <= since:
                return False
        return False

    def see(self, node: Node, now: float, horizon: float) -> bool:
        """Whether it has changed. What it was like before `horizon` is forgotten."""
        self._resource_versions[node.name] = node.metadata.resource_version
        standing = standing_of(node)
        if self.current(node.name) == standing:
            return False
        self._append(node.name, Version(now, standing), horizon)
        return True

    def lose(self, name: str, now: float, horizon: float) -> None:
        if self._resource_versions.pop(name, None) is not None:
            self._append(name, Version(now, None), horizon)
            self._gone.append((now, name))

    def blur(self, name: str, since: float, horizon: float) -> None:
        """From `since` on it may have been different from what is known of it."""
        self._append(name, Version(since, None, unseen=True), horizon)

    def is_as_known(self, node: Node) -> bool:
        return self._resource_versions.get(node.name) == node.metadata.resource_version and self.current(
            node.name
        ) == standing_of(node)

    def _append(self, name: str, version: Version, horizon: float) -> None:
        versions = self._versions.setdefault(name, deque())
        versions.append(version)
        while len(versions) > 1 and versions[1].since < horizon:
            versions.popleft()
        while self._gone and self._gone[0][0] < horizon:
            _, gone = self._gone.popleft()
            if gone not in self._resource_versions:
                self._versions.pop(gone, None)
