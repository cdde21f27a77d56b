"""Composite pod groups as trees, of which pod groups are the leaves.

Each group tells its parent how far it has come, whenever that changes; so does the parent, up to the root. A pod group
is part of a tree only once all groups above it exist. If these are too many, or name each other as parents, it never
is.
"""

from collections.abc import Iterator

from services.queue.scheduling.composite_info import NOTHING, CompositeInfo
from services.queue.scheduling.group_changes import says_the_same
from services.queue.scheduling.group_info import GroupInfo
from shared.errors import InvariantBroken
from shared.model.composite_groups import MAX_LEVELS, CompositePodGroup
from shared.model.workloads import MAX_TOPOLOGY_LEVELS

Node = GroupInfo | CompositeInfo


class Forest:
    def __init__(self) -> None:
        self._composites: dict[str, CompositeInfo] = {}
        """By key, also those that are only named as parents."""
        self._children: dict[str, dict[Node, None]] = {}
        """By the key of their parent, in the order in which they came."""

    def __len__(self) -> int:
        return len(self._composites)

    def get(self, key: str) -> CompositeInfo | None:
        """Read only."""
        return self._composites.get(key)

    def composites(self) -> list[CompositeInfo]:
        """Read only."""
        return list(self._composites.values())

    def children(self, of: CompositeInfo) -> list[Node]:
        return list(self._children.get(of.key, ()))

    def leaves(self, below: CompositeInfo) -> Iterator[GroupInfo]:
        """The pod groups below it, at any depth, each once."""
        seen, left = {below.key}, self.children(below)[::-1]
        while left:
            node = left.pop()
            if isinstance(node, GroupInfo):
                yield node
            elif node.key not in seen:
                seen.add(node.key)
                left += self.children(node)[::-1]

    def tree(self, key: str) -> Iterator[GroupInfo]:
        """The pod groups of the tree that this composite group is in."""
        node = self._composites.get(key)
        return iter(()) if node is None else self.leaves(_root(node))

    def set(self, found: CompositePodGroup) -> list[GroupInfo]:
        """Takes in a composite group; returns the pod groups for which something may have changed."""
        node = self._composite(found.key)
        before, same = node.parent, says_the_same(node.object, found)
        node.object = found
        if same:
            return []
        self._move(node, found.parent)
        return self._refreshed(node, before)

    def delete(self, key: str) -> list[GroupInfo]:
        node = self._composites.get(key)
        if node is None:
            return []
        before = node.parent
        node.object = None
        self._move(node, "")
        leaves = self._refreshed(node, before)
        self._drop_if_empty(node)
        return leaves

    def place(self, group: GroupInfo, parent: str) -> list[GroupInfo]:
        """The group is one of this composite group's, or of none; returns what may have changed, as `set`."""
        if group.parent is None and not parent:
            return []
        before = group.parent
        self._move(group, parent)
        self._refresh(group)
        found = [] if group.parent is None else list(self.leaves(_root(group.parent)))
        return [group, *found, *self._left_behind(before, group)]

    def is_invalid(self, node: CompositeInfo) -> bool:
        """Whether no pod group below it is in a tree."""
        return all(leaf.problem for leaf in self.leaves(node))

    def moved_on(self, group: GroupInfo) -> list[GroupInfo]:
        """A member of this group has moved; returns the pod groups for which that may change something."""
        top = self._show(group)
        return [] if top is None else list(self.leaves(top))

    # Inside

    def _composite(self, key: str) -> CompositeInfo:
        node = self._composites.get(key)
        if node is None:
            node = self._composites[key] = CompositeInfo(key)
        return node

    def _move(self, node: Node, parent: str) -> None:
        before = node.parent
        if (before.key if before is not None else "") == parent:
            return
        if before is not None:
            before.count(node.shown, NOTHING)
            before.groups -= 1
            del self._children[before.key][node]
            node.parent = None
            self._show(before)
            self._drop_if_empty(before)
        if parent:
            node.parent = above = self._composite(parent)
            above.count(NOTHING, node.shown)
            above.groups += 1
            self._children.setdefault(parent, {})[node] = None
            self._show(above)

    def _drop_if_empty(self, node: CompositeInfo) -> None:
        if node.object is None and not node.groups:
            self._composites.pop(node.key, None)
            self._children.pop(node.key, None)

    def _refreshed(self, node: CompositeInfo, before: CompositeInfo | None) -> list[GroupInfo]:
        """All pod groups of its tree and of the one it was in, after those below it have read again what is above."""
        self._show(node)
        for leaf in self.leaves(node):
            self._refresh(leaf)
        return [*self.leaves(_root(node)), *self._left_behind(before, node)]

    def _left_behind(self, before: CompositeInfo | None, moved: Node) -> Iterator[GroupInfo]:
        """The pod groups of the tree that a group was in: without it, they may have to wait for others."""
        if before is not None and before is not moved.parent:
            yield from self.leaves(_root(before))

    def _refresh(self, group: GroupInfo) -> None:
        group.above, group.problem, group.invalid = _above(group)
        self._show(group)

    def _show(self, node: Node) -> CompositeInfo | None:
        """Tells the groups above how far this one has come; returns the highest for which that makes a difference."""
        top: CompositeInfo | None = None
        while (now := node.progress) != node.shown:
            before, node.shown, parent = node.shown, now, node.parent
            if parent is None:
                break
            known = parent.progress, parent.missing > 1
            parent.count(before, now)
            if known != (parent.progress, parent.missing > 1):
                top = parent
            node = parent
        return top

    def validate(self) -> None:
        for key, node in self._composites.items():
            children = self.children(node)
            counted = [sum(bool(each.shown[step]) for each in children) for step in range(len(NOTHING))]
            if counted != [node.complete, node.can_start, node.placed] or len(children) != node.groups:
                raise InvariantBroken(f"composite pod group {key} counts wrongly: {node}, and has {counted}")
            if node.shown != node.progress or any(each.shown != each.progress for each in children):
                raise InvariantBroken(f"composite pod group {key} does not know how far its groups have come")
            node.gang.validate()


def _root(node: CompositeInfo) -> CompositeInfo:
    seen = {node.key}
    while node.parent is not None and node.parent.key not in seen:
        node = node.parent
        seen.add(node.key)
    return node


def _above(group: GroupInfo) -> tuple[tuple[CompositeInfo, ...], str, tuple[CompositeInfo, ...]]:
    """The composite groups above a pod group, from the root down; or what is wrong with them, and those that are
    invalid for that.
    """
    path: list[CompositeInfo] = []
    topologies = [group.topology]
    node = group.parent
    while node is not None:
        if node in path:
            names = " and ".join(each.name for each in path[path.index(node) :])
            return (), f"the composite pod groups {names} name each other as parents", tuple(path)
        if node.object is None:
            return (), f"waiting for composite pod group {node.name} to appear in scheduling queue", ()
        path.append(node)
        topologies.append(node.topology)
        if len(path) == MAX_LEVELS:
            they = f"pod group {group.ref.name} and the groups above it"
            return (), f"{they} are more than {MAX_LEVELS} levels: {_chain(path)}", tuple(path)
        node = node.parent
    levels = sum(map(len, topologies))
    if levels > MAX_TOPOLOGY_LEVELS:
        named = f"pod group {group.ref.name} and the groups above it name {levels} topology levels"
        return (), f"{named}, and at most {MAX_TOPOLOGY_LEVELS} count", tuple(path)
    return tuple(reversed(path)), "", ()


def _chain(path: list[CompositeInfo]) -> str:
    return " in ".join(each.name for each in path)
