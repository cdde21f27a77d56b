"""The trees of groups that PodGroups are in. Workers hold PodGroups only: each has what its tree means for victims.

A change of a composite group changes all PodGroups below it.
"""

from collections.abc import Iterator

import msgspec

from shared.errors import InvariantBroken
from shared.model.composite_groups import MAX_LEVELS, CompositePodGroup
from shared.model.kinds import ObjectKind
from shared.model.workloads import InTree, PodGroup


class GroupTrees:
    """Methods that take in a change return the PodGroups that may have changed, as they are to be published."""

    def __init__(self) -> None:
        self._composites: dict[str, CompositePodGroup] = {}
        self._groups: dict[str, PodGroup] = {}
        """PodGroups that name a parent, as the watch shows them."""
        self._below: dict[str, set[tuple[bool, str]]] = {}
        """By the key of a parent: the keys of the groups in it, and whether they are composite."""

    def seen(self, group: PodGroup | CompositePodGroup) -> list[PodGroup]:
        if isinstance(group, CompositePodGroup):
            self._move(True, group.key, self._composites.get(group.key), group)
            self._composites[group.key] = group
            return [self._in_tree(each) for each in self._leaves(group.key)]
        self._move(False, group.key, self._groups.pop(group.key, None), group)
        if not group.parent:
            return [group]
        self._groups[group.key] = group
        return [self._in_tree(group)]

    def gone(self, kind: ObjectKind, key: str) -> list[PodGroup]:
        """The PodGroups that are left."""
        if kind is not ObjectKind.COMPOSITE_POD_GROUP:
            self._move(False, key, self._groups.pop(key, None), None)
            return []
        self._move(True, key, self._composites.pop(key, None), None)
        return [self._in_tree(each) for each in self._leaves(key)]

    def _move(
        self,
        is_composite: bool,
        key: str,
        before: PodGroup | CompositePodGroup | None,
        now: PodGroup | CompositePodGroup | None,
    ) -> None:
        if before is not None and before.parent:
            siblings = self._below[before.parent]
            siblings.remove((is_composite, key))
            if not siblings:
                del self._below[before.parent]
        if now is not None and now.parent:
            self._below.setdefault(now.parent, set()).add((is_composite, key))

    def _leaves(self, root: str) -> Iterator[PodGroup]:
        """The PodGroups below this composite group, each once."""
        seen, left = {root}, [root]
        while left:
            for is_composite, key in sorted(self._below.get(left.pop(), ())):
                if not is_composite:
                    yield self._groups[key]
                elif key not in seen:
                    seen.add(key)
                    left.append(key)

    def _in_tree(self, group: PodGroup) -> PodGroup:
        path: list[CompositePodGroup] = []
        root = group.parent
        while len(path) < MAX_LEVELS and (above := self._composites.get(root)) is not None:
            path.append(above)
            if not above.parent:
                break
            root = above.parent
        if not path and group.tree is not None:  # it was published by another snapshot, which knew its tree
            return group
        whole = [each.key for each in path if each.is_evicted_whole]
        priority = (path[-1] if path else group).priority
        tree = InTree(root=root, evicted_with=whole[-1] if whole else "", priority=priority)
        return msgspec.structs.replace(group, tree=tree)

    def validate(self) -> None:
        found: dict[str, set[tuple[bool, str]]] = {}
        for is_composite, groups in ((True, self._composites), (False, self._groups)):
            for key, group in groups.items():
                if group.parent:
                    found.setdefault(group.parent, set()).add((is_composite, key))
        if found != self._below:
            raise InvariantBroken(f"the groups in composite pod groups are {found}, and counted as {self._below}")
