"""Ladders: a shard's best placements for a class in the greedy order in which equal pods would take nodes.

Taking the best node again and again, for k pods of one class, only ever touches the k nodes that are best at first:
before the j-th placement at most j - 1 of them were touched, so an untouched one of them is at least as good as any
other node. For each of these nodes the key is known as a function of how many pods it has been given, and the greedy
order is the order of the *running minimum* of these functions: a node whose key rises with a placement (bin packing)
is taken again at once, exactly as greed would.

Many classes climb at once, each on candidates of its own, so that looking ahead is one call for all of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flotilla.plugin import Index, Ints, Mask
from shared.cluster.columns import Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.topology import Domains, Strata
from shared.cluster.view import Planned, TableView
from shared.framework.answers import Answers, scored
from shared.framework.feasibility import Feasibility
from shared.framework.pod_class import ClassRows, Keys, PodClass
from shared.framework.ranking import Ranking

MAX_STRATA = 64
"""Combinations of labels by which the grouping of rows is cached."""
SPARE_RUNGS = 8
"""Placements offered in each domain beyond twice its share."""


def share_of(wanted: int, domains: int) -> int:
    """How many of the placements each domain offers."""
    return min(wanted, 2 * -(-wanted // max(1, domains)) + SPARE_RUNGS)


class Rungs(NamedTuple):
    """Placements of one class in greedy order. `complete`: after them no node of the table has room for one more.

    In a ladder by domains, they are in greedy order within each, and `cut` are the domains that have room for more.
    `fills`: whether each leaves no room for another pod on its node; None if that was not found out.
    """

    rows: Rows
    keys: Keys
    complete: bool
    cut: list[Domains]
    fills: Mask | None = None


class _Group(NamedTuple):
    """Rows among which one class climbs: the class's index in a list, and the domains that the rows share."""

    owner: int
    wanted: int
    among: Mask | None
    domains: Domains | None = None
    closed: tuple[Rows, Keys] | None = None


class _Climbed(NamedTuple):
    rows: Rows
    keys: Keys
    complete: bool
    fills: Mask | None = None


def _joined(of_class: Sequence[tuple[_Group, _Climbed]]) -> Rungs:
    """The ladders of a class as one."""
    if len(of_class) == 1 and of_class[0][0].domains is None:
        only = of_class[0][1]
        return Rungs(only.rows, only.keys, only.complete, [], only.fills)
    if not of_class:
        return Rungs(np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64), True, [])
    return Rungs(
        np.concatenate([climbed.rows for _, climbed in of_class]),
        np.concatenate([climbed.keys for _, climbed in of_class]),
        all(climbed.complete for _, climbed in of_class),
        [group.domains for group, climbed in of_class if not climbed.complete and group.domains is not None],
    )


