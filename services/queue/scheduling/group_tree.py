"""What the queue sends the cycle of a gang that is a tree of groups, and which of its pods are popped together.

It sends most trees as one group: those of which all pods are needed, with constraints of one group for all of them. Of
the others it sends each group.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from services.queue.scheduling.composite_info import CompositeInfo
from services.queue.scheduling.group_forest import Forest, Node
from services.queue.scheduling.group_info import GroupInfo, MemberState, named_nodes
from services.queue.scheduling.popped_together import PoppedTogether
from services.queue.scheduling.queued_gang import in_order
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.messages.queue import Gang, GangGroup
from shared.model.composite_groups import MAX_LEVELS

Ready = Mapping[GroupInfo, int]
"""How many pods of each group stand in the entry."""


def popped_as_tree(
    forest: Forest, unit: CompositeInfo, members: Sequence[tuple[GroupInfo, QueuedPodInfo]]
) -> PoppedTogether | None:
    """The pods of groups that can be placed as things stand; None if these are too few for `unit` to be placed."""
    ready = Counter(group for group, _ in members)
    able, groups = _able(forest, unit, ready, MAX_LEVELS)
    if not able:
        return None
    group_of = {info.uid: group for group, info in members if group in groups}
    pods = in_order(info for group, info in members if group in groups)
    tree = _Tree(forest, {group: ready[group] for group in groups})
    above = next(iter(groups)).above
    path = above[: above.index(unit) + 1]
    gang = tree.told(path)
    numbers = tuple(tree.number_of(group_of[info.uid]) for info in pods) if gang.groups else ()
    return PoppedTogether(pods, gang, numbers)


def told(forest: Forest, group: GroupInfo) -> Gang:
    """Of a pod group that is placed by itself, in the domains of the groups above it."""
    return _Tree(forest, {group: 0}).told((*group.above, group))  # any of its pods counts for itself


def _able(forest: Forest, node: Node, ready: Ready, levels: int) -> tuple[bool, list[GroupInfo]]:
    """Whether the group can be placed, and the pod groups below it that can, and have ready pods."""
    if isinstance(node, GroupInfo):
        is_able = node.object is not None and not node.problem and _needed(node) <= ready.get(node, 0)
        return is_able, [node] if is_able and node in ready else []
    if node.object is None or not levels:
        return False, []
    below = [_able(forest, child, ready, levels - 1) for child in forest.children(node)]
    if sum(is_able for is_able, _ in below) < node.least:
        return False, []
    return True, [group for _, groups in below for group in groups]


def _needed(group: GroupInfo) -> int:
    return max(max(group.minimum, 1) - group.counts[MemberState.PLACED], 0)


class _Tree:
    def __init__(self, forest: Forest, ready: Ready) -> None:
        """`ready`: the pod groups whose pods are popped."""
        self._forest = forest
        self._ready = ready
        self._with_ready = {above.key for group in ready for above in group.above}
        self._numbers: dict[Node, int] = {}

    def number_of(self, group: GroupInfo) -> int:
        return self._numbers[group]

    def told(self, path: Sequence[Node]) -> Gang:
        """`path`: from the root down to the group that must be placed, or nothing is."""
        unit = path[-1]
        constrained = [each for each in path if each.topology]
        group = next(iter(self._ready))
        priority, never = group.priority, group.never_preempts
        key = str(unit.ref)
        is_one = all(each is unit for each in constrained)
        is_all = isinstance(unit, GroupInfo) or self._needs_all(unit)
        least = max(unit.missing, 1) if isinstance(unit, GroupInfo) else sum(self._ready.values())
        if is_one and is_all:
            return Gang(key, least, unit.topology, self._placed_on(unit) if unit.topology else (), priority, never)
        groups: list[GangGroup] = []
        for each in path:
            if each is unit or each.topology:
                self._add(each, groups, needed=each is unit)
        return Gang(key, least, priority=priority, never_preempts=never, groups=tuple(groups))

    def _needs_all(self, node: Node) -> bool:
        """Whether every pod that is popped is needed, and nothing below `node` has a domain of its own."""
        if isinstance(node, GroupInfo):
            return self._ready[node] == _needed(node)
        listed = self._listed(node)
        placed = sum(each.shown.placed for each in self._forest.children(node))
        is_all = placed + len(listed) == node.least and not any(each.shown.placed for each in listed)
        return is_all and all(not each.topology and self._needs_all(each) for each in listed)

    def _listed(self, node: CompositeInfo) -> list[Node]:
        """Its groups of which pods are popped."""
        return [
            each
            for each in self._forest.children(node)
            if (each in self._ready if isinstance(each, GroupInfo) else each.key in self._with_ready)
        ]

    def _add(self, node: Node, groups: list[GangGroup], *, needed: bool = True) -> None:
        """`needed`: it is the unit or below it. Other groups only say where it may lie."""
        number = self._numbers[node] = len(groups)
        parent = self._numbers.get(node.parent, number - 1) if node.parent is not None and number else 0
        placed_on = self._placed_on(node) if node.topology else ()
        name = node.ref.name if isinstance(node, GroupInfo) else node.name
        is_composite, least = isinstance(node, CompositeInfo), 1
        below: list[Node] = []
        if isinstance(node, GroupInfo):
            least = _needed(node) if self._ready[node] else max(_needed(node), 1)
        elif needed:
            below = self._listed(node)
            least = max(node.least - sum(each.shown.placed for each in self._forest.children(node)), 0)
            least += sum(each.shown.placed for each in below)
        groups.append(GangGroup(name, parent, is_composite, least, node.topology, placed_on))
        for each in below:
            self._add(each, groups)

    def _placed_on(self, node: Node) -> tuple[str, ...]:
        below: Iterable[GroupInfo] = [node] if isinstance(node, GroupInfo) else self._forest.leaves(node)
        nodes: Counter[str] = Counter()
        for group in below:
            nodes.update(group.nodes())
        return named_nodes(nodes)
