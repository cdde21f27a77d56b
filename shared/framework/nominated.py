"""KeptRoom: the room that is kept for nominated pods, as other pods meet it.

A node is judged twice for a pod if others of at least its priority are nominated there: as if they were there already,
and without them. It has to fit both times, and the first time that it does not says why. Nominations are few, and so
are the rows that need the second look.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from flotilla.results import Status
from shared.cluster.changes import Rows
from shared.cluster.nodetable import LoadKind, NodeTable
from shared.framework.keymatrix import Mask
from shared.framework.podclass import PodClass
from shared.framework.results import NOTHING_SEEN
from shared.framework.view import Changes, Hypothesis, Own
from shared.framework.whatif import Both, Judged, WhatIf


class KeptRoom:
    def __init__(self, table: NodeTable, what_if: WhatIf) -> None:
        self._table = table
        self._what_if = what_if
        self._known_at = NOTHING_SEEN
        self._rows: Rows = np.empty(0, dtype=np.intp)
        self._highest: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._kept = _Kept([])

    def rows(self, pod_class: PodClass) -> Rows:
        """Where pods of at least its priority are nominated; ascending."""
        self._look()
        rows: Rows = self._rows[self._highest >= pod_class.state.pod.priority]
        return rows

    def judge_kept(self, pod_class: PodClass, rows: Rows, supposed: Hypothesis | None = None) -> Judged:
        """As if those were there, on top of what is supposed."""
        self._look()
        there = self._kept.others(pod_class, rows)
        if there is None:
            return self._what_if.judge(pod_class, rows, supposed)
        return self._what_if.judge(pod_class, rows, there if supposed is None else Both(supposed, there))

    def judge(self, pod_class: PodClass, rows: Rows, supposed: Hypothesis | None) -> Judged:
        """Both times, on top of what is supposed."""
        judged = self._what_if.judge(pod_class, rows, supposed)
        if self._table.nominations:
            kept = np.flatnonzero(np.isin(rows, self.rows(pod_class)))
            if kept.size:
                beneath = None if supposed is None else supposed.take(kept)
                first = self.judge_kept(pod_class, rows[kept], beneath)
                failed = np.flatnonzero(~first.fits)
                judged.overrule(kept[failed], Judged(first.by[failed], first.verdicts[failed]))
        return judged

    def rejected(self, pod_class: PodClass) -> Iterator[tuple[Rows, Status]]:
        """The rows where it does not fit as if those were there; grouped by the status that says why."""
        rows = self.rows(pod_class)
        if rows.size:
            for at, status in self._what_if.statuses(pod_class, self.judge_kept(pod_class, rows)):
                yield rows[at], status

    def refuse(self, pod_class: PodClass, rows: Rows | None, feasible: Mask) -> None:
        """Takes out of these rows (all when None), where the pod fits as things are, those where room is kept."""
        kept = self.rows(pod_class)
        at = kept if rows is None else np.flatnonzero(np.isin(rows, kept))
        at = at[feasible[at]]
        if at.size:
            feasible[at] = self.judge_kept(pod_class, at if rows is None else rows[at]).fits

    def refuse_more(
        self, classes: Sequence[PodClass], which: Rows, rows: Rows, own: NDArray[np.int64], feasible: Mask
    ) -> None:
        """The same if on the i-th row there were `own[i]` more pods of class `which[i]`."""
        for c in np.unique(which).tolist():
            pod_class = classes[c]
            at = np.flatnonzero((which == c) & feasible & np.isin(rows, self.rows(pod_class)))
            if at.size:
                count = own[at]
                more = Own(count, [pod_class.kind], np.zeros(len(at), dtype=np.intp))
                feasible[at] = self.judge_kept(pod_class, rows[at], more).fits

    # Inside

    def _look(self) -> None:
        """Which rows pods are nominated to, and the highest priority among these; as of now."""
        table = self._table
        if self._known_at != table.load_log.position:
            self._known_at = table.load_log.position
            rows = ((table.row_of(node), node) for node in table.nominations)
            found = sorted((row, node) for row, node in rows if row is not None)
            self._kept = _Kept(
                [(row, uid, each.kind) for row, node in found for uid, each in table.nominations.of(node).items()]
            )
            self._rows = np.array([row for row, _ in found], dtype=np.intp)
            self._highest = self._kept.highest(self._rows)


class _Kept:
    """Nominated pods in the order of their rows, to be found by class and row without looking at each."""

    def __init__(self, nominated: Sequence[tuple[int, str, LoadKind]]) -> None:
        numbers: dict[LoadKind, int] = {}
        self._rows: Rows = np.array([row for row, _, _ in nominated], dtype=np.intp)
        self._which = np.array([numbers.setdefault(kind, len(numbers)) for _, _, kind in nominated], dtype=np.intp)
        self._priority = np.array([kind.load.priority for _, _, kind in nominated], dtype=np.int64)
        self._at = {uid: at for at, (_, uid, _) in enumerate(nominated)}
        self._kinds = list(numbers)

    def highest(self, rows: Rows) -> NDArray[np.int64]:
        """The highest priority of each of the rows, which are all there are."""
        begins = np.searchsorted(self._rows, rows)
        priorities: NDArray[np.int64] = np.maximum.reduceat(self._priority, begins) if rows.size else self._priority
        return priorities

    def others(self, pod_class: PodClass, rows: Rows) -> Changes | None:
        """As changes of these rows: those there of at least the priority of the class, but for the pod itself.

        A nominated pod has its class to itself; of any other class, who stands for it is not who is judged.
        """
        pod = pod_class.state.pod
        begins = np.searchsorted(self._rows, rows, side="left")
        counts = np.searchsorted(self._rows, rows, side="right") - begins
        at = np.repeat(np.arange(len(rows), dtype=np.intp), counts)
        entries = np.arange(len(at), dtype=np.intp) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
        counted = self._priority[entries] >= pod.priority
        itself = self._at.get(pod.uid) if pod.status.nominated_node_name else None
        if itself is not None:
            counted &= entries != itself
        if not counted.any():
            return None
        used, which = np.unique(self._which[entries[counted]], return_inverse=True)
        return Changes(
            nodes=len(rows),
            at=at[counted],
            which=which.astype(np.intp),
            count=np.ones(len(which), dtype=np.int64),
            kinds=[self._kinds[number] for number in used.tolist()],
        )


def own_node(table: NodeTable, pod_class: PodClass, feasible: Mask) -> Mask | None:
    """Only the row that the pod itself is nominated to, if it is feasible: then it is taken at once."""
    name = pod_class.state.pod.status.nominated_node_name
    row = table.row_of(name) if name else None
    if row is None or not feasible[row]:
        return None
    alone = np.zeros_like(feasible)
    alone[row] = True
    return alone
