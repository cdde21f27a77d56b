"""WhatIf: what a class's filters would say of some rows if other pods were there, or some were gone.

Nothing is kept of the answers, and the table is not touched. What is known of the rows as they are is not asked again,
and neither is what only a changed node object can change.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flotilla.results import Code, Status
from shared.cluster.changes import Rows
from shared.cluster.nodetable import LoadKind, NodeTable
from shared.framework.allowednodes import AllowedNodes
from shared.framework.answers import Answers
from shared.framework.cyclestate import CycleState
from shared.framework.keymatrix import Mask
from shared.framework.plugin import Reads, Verdicts
from shared.framework.podclass import PodClass
from shared.framework.results import UNKNOWN
from shared.framework.view import Hypothesis, NodeView
from shared.model.load import PodLoad

ADMITTED = -1
"""Stands for the filter that rejects a row, where none does."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Of each row in turn: the first filter, in the profile's order, that rejects it, and its verdict."""

    by: NDArray[np.intp]
    verdicts: Verdicts

    @property
    def fits(self) -> Mask:
        fits: Mask = self.by == ADMITTED
        return fits

    def overrule(self, at: Rows, other: "Judged") -> None:
        """For the rows at these places the other's answers hold."""
        self.by[at] = other.by
        self.verdicts[at] = other.verdicts


@dataclass(frozen=True, slots=True)
class Both:
    """Two hypotheses about the same nodes at once."""

    one: Hypothesis
    other: Hypothesis

    @property
    def kinds(self) -> Sequence[LoadKind]:
        return [*self.one.kinds, *self.other.kinds]

    def spread(self, per_kind: NDArray[np.int64]) -> NDArray[np.int64]:
        first = len(self.one.kinds)
        return self.one.spread(per_kind[..., :first]) + self.other.spread(per_kind[..., first:])

    def loads(self, i: int, there: list[PodLoad]) -> list[PodLoad]:
        return self.other.loads(i, self.one.loads(i, there))

    def take(self, at: Rows) -> "Both":
        return Both(self.one.take(at), self.other.take(at))


class WhatIf:
    """To be asked about classes that are refreshed, on the summaries by which they are to be judged."""

    def __init__(self, table: NodeTable, answers: Answers) -> None:
        self.table = table
        self._answers = answers

    def judge(self, pod_class: PodClass, rows: Rows, supposed: Hypothesis | None) -> Judged:
        """`supposed` is about these rows in this order; a row may come several times."""
        judged = Judged(np.full(len(rows), ADMITTED, dtype=np.intp), np.zeros(len(rows), dtype=np.int64))
        left, view = np.arange(len(rows), dtype=np.intp), NodeView(self.table, rows, supposed)
        for f in range(len(self._answers.filters)):
            if not left.size:
                break
            if self._runs(pod_class, f):
                verdicts = self._verdicts(pod_class, f, view)
                if verdicts.any():
                    rejected = left[verdicts != 0]
                    judged.by[rejected], judged.verdicts[rejected] = f, verdicts[verdicts != 0]
                    fit = np.flatnonzero(verdicts == 0)
                    left, view = left[fit], view.take(fit)
        return judged

    def statuses(self, pod_class: PodClass, judged: Judged) -> Iterator[tuple[Rows, Status]]:
        """Why rows were rejected: each status, and the places of the rows that it belongs to."""
        for f in np.unique(judged.by[~judged.fits]).tolist():
            plugin, state = self._answers.filters[f], self._state(pod_class, f)
            at = np.flatnonzero(judged.by == f)
            for verdict in np.unique(judged.verdicts[at]).tolist():
                yield at[judged.verdicts[at] == verdict], plugin.explain(state, verdict).by(plugin.name)

    def _runs(self, pod_class: PodClass, f: int) -> bool:
        """A class that PreFilter rejected, though not for good, has no slots; what would have run counts then."""
        if pod_class.filter_slots[f]:
            return True
        rejection, plugin = pod_class.pre.rejection, self._answers.filters[f]
        if rejection is None or rejection.code is not Code.UNSCHEDULABLE or isinstance(plugin, AllowedNodes):
            return False
        return plugin.name not in pod_class.state.skip_filter

    def _verdicts(self, pod_class: PodClass, f: int, view: NodeView) -> Verdicts:
        slot, plugin = int(pod_class.filter_slots[f]), self._answers.filters[f]
        state = self._state(pod_class, f)
        if not slot or (view.supposed is not None and plugin.filter_reads is not Reads.NODE):
            return plugin.filter(state, view)
        values = self._answers.filter_pools[f].values
        kept: Verdicts = values[slot, view.rows]
        unasked = np.flatnonzero(kept == UNKNOWN)
        if unasked.size:
            kept[unasked] = plugin.filter(state, NodeView(self.table, view.rows[unasked]))
            values[slot, view.rows[unasked]] = kept[unasked]
        return kept

    def _state(self, pod_class: PodClass, f: int) -> CycleState:
        """The one by which the kept answers were made, where there are any: verdicts are explained by it."""
        slot = int(pod_class.filter_slots[f])
        return self._answers.filter_pools[f].state(slot) if slot else pod_class.state
