"""Which nodes of one table would have room for a pod if less important ones made way, and who these would be.

Tried as a what-if, many rows at once: first all pods of lower priority are gone; where the pod fits then, they are put
back one by one, the most important first, and stay if the pod still fits. The i-th of every row comes back at once.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from flotilla.results import Status, unresolvable
from shared.cluster.changes import Rows
from shared.cluster.nodetable import LoadKind, NodeTable, Placed
from shared.framework.keymatrix import Mask
from shared.framework.nominated import KeptRoom
from shared.framework.podclass import PodClass
from shared.framework.view import Changes, Hypothesis
from shared.framework.whatif import Both, WhatIf
from shared.messages.preemption import Candidate, Victim
from shared.plugins.preemption.budgets import Budgets
from shared.plugins.preemption.ports import FreedPorts, freed_ports

FEWEST_AT_ONCE = 64
"""So many rows are tried at once at least: fewer hardly cost less."""
NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")


Pods = list[tuple[str, Placed]]


@dataclass(slots=True)
class Tried:
    """`rejected`: on how many nodes it does not help, by status. `faults`: what went wrong on single nodes."""

    candidates: list[Candidate] = field(default_factory=list)
    rejected: dict[Status, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def reject(self, status: Status, nodes: int) -> None:
        self.rejected[status] = self.rejected.get(status, 0) + nodes

    def is_enough(self, wanted: int) -> bool:
        """One candidate at least violates no budget."""
        return len(self.candidates) >= wanted and any(not candidate.violations for candidate in self.candidates)


class DryRun:
    """For one class, which is refreshed, as the table is now."""

    def __init__(self, table: NodeTable, what_if: WhatIf, kept_room: KeptRoom, pod_class: PodClass) -> None:
        self._table = table
        self._what_if = what_if
        self._kept_room = kept_room
        self._class = pod_class
        self._budgets = Budgets(table.objects)

    def run(self, rows: Rows, wanted: int) -> Tried:
        """Tries these rows in this order until so many candidates are found."""
        tried, start = Tried(), 0
        while start < len(rows) and not tried.is_enough(wanted):
            end = start + max(FEWEST_AT_ONCE, wanted - len(tried.candidates))
            self._try(rows[start:end], tried)
            start = end
        return tried

    def _try(self, rows: Rows, tried: Tried) -> None:
        priority = self._class.state.pod.priority
        lesser = [
            [(uid, pod) for uid, pod in self._table.placed_at(row) if pod.kind.load.priority < priority]
            for row in rows.tolist()
        ]
        at = np.array([i for i, pods in enumerate(lesser) if pods], dtype=np.intp)
        if len(at) < len(rows):
            tried.reject(NO_VICTIMS, len(rows) - len(at))
        if not at.size:
            return
        rows, lesser = rows[at], [lesser[i] for i in at.tolist()]
        freed = freed_ports(self._table, rows, lesser)
        judged = self._kept_room.judge(self._class, rows, _together(_Standing(lesser).changes(), freed))
        for of_status, status in self._what_if.statuses(self._class, judged):
            tried.reject(status, len(of_status))
        fits = np.flatnonzero(judged.fits)
        if fits.size:
            freed = None if freed is None else freed.take(fits)
            self._reprieve(rows[fits], [lesser[i] for i in fits.tolist()], freed, tried)

    def _reprieve(self, rows: Rows, lesser: Sequence[Pods], freed: FreedPorts | None, tried: Tried) -> None:
        """Puts back whoever may stay."""
        by_importance = [_by_importance(pods) for pods in lesser]
        budgets = [self._budgets.left_after([pod for _, pod in pods]) for pods in by_importance]
        violating = [[any(left < 0 for left in of_pod.values()) for of_pod in of_row] for of_row in budgets]
        standing = _Standing(by_importance)
        for turn in standing.turns(np.array([each for of_row in violating for each in of_row], dtype=np.bool_)):
            places = standing.at[turn]
            standing.gone[turn] = False
            supposed = _together(standing.changes(places), None if freed is None else freed.take(places))
            judged = self._kept_room.judge(self._class, rows[places], supposed)
            standing.gone[turn] = ~judged.fits
        for row, pods, of_row, gone in zip(rows.tolist(), by_importance, budgets, standing.gone_by_row(), strict=True):
            node = self._table.names[row]
            victims = [
                _victim(uid, pod, left) for (uid, pod), left, is_gone in zip(pods, of_row, gone, strict=True) if is_gone
            ]
            if victims:
                tried.candidates.append(Candidate(node, victims))
            else:
                tried.faults.append(f'expected at least one victim pod on node "{node}"')


class _Standing:
    """The pods in question, one list a row, and which of them are gone by now: at first all."""

    def __init__(self, pods: Sequence[Pods]) -> None:
        sizes = [len(of_row) for of_row in pods]
        number: dict[LoadKind, int] = {}
        which = [number.setdefault(pod.kind, len(number)) for of_row in pods for _, pod in of_row]
        self._which = np.array(which, dtype=np.intp)
        self._kinds = list(number)
        self._ends = np.cumsum(sizes)
        self._rows = len(pods)
        self.at: Rows = np.repeat(np.arange(len(pods), dtype=np.intp), sizes)
        self.gone: Mask = np.ones(len(which), dtype=np.bool_)

    def changes(self, places: Rows | None = None) -> Changes | None:
        """What those that are gone change on the rows at these places (all when None); None if nothing."""
        gone = np.flatnonzero(self.gone)
        at, rows = self.at[gone], self._rows
        if places is not None:
            place = np.full(self._rows, -1, dtype=np.intp)
            place[places] = np.arange(len(places))
            among = place[at] >= 0
            gone, at, rows = gone[among], place[at[among]], len(places)
        if not gone.size:
            return None
        return Changes(rows, at, self._which[gone], np.full(len(gone), -1, dtype=np.int64), self._kinds)

    def turns(self, first: Mask) -> Iterator[Rows]:
        """The pods in the order in which they come back, one of each row at a time; in a row the `first` go first."""
        order = np.lexsort((np.arange(len(self.at)), ~first, self.at))
        starts = np.concatenate([[0], self._ends[:-1]])
        sizes = self._ends - starts
        for turn in range(int(sizes.max(initial=0))):
            yield order[starts[sizes > turn] + turn]

    def gone_by_row(self) -> list[list[bool]]:
        return [of_row.tolist() for of_row in np.split(self.gone, self._ends[:-1])]


def _together(changes: Changes | None, freed: FreedPorts | None) -> Hypothesis | None:
    return changes if freed is None or changes is None else Both(changes, freed)


def _by_importance(pods: Pods) -> Pods:
    """The most important first: by priority, then whoever runs for longest; of equals, by uid."""
    return sorted(pods, key=_rank)


def _rank(pod: tuple[str, Placed]) -> tuple[int, float, str]:
    uid, placed = pod
    return -placed.kind.load.priority, math.inf if placed.started is None else placed.started, uid


def _victim(uid: str, pod: Placed, left: dict[str, int]) -> Victim:
    load, violates = pod.kind.load, any(allowed < 0 for allowed in left.values())
    return Victim(uid, pod.key or uid, load.priority, pod.started, violates, load.terminating, left)