class Ladders:
    def __init__(
        self, table: NodeTable, answers: Answers, class_rows: ClassRows, feasibility: Feasibility, ranking: Ranking
    ) -> None:
        self._table = table
        self._answers = answers
        self._class_rows = class_rows
        self._feasibility = feasibility
        self._ranking = ranking
        self._strata: dict[tuple[str, ...], tuple[int, Strata]] = {}

    def climb(
        self,
        classes: Sequence[PodClass],
        wanted: Sequence[int],
        among: Sequence[Mask | None],
        strata: Sequence[tuple[str, ...]] | None = None,
        within: Mask | None = None,
    ) -> list[Rungs]:
        """For each ranked class up to `wanted` placements in greedy order; `among` limits the rows of a class, and
        `within` those of all classes.

        `strata`: label keys; a class that has some gets a ladder for each of the domains that its feasible rows are in,
        one after the other, and its share of the placements in each.
        """
        groups: list[_Group] = []
        for i, (pod_class, n, mask) in enumerate(zip(classes, wanted, among, strict=True)):
            keys = strata[i] if strata is not None else ()
            groups += self._groups(i, pod_class, n, mask, keys, within)
        best = [g.closed or self._class_rows.best(classes[g.owner].slot, g.wanted, g.among) for g in groups]
        sizes = [len(rows) for rows, _ in best]
        if not any(sizes) or all(g.wanted == 1 for g in groups):
            climbed = [_Climbed(rows, keys, len(rows) < g.wanted) for (rows, keys), g in zip(best, groups, strict=True)]
        else:
            climbed = self._climb(classes, groups, best)
        found: list[list[tuple[_Group, _Climbed]]] = [[] for _ in classes]
        for group, of_group in zip(groups, climbed, strict=True):
            found[group.owner].append((group, of_group))
        return [_joined(of_class) for of_class in found]

    def offers(self, pod_class: PodClass, among: Mask | None, most: int = 0) -> Rungs:
        """Every feasible row of a ranked class once; or only the best, if there are more than `most`."""
        wanted = most + 1 if most else self._table.size
        rows, keys = self._class_rows.best(pod_class.slot, min(wanted, self._table.size), among)
        if not most:
            return Rungs(rows, keys, True, [])
        order = np.argsort(-keys, kind="stable")[:most]
        return Rungs(rows[order], keys[order], len(rows) <= most, [])

    def _groups(
        self,
        owner: int,
        pod_class: PodClass,
        wanted: int,
        among: Mask | None,
        keys: tuple[str, ...],
        within: Mask | None,
    ) -> list[_Group]:
        here = within if among is None else among if within is None else among & within
        if not keys:
            return [_Group(owner, wanted, here)]
        feasible = self._feasibility.rows(pod_class)
        rows = np.flatnonzero(feasible if here is None else feasible & here)
        strata = self._strata_by(keys).split(rows)
        share = share_of(wanted, len(strata))
        groups: list[_Group] = []
        for domains, members in strata:
            mask = np.zeros(self._table.size, dtype=np.bool_)
            mask[members] = True
            groups.append(_Group(owner, share, mask, domains))
        if wanted > 1 and among is None:
            groups += self._closed_groups(owner, pod_class, share, keys, within)
        return groups

    def _strata_by(self, keys: tuple[str, ...]) -> Strata:
        position = self._table.node_log.position
        known = self._strata.get(keys)
        if known is None or known[0] != position:
            if len(self._strata) >= MAX_STRATA:
                self._strata.clear()
            known = self._strata[keys] = position, Strata(self._table, keys)
        return known[1]

    def _closed_groups(
        self, owner: int, pod_class: PodClass, share: int, keys: tuple[str, ...], within: Mask | None
    ) -> Iterator[_Group]:
        """Of rows in domains that are closed now and may open before the round is over."""
        rows = self._feasibility.closed_rows(pod_class)
        rows = rows if within is None else rows[within[rows]]
        if not rows.size:
            return
        none = np.zeros(len(rows), dtype=np.int64)
        found = self._ranking.keys_with_planned([pod_class], none.astype(np.intp), rows, none, [True])
        key_of = np.full(self._table.size, -1, dtype=np.int64)
        key_of[rows] = found
        for domains, members in self._strata_by(keys).split(rows[found >= 0]):
            of_members = key_of[members]
            if share < len(members):
                chosen = np.argpartition(of_members, len(members) - share)[-share:]
                members, of_members = members[chosen], of_members[chosen]
            yield _Group(owner, share, None, domains, (members, of_members))

    def _climb(
        self, classes: Sequence[PodClass], groups: Sequence[_Group], best: Sequence[tuple[Rows, Keys]]
    ) -> list[_Climbed]:
        """Greedy order within each group, all of them at once."""
        rows = np.concatenate([of_group for of_group, _ in best])
        group = np.repeat(np.arange(len(groups), dtype=np.intp), [len(of_group) for of_group, _ in best])
        owner_of = np.array([g.owner for g in groups], dtype=np.intp)
        open_domains = [False] * len(classes)
        for g in groups:
            open_domains[g.owner] |= g.domains is not None

        def lookahead(which: Rows, planned: Ints) -> Keys:
            return self._ranking.keys_with_planned(classes, owner_of[group[which]], rows[which], planned, open_domains)

        counts = np.array([g.wanted for g in groups], dtype=np.int64)
        owner, keys, fills = greedy(np.concatenate([of_group for _, of_group in best]), group, counts, lookahead)
        ends = np.searchsorted(group[owner], np.arange(1, len(groups) + 1)).tolist()
        placed = rows[owner]
        climbed: list[_Climbed] = []
        for g, start, end in zip(groups, [0, *ends[:-1]], ends, strict=True):
            valid, moves = self._until_ranges_move(classes[g.owner], placed[start:end], fills[start:end])
            complete = not moves and end - start < g.wanted
            upto = start + valid
            climbed.append(_Climbed(placed[start:upto], keys[start:upto], complete, fills[start:upto]))
        return climbed

    def _until_ranges_move(self, pod_class: PodClass, rows: Rows, fills: Mask) -> tuple[int, bool]:
        """How many of these placements it takes until the last feasible node with an extreme raw score is full.

        From then on scores are normalised over another range, and what follows in any ladder is void.
        """
        upto, moves = len(rows), False
        for s, tally in pod_class.feasibility.tallies.items():
            low, high = (pod_class.keys.ranges or {}).get(self._answers.scores[s].name, (0, 0))
            if low == high or not pod_class.weights[s]:
                continue
            left, at = dict(tally), np.flatnonzero(fills[:upto])
            raw = self._answers.score_pools[s].values.read(int(pod_class.answers.score_slots[s]), rows[at])
            for i, value in zip(at.tolist(), raw.tolist(), strict=True):
                if value not in left:
                    continue  # of a row that is not feasible yet
                left[value] -= 1
                if left[value] == 0 and value in (low, high):
                    upto, moves = i + 1, True
                    break
        for s in self._answers.scores_of_claims:
            if pod_class.weights[s] and upto:
                before_highest_leaves = self._until_highest_leaves(pod_class, s, rows[:upto], fills[:upto])
                if before_highest_leaves < upto:
                    upto, moves = before_highest_leaves, True
        return upto, moves

    def _until_highest_leaves(self, pod_class: PodClass, s: int, rows: Rows, fills: Mask) -> int:
        """How many of these placements it takes until no node has the highest raw score, by which all are scaled."""
        plugin = self._answers.scores[s]
        high = (pod_class.keys.ranges or {}).get(plugin.name, (0, 0))[1]
        if not high:
            return len(rows)
        feasible = np.flatnonzero(self._feasibility.rows(pod_class))
        pool = self._answers.score_pools[s]
        left = int((pool.values.read(int(pod_class.answers.score_slots[s]), feasible) == high).sum())
        earlier, counts = Counter[int](), []
        for row in rows.tolist():
            counts.append(earlier[row])
            earlier[row] += 1
        planned, alone = np.array(counts, dtype=np.int64), np.zeros(len(rows), dtype=np.intp)
        before, after = (
            scored(
                plugin, [pod_class.state], alone, TableView(self._table, rows, Planned(count, [pod_class.kind], alone))
            )
            for count in (planned, planned + 1)
        )
        for i in np.flatnonzero((before == high) & ((after != high) | fills)).tolist():
            left -= 1
            if not left:
                return int(i) + 1
        return len(rows)


