"""ShardEvaluator: filters and scores the nodes of one table for classes of pods, incrementally.

Three levels, each recomputed only for rows that changed since it was last looked at: what plugins answer (Answers),
which nodes are feasible for a class (Feasibility), and the class's keys (Ranking). What only a changed node object can
change is kept apart, so that a placement costs the plugins that read loads and little more. On top stand the ladders.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flotilla.results import SUCCESS, Code, Range, Topology
from shared.cluster.changes import Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.topology import Domains, StrataOf
from shared.cluster.volumes import VolumeDecision
from shared.framework.allowednodes import AllowedNodes
from shared.framework.answers import Answers
from shared.framework.cyclestate import CycleState
from shared.framework.feasibility import Feasibility
from shared.framework.keymatrix import KeyMatrix, Keys, Mask
from shared.framework.ladder import greedy
from shared.framework.nominated import KeptRoom
from shared.framework.normalize import Scores
from shared.framework.plugin import Reads, joined
from shared.framework.podclass import PodClass
from shared.framework.podreads import about
from shared.framework.profile import Framework
from shared.framework.ranking import Ranking
from shared.framework.results import NOTHING_SEEN
from shared.framework.tiebreak import salt as tie_salt
from shared.framework.whatif import WhatIf
from shared.messages.evaluation import Summary, Ties
from shared.model.load import load_of
from shared.model.objects import Pod

SPARE_RUNGS = 8
"""So many placements more than its share twice over are offered in each domain."""


class Rungs(NamedTuple):
    """Placements of one class in greedy order. `complete`: after them no node of the table has room for one more.

    In a ladder by domains, they are in greedy order within each, and `cut` are the domains that have room for more.
    """

    rows: Rows
    keys: Keys
    complete: bool
    cut: list[Domains]


class Group(NamedTuple):
    """Rows among which one class climbs: the class's place in a list, and the domains that the rows share."""

    owner: int
    wanted: int
    among: Mask | None
    domains: Domains | None = None
    closed: tuple[Rows, Keys] | None = None


class Climbed(NamedTuple):
    rows: Rows
    keys: Keys
    complete: bool


def _joined(of_class: Sequence[tuple[Group, Climbed]]) -> Rungs:
    """The ladders of a class as one."""
    if len(of_class) == 1 and of_class[0][0].domains is None:
        return Rungs(*of_class[0][1], [])
    if not of_class:
        return Rungs(np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64), True, [])
    return Rungs(
        np.concatenate([climbed.rows for _, climbed in of_class]),
        np.concatenate([climbed.keys for _, climbed in of_class]),
        all(climbed.complete for _, climbed in of_class),
        [group.domains for group, climbed in of_class if not climbed.complete and group.domains is not None],
    )


