"""What a search for a placement of a tree asks in its next step."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import Reservations, RoundResult
from services.cycle.round.group_tree import GroupTree
from services.cycle.round.ladder_merge import Placement
from services.cycle.round.placement_search import MAX_OPTIONS
from services.cycle.round.tree_search import Alike, Put, TreeSearch
from shared.messages.rounds import Scope


class TreeSearchStep:
    """Stands in for a GangRound, step after step, until the search is over."""

    def __init__(self, tree: GroupTree, members: Mapping[int, Sequence[PodInfo]], *, any_order: bool) -> None:
        """`members`: by the numbers of their groups."""
        self._members = {
            (number, info.class_id): [each for each in of if each.class_id == info.class_id]
            for number, of in members.items()
            for info in of
        }
        self._tree = tree
        self.labels = tuple(
            dict.fromkeys(level.key for group in tree.groups for level in group.topology if not level.preferred)
        )
        wanted = {Alike(*key): len(of) for key, of in self._members.items()}
        self.search = TreeSearch(tree, wanted, self.labels, any_order=any_order)
        self.failed: RoundResult | None = None
        self.open: deque[PodInfo] = deque()

    @property
    def scope(self) -> Scope:
        """Workers give the values of nodes in the order of `labels`, as no places are counted."""
        on = {group.placed_on[0] for group in self._tree.groups if group.topology and group.placed_on}
        return Scope(count_by=list(self.labels), values_of=sorted(on), options=MAX_OPTIONS)

    def asked(self) -> list[PodInfo]:
        """A member of each class that may be placed next."""
        return list({each.class_id: self._members[each][0] for each in self.search.open}.values())

    @property
    def wanted(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for (_, class_id), of in self._members.items():
            found[class_id] += len(of)
        return dict(found)

    @property
    def decided(self) -> list[tuple[PodInfo, Placement]]:
        return self._with_members(self.search.placed)

    def kept(self) -> list[tuple[PodInfo, Placement]]:
        """What a search that has found a placement leaves in place."""
        return self._with_members(self.search.kept)

    def _with_members(self, puts: Sequence[Put]) -> list[tuple[PodInfo, Placement]]:
        left = {key: iter(of) for key, of in self._members.items()}
        return [(next(left[put.member]), put.placement) for put in puts]

    @property
    def assumed(self) -> Sequence[tuple[PodInfo, Placement]]:
        return self.decided

    def reservations(self) -> Reservations:
        return Reservations(self.decided)

    def take(self, result: RoundResult) -> None:
        if result.failed:
            self.failed = result
            return
        for number, group in enumerate(self._tree.groups):
            if group.topology and group.placed_on and group.placed_on[0] in result.values:
                self.search.values_on[number] = result.values[group.placed_on[0]]
        self.search.any_order |= result.is_followed
        self.search.take(result.offered or {})

    @property
    def is_over(self) -> bool:
        return self.failed is not None or bool(self.search.outcome)
