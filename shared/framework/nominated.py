"""KeptRoom: the room that is kept for nominated pods, as other pods meet it.

A node is judged twice for a pod if others of at least its priority are nominated there: as if they were there already,
and without them. It has to fit both times, and the first time that it does not says why. Nominations are few, and so
are the rows that need the second look.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import Rows
from shared.cluster.nodetable import LoadKind, NodeTable
from shared.framework.keymatrix import Mask
from shared.framework.podclass import PodClass
from shared.framework.results import NOTHING_SEEN
from shared.framework.status import Status
from shared.framework.view import Changes, Hypothesis, Own
from shared.framework.whatif import Both, Judged, WhatIf


class KeptRoom:
    def __init__(self, table: NodeTable, what_if: WhatIf) -> None:
        self._table = table
        self._what_if = what_if
        self._known_at = NOTHING_SEEN
        self._rows: Rows = np.empty(0, dtype=np.intp)
        self._highest: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def rows(self, pod_class: PodClass) -> Rows:
        """Where pods of at least its priority are nominated; ascending."""
        self._look()
        rows: Rows = self._rows[self._highest >= pod_class.state.pod.priority]
        return rows

    def judge_kept(self, pod_class: PodClass, rows: Rows, supposed: Hypothesis | None = None) -> Judged:
        """As if those were there, on top of what is supposed."""
        kinds: list[LoadKind] = []
        at: list[int] = []
        for i, row in enumerate(rows.tolist()):
            others = self._others(pod_class, self._table.names[row])
            kinds += others
            at += [i] * len(others)
        if not kinds:
            return self._what_if.judge(pod_class, rows, supposed)
        shared = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        there = Changes(
            nodes=len(rows),
            at=np.array(at, dtype=np.intp),
            which=np.array([shared[kind] for kind in kinds], dtype=np.intp),
            count=np.ones(len(kinds), dtype=np.int64),
            kinds=list(shared),
        )
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
            highest = {
                row: max(nominated.kind.load.priority for nominated in table.nominations.of(node).values())
                for node in table.nominations
                if (row := table.row_of(node)) is not None
            }
            self._rows = np.array(sorted(highest), dtype=np.intp)
            self._highest = np.array([highest[row] for row in self._rows.tolist()], dtype=np.int64)

    def _others(self, pod_class: PodClass, node: str) -> list[LoadKind]:
        """A nominated pod has its class to itself; of any other class, who stands for it is not who is judged."""
        pod = pod_class.state.pod
        own = pod.uid if pod.status.nominated_node_name else ""
        return [
            nominated.kind
            for uid, nominated in self._table.nominations.of(node).items()
            if nominated.kind.load.priority >= pod.priority and uid != own
        ]


def own_node(table: NodeTable, pod_class: PodClass, feasible: Mask) -> Mask | None:
    """Only the row that the pod itself is nominated to, if it is feasible: then it is taken at once."""
    name = pod_class.state.pod.status.nominated_node_name
    row = table.row_of(name) if name else None
    if row is None or not feasible[row]:
        return None
    alone = np.zeros_like(feasible)
    alone[row] = True
    return alone