class ShardEvaluator:
    def __init__(self, table: NodeTable, framework: Framework, ties: Ties) -> None:
        self.table = table
        self.framework = framework
        self.ties = ties
        self.answers = Answers(table, framework)
        self._matrix = KeyMatrix(table)
        self._strata = StrataOf(table)
        self.what_if = WhatIf(table, self.answers)
        self.kept_room = KeptRoom(table, self.what_if)
        self._feasibility = Feasibility(table, self.answers, self._matrix, self.kept_room)
        self._ranking = Ranking(table, framework, ties, self.answers, self._matrix, self.kept_room)
        self.tie_bits = self._ranking.tie_bits
        self._capacity = table.capacity

    # Classes

    def prepare(self, class_id: str, pod: Pod) -> PodClass:
        """Runs what needs no node (PreFilter, PreScore) and makes room for the answers.

        Whatever plugins may fail in comes first: a class that cannot be prepared takes no slots.
        """
        shown = self.framework.shown(pod)
        state = CycleState(shown, self.table.objects)
        with about(pod):
            pre = self.framework.run_pre_filter(state)
        failure = pre.rejection if pre.rejection is not None and pre.rejection.code is Code.ERROR else None
        with about(pod):
            pre_score = SUCCESS if pre.rejection is not None else self.framework.run_pre_score(state)
        AllowedNodes.restrict(state, pre)
        looked_at = pre.rejection is None
        skip_filter = state.skip_filter if pre.nodes is not None else state.skip_filter | {AllowedNodes.name}
        filters = [looked_at and plugin.name not in skip_filter for plugin in self.answers.filters]
        scored = looked_at and pre_score.ok
        scores = [scored and plugin.name not in state.skip_score for plugin in self.answers.scores]
        reads = self.framework.reads_objects(state)
        kind = self.table.kind(load_of(shown))
        salt = tie_salt(self.ties, class_id)
        self._fit()
        filter_slots, score_slots = self.answers.acquire(class_id, state, filters, scores, reads)
        return PodClass(
            id=class_id,
            state=state,
            pre=pre,
            failure=failure,
            score_failure=None if pre_score.ok else pre_score,
            kind=kind,
            salt=salt,
            slot=self._matrix.acquire(),
            filter_slots=filter_slots,
            score_slots=score_slots,
            weights=[weight if runs else 0 for weight, runs in zip(self.framework.weights, scores, strict=True)],
            objects={kind: self.table.objects.generation(kind) for kinds in reads.values() for kind in kinds},
        )

    def is_current(self, pod_class: PodClass) -> bool:
        """Whether the objects that were looked at for this class are what they were."""
        return all(self.table.objects.generation(kind) == then for kind, then in pod_class.objects.items())

    def release(self, pod_class: PodClass) -> None:
        self._matrix.release(pod_class.slot)
        self.answers.release(pod_class)

    def bytes_per_class(self) -> int:
        """About what one more class costs in memory, if it shares what reads only node objects with others."""
        return (self.answers.lines_per_class() + KeyMatrix.LINES_PER_CLASS) * 8 * self.table.capacity

    # Summaries

    def summarize(self, pod_class: PodClass) -> dict[str, object]:
        """The plugins' own summaries of this shard's nodes."""
        return {n: plugin.summarize(pod_class.state, self.table) for n, plugin in self.framework.summaries.items()}

    def believe(self, pod_class: PodClass, summaries: dict[str, object]) -> None:
        """Evaluate on these merged summaries from now on."""
        changed = self.answers.believe(pod_class, summaries)
        if changed:
            scores = enumerate(self.answers.scores)
            pod_class.mute = frozenset(s for s, plugin in scores if plugin.has_no_say(pod_class.state))
            pod_class.seen = pod_class.keyed = NOTHING_SEEN
        if Reads.NODE in changed:
            pod_class.node_seen = pod_class.node_keyed = NOTHING_SEEN

    def late_summary(self, pod_class: PodClass, among: Mask | None = None) -> dict[str, object]:
        """The plugins' own summaries of the feasible rows of a refreshed class."""
        feasible = self._feasibility.rows(pod_class)
        mask = feasible if among is None else feasible & among
        plugins = self.framework.summaries.items()
        found = {name: plugin.summarize_feasible(pod_class.state, self.table, mask) for name, plugin in plugins}
        return {name: summary for name, summary in found.items() if summary is not None}

    def believe_late(self, pod_class: PodClass, late: dict[str, object]) -> None:
        """Score on these merged summaries of feasible nodes from now on; a refreshed class stays so."""
        changed = self.answers.believe_late(pod_class, late)
        for reads in changed:
            self.answers.update([pod_class], reads)
        if changed:
            pod_class.keyed = NOTHING_SEEN
        if Reads.NODE in changed:
            pod_class.node_keyed = NOTHING_SEEN

    def summary(
        self,
        pod_class: PodClass,
        plugins: dict[str, object],
        among: Mask | None = None,
        late: dict[str, object] | None = None,
    ) -> Summary:
        """What this shard contributes to the merged summary of a refreshed class; `among` limits its nodes."""
        if among is not None:
            chosen = np.flatnonzero(self._feasibility.rows(pod_class) & among)
            ranges = self._feasibility.ranges_among(pod_class, chosen)
            return Summary(self.table.node_count, len(chosen), plugins, ranges, late or {})
        ranges = self._feasibility.ranges(pod_class)
        return Summary(self.table.node_count, pod_class.feasible, plugins, ranges, late or {})

    def topology(self, pod_class: PodClass) -> Topology | None:
        """By which labels decisions about other pods matter to this class; None if only by filling nodes."""
        plugins = self.framework.summaries.values()
        return joined(plugin.topology(pod_class.state, self.table) for plugin in plugins)

    def volumes(self, pod_class: PodClass, rows: Rows) -> list[VolumeDecision | None]:
        """What going to each of these rows means for the pod's volumes; empty if nothing anywhere."""
        decided: list[VolumeDecision | None] = []
        for plugin in self.framework.volumes:
            decided = [plugin.volumes_for(pod_class.state, self.table, row) for row in rows.tolist()]
        return decided if any(each is not None for each in decided) else []

    # Evaluating

    def refresh(self, classes: Sequence[PodClass]) -> None:
        """Brings feasibility, and the ranges of raw scores, up to the table's present state."""
        self._fit()
        if not self.table.size:
            return
        self._feasibility.refresh(classes)

    def feasible_rows(self, pod_class: PodClass) -> Mask:
        return self._feasibility.rows(pod_class)

    def rank(self, classes: Sequence[PodClass], ranges: Sequence[dict[str, Range]]) -> None:
        """Brings the keys of refreshed classes up to date, scores being normalised over the given ranges."""
        if not self.table.size:
            return
        self._ranking.rank(classes, ranges)

    def weighted_scores(self, pod_class: PodClass, s: int, rows: Rows) -> Scores:
        """What the s-th score plugin contributes to the total of these feasible rows."""
        return self._ranking.weighted_scores(pod_class, s, rows)

    def ladders(
        self,
        classes: Sequence[PodClass],
        wanted: Sequence[int],
        among: Sequence[Mask | None],
        strata: Sequence[tuple[str, ...]] | None = None,
    ) -> list[Rungs]:
        """For each ranked class up to so many placements in greedy order; `among` limits the rows.

        `strata`: label keys; a class that has some gets a ladder for each of the domains that its feasible rows are in,
        one after the other, and its share of the placements in each.
        """
        groups: list[Group] = []
        for i, (pod_class, n, mask) in enumerate(zip(classes, wanted, among, strict=True)):
            keys = strata[i] if strata is not None else ()
            groups += self._groups(i, pod_class, n, mask, keys)
        best = [g.closed or self._matrix.best(classes[g.owner].slot, g.wanted, g.among) for g in groups]
        sizes = [len(rows) for rows, _ in best]
        if not any(sizes) or all(g.wanted == 1 for g in groups):
            climbed = [Climbed(rows, keys, len(rows) < g.wanted) for (rows, keys), g in zip(best, groups, strict=True)]
        else:
            climbed = self._climb(classes, groups, best)
        found: list[list[tuple[Group, Climbed]]] = [[] for _ in classes]
        for group, of_group in zip(groups, climbed, strict=True):
            found[group.owner].append((group, of_group))
        return [_joined(of_class) for of_class in found]

    def offers(self, pod_class: PodClass, among: Mask | None) -> Rungs:
        """Every feasible row of a ranked class once."""
        rows, keys = self._matrix.best(pod_class.slot, self.table.size, among)
        return Rungs(rows, keys, True, [])

    def _groups(
        self, owner: int, pod_class: PodClass, wanted: int, among: Mask | None, keys: tuple[str, ...]
    ) -> list["Group"]:
        if not keys:
            return [Group(owner, wanted, among)]
        feasible = self._feasibility.rows(pod_class)
        rows = np.flatnonzero(feasible if among is None else feasible & among)
        strata = self._strata[keys].split(rows)
        share = min(wanted, 2 * -(-wanted // max(1, len(strata))) + SPARE_RUNGS)
        groups: list[Group] = []
        for domains, members in strata:
            mask = np.zeros(self.table.size, dtype=np.bool_)
            mask[members] = True
            groups.append(Group(owner, share, mask, domains))
        if wanted > 1 and among is None:
            groups += self._closed_groups(owner, pod_class, share, keys)
        return groups

    def _closed_groups(self, owner: int, pod_class: PodClass, share: int, keys: tuple[str, ...]) -> Iterator["Group"]:
        """Of rows in domains that are closed now and may open before the round is over."""
        rows = self._feasibility.closed_rows(pod_class)
        if not rows.size:
            return
        none = np.zeros(len(rows), dtype=np.int64)
        found = self._ranking.keys_with_own([pod_class], none.astype(np.intp), rows, none, [True])
        key_of = np.full(self.table.size, -1, dtype=np.int64)
        key_of[rows] = found
        for domains, members in self._strata[keys].split(rows[found >= 0]):
            of_members = key_of[members]
            if share < len(members):
                chosen = np.argpartition(of_members, len(members) - share)[-share:]
                members, of_members = members[chosen], of_members[chosen]
            yield Group(owner, share, None, domains, (members, of_members))

    def _climb(
        self, classes: Sequence[PodClass], groups: Sequence["Group"], best: Sequence[tuple[Rows, Keys]]
    ) -> list["Climbed"]:
        """Greedy order within each group, all of them at once."""
        rows = np.concatenate([of_group for of_group, _ in best])
        group = np.repeat(np.arange(len(groups), dtype=np.intp), [len(of_group) for of_group, _ in best])
        owner_of = np.array([g.owner for g in groups], dtype=np.intp)
        openly = [False] * len(classes)
        for g in groups:
            openly[g.owner] |= g.domains is not None

        def lookahead(which: Rows, own: NDArray[np.int64]) -> Keys:
            return self._ranking.keys_with_own(classes, owner_of[group[which]], rows[which], own, openly)

        counts = np.array([g.wanted for g in groups], dtype=np.int64)
        owner, keys, fills = greedy(np.concatenate([of_group for _, of_group in best]), group, counts, lookahead)
        ends = np.searchsorted(group[owner], np.arange(1, len(groups) + 1)).tolist()
        placed = rows[owner]
        climbed: list[Climbed] = []
        for g, start, end in zip(groups, [0, *ends[:-1]], ends, strict=True):
            valid, moves = self._until_ranges_move(classes[g.owner], placed[start:end], fills[start:end])
            complete = not moves and end - start < g.wanted
            climbed.append(Climbed(placed[start : start + valid], keys[start : start + valid], complete))
        return climbed

    def _until_ranges_move(self, pod_class: PodClass, rows: Rows, fills: Mask) -> tuple[int, bool]:
        """How many of these placements it takes until the last feasible node with an extreme raw score is full.

        From then on scores are normalised over another range, and what follows in any ladder is void.
        """
        upto, moves = len(rows), False
        for s, tally in pod_class.tallies.items():
            low, high = (pod_class.ranges or {}).get(self.answers.scores[s].name, (0, 0))
            if low == high or not pod_class.weights[s]:
                continue
            raw = self.answers.score_pools[s].values[pod_class.score_slots[s]]
            left = dict(tally)
            for place in np.flatnonzero(fills[:upto]).tolist():
                value = int(raw[rows[place]])
                if value not in left:
                    continue  # of a row that is not feasible yet
                left[value] -= 1
                if left[value] == 0 and value in (low, high):
                    upto, moves = place + 1, True
                    break
        return upto, moves

    def _fit(self) -> None:
        """The table may have grown."""
        if self._capacity != self.table.capacity:
            self._capacity = self.table.capacity
            self._matrix.fit(self._capacity)
            self.answers.fit(self._capacity)