# Greedy order

Lookahead = Callable[[Index, Ints], Keys]
"""(which candidates, how many pods each already has) -> their keys then; negative where no further pod fits."""


class GreedyOrder(NamedTuple):
    """Which candidate each placement takes, the key it has at that moment, and whether it is full afterwards."""

    owner: Index
    key: Keys
    fills: NDArray[np.bool_]


def greedy(first: Keys, group: Index, wanted: Ints, lookahead: Lookahead) -> GreedyOrder:
    """Up to `wanted[g]` placements for every group g.

    `first` holds the candidates' keys with nothing placed, none of them negative, and `group` what each belongs to.
    The placements come group by group, in greedy order. A group whose candidates are full before gets fewer.
    """
    owner: Index = np.arange(len(first), dtype=np.intp)
    count: Ints = np.zeros(len(first), dtype=np.int64)
    key, floor = first, first
    depth: Ints = np.ones(len(first), dtype=np.int64)
    deepest = first.copy()  # of each candidate: the running minimum where its known curve ends
    while True:
        taken = _taken(floor, count, group[owner], wanted)
        times = np.bincount(owner[taken], minlength=len(first))
        short = np.flatnonzero((times == depth) & (deepest >= 0) & (depth < wanted[group]))
        if not short.size:
            room = np.bincount(owner[floor >= 0], minlength=len(first))
            of_taken = owner[taken]
            fills = (deepest[of_taken] < 0) & (count[taken] == room[of_taken] - 1)
            return GreedyOrder(of_taken, key[taken], fills)
        more_owner, more_count = _extension(
            short, depth[short], np.minimum(depth[short], (wanted[group] - depth)[short])
        )
        more_key = lookahead(more_owner, more_count)
        more_floor = _running_minimum(more_owner, more_key, deepest)
        owner, count = np.concatenate([owner, more_owner]), np.concatenate([count, more_count])
        key, floor = np.concatenate([key, more_key]), np.concatenate([floor, more_floor])
        last = np.flatnonzero(np.append(more_owner[1:] != more_owner[:-1], True))
        depth[more_owner[last]] = more_count[last] + 1
        deepest[more_owner[last]] = more_floor[last]


def _taken(floor: Keys, count: Ints, group: Index, wanted: Ints) -> Index:
    """The placements that greed makes, group by group and in order."""
    order = np.lexsort((count, -floor, group))
    sizes = np.bincount(group, minlength=len(wanted))
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[(rank < np.repeat(wanted, sizes)) & (floor[order] >= 0)]


def _extension(short: Index, start: Ints, length: Ints) -> tuple[Index, Ints]:
    """For each candidate the counts start, start + 1 ... of the given length, flattened."""
    owner = np.repeat(short, length)
    ends = np.cumsum(length)
    within = np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(ends - length, length)
    return owner, np.repeat(start, length) + within


def _running_minimum(owner: Index, key: Keys, before: Keys) -> Keys:
    """Of each owner's keys in turn, starting from what the minimum was `before`."""
    floor = np.minimum(key, before[owner])
    starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    ends = np.append(starts[1:], len(owner))
    for step in range(1, int((ends - starts).max())):
        here = starts + step
        here = here[here < ends]
        floor[here] = np.minimum(floor[here], floor[here - 1])
    return floor
