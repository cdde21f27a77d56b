"""Which answers about a class last: what the cycle may take for known until something else is written.

A ladder of such a class has the placements that would be proposed one by one. If a plugin's raw scores change with
every placement, and are followed in groups (`shared/plugins/grouping.py`), the best nodes of each group are listed
instead, with the scores of all other plugins: the cycle adds the one that it follows.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from flotilla.nodes import Ints
from flotilla.plugin import Reads, Topology
from flotilla.results import Range
from shared.cluster.columns import Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import Changes, TableView
from shared.devices.pod_claims import may_claim
from shared.framework.answers import Answers
from shared.framework.feasibility import Feasibility
from shared.framework.pod_class import ClassRows, Keys, PodClass
from shared.framework.profile import Framework
from shared.framework.ranking import Ranking
from shared.framework.signatures import named
from shared.plugins.grouping import Group, GroupedScore

MAX_GROUPS = 128
"""Score groups of one class in an answer; a class with more cannot be followed."""
MAX_PAIRS = 1 << 14
"""Placements with classes beside them that are evaluated together: more would fit in no cache of a processor."""
SPARE_NODES = 3
"""Listed of each group beyond twice its share."""


class ListedGroups(NamedTuple):
    """The best rows of each group, the best first: group by group, as many as `listed` says.

    `counts`: the feasible rows of each group. `keys` leave out the plugin that is followed; `after`: the same once a
    pod of the class was placed there, negative if no other one fits then.
    """

    groups: list[Group]
    counts: list[int]
    listed: list[int]
    rows: Rows
    keys: Keys
    after: Keys


class Lasting:
    def __init__(
        self,
        table: NodeTable,
        framework: Framework,
        answers: Answers,
        class_rows: ClassRows,
        feasibility: Feasibility,
        ranking: Ranking,
    ) -> None:
        self._table = table
        self._framework = framework
        self._answers = answers
        self._class_rows = class_rows
        self._feasibility = feasibility
        self._ranking = ranking

    def judge(self, pod_class: PodClass, topologies: Mapping[str, Topology | None], late: Mapping[str, object]) -> bool:
        """Whether answers about an evaluated class stay right until anything is written but its own placements, and
        labels of placed pods.

        Not if a placement decides about volumes or devices, or may change the range over which the scores of all nodes
        are normalised, or what is summed up over feasible nodes; unless it is followed. Of a plugin that is not in-tree
        it is unknown. `topologies`: by plugin. `late`: the late summaries.
        """
        pod_class.lasts, pod_class.followed = False, None
        load = pod_class.kind.load
        if not self._framework.is_in_tree or load.claims or load.disks or may_claim(pod_class.state.pod):
            return False
        if pod_class.score_failure is not None:
            return False  # it depends on how many nodes are feasible
        moving = [
            s
            for s, plugin in enumerate(self._answers.scores)
            if plugin.normalizer is not None and plugin.score_reads is Reads.PODS
            if pod_class.weights[s] and s not in pod_class.answers.muted
        ]
        by = self._answers.scores[moving[0]] if moving else None
        name = "" if by is None else by.name
        others = any(topology is not None for plugin, topology in topologies.items() if plugin != name)
        if len(moving) > 1 or others or late.keys() - {name}:
            return False
        if by is not None:
            if not isinstance(by, GroupedScore) or not by.can_follow(pod_class.state):
                return False
            pod_class.followed = moving[0]
        pod_class.lasts = True
        return True

    def is_steady(self, pod_class: PodClass) -> bool:
        """Whether the class was evaluated on the node objects as they are, `lasts`, and has the same range of raw
        scores whichever nodes pods fill, but for the plugin that is followed.
        """
        ranges, generation = self.fixed_ranges(pod_class), self._table.objects.generation
        if any(generation(kind) != then for kind, then in pod_class.objects.items()):
            return False
        if pod_class.keys.node_seen != self._table.node_log.position or ranges is None or not pod_class.lasts:
            return False
        return all(low == high for low, high in ranges.values())

    def fixed_ranges(self, pod_class: PodClass) -> dict[str, Range] | None:
        """By which raw scores are normalised, but for those that are followed; None before the class is evaluated."""
        ranges, s = pod_class.keys.ranges, pod_class.followed
        if ranges is None or s is None:
            return ranges
        return {name: range_ for name, range_ in ranges.items() if name != self._answers.scores[s].name}

    def totals_beside(
        self, placements: Sequence[tuple[PodClass, Rows]], others: Sequence[PodClass]
    ) -> Iterator[tuple[PodClass, Ints]]:
        """For each class and its rows, others x rows: what total score each has for these steady classes after pods of
        that class were placed there one after the other, -1 if it is not feasible then, and 0 if the node's object
        rejects the other class.

        Without the scores that are followed.
        """
        each = max(1, max((len(rows) for _, rows in placements), default=1))
        together = max(1, MAX_PAIRS // (each * max(1, len(others))))
        for start in range(0, len(placements), together):
            yield from self._totals_beside(placements[start : start + together], others)

    def _totals_beside(
        self, placements: Sequence[tuple[PodClass, Rows]], others: Sequence[PodClass]
    ) -> Iterator[tuple[PodClass, Ints]]:
        sizes = [len(rows) for _, rows in placements]
        rows = np.concatenate([rows for _, rows in placements])
        counts = np.concatenate([_times_so_far(rows) for _, rows in placements])
        kinds = np.repeat(np.arange(len(placements), dtype=np.intp), sizes)
        each, index = np.arange(len(rows), dtype=np.intp), np.arange(len(rows) * len(others), dtype=np.intp)
        which, at = np.repeat(np.arange(len(others), dtype=np.intp), len(rows)), np.tile(each, len(others))
        placed = Changes(len(index), index, kinds[at], counts[at], [placing.kind for placing, _ in placements])
        keys = self._ranking.keys_of(others, which, TableView(self._table, rows[at], placed), rest=True)
        passes = np.array([self._class_rows.settled[other.slot, rows] for other in others]).ravel()
        totals: Ints = np.where(passes, np.where(keys < 0, -1, keys >> self._ranking.tie_bits), 0)
        of_each = np.split(totals.reshape(len(others), len(rows)), np.cumsum(sizes)[:-1], axis=1)
        return zip((placing for placing, _ in placements), of_each, strict=True)

    def groups(self, pod_class: PodClass, wanted: int) -> ListedGroups | None:
        """The groups of an evaluated class that is followed; None if there are too many.

        Enough of each for `wanted` placements if these are shared out within a factor of two.
        """
        s = cast(int, pod_class.followed)
        rows = np.flatnonzero(self._feasibility.rows(pod_class))
        plugin = self._answers.scores[s]
        with named(plugin, "group"):
            grouped = cast(GroupedScore, plugin).group(pod_class.state, TableView(self._table), rows)
        if grouped is None or not 0 < len(grouped.groups) <= MAX_GROUPS:
            return None
        bits = self._ranking.tie_bits
        keys = self._class_rows.keys[pod_class.slot, rows]
        keys = keys - (self._ranking.weighted_scores(pod_class, s, rows) << bits)
        counts = np.bincount(grouped.of_rows, minlength=len(grouped.groups))
        listed = np.minimum(counts, 2 * -(-wanted // len(counts)) + SPARE_NODES)
        order = np.lexsort((-keys, grouped.of_rows))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = order[rank < np.repeat(listed, counts)]
        rows, keys = rows[chosen], keys[chosen]
        alone, one = np.zeros(len(rows), dtype=np.intp), np.ones(len(rows), dtype=np.int64)
        after = self._ranking.keys_with_planned([pod_class], alone, rows, one, rest=True)
        return ListedGroups(grouped.groups, counts.tolist(), listed.tolist(), rows, keys, after)


def _times_so_far(rows: Rows) -> Ints:
    """How many times each row has come, the last time included."""
    earlier: Counter[int] = Counter()
    counts = np.empty(len(rows), dtype=np.int64)
    for i, row in enumerate(rows.tolist()):
        earlier[row] += 1
        counts[i] = earlier[row]
    return counts
