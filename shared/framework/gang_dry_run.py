"""GangDryRun: the victims on each node with which one, two, three ... pods of a class fit there.

For each number of pods it is the dry run for one pod, with the others in place: all pods that may be victims are
removed, and put back one by one, those that disruption budgets protect first, then the most important, where as many
pods still fit. All rows are judged at once.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from shared.cluster.columns import Rows
from shared.cluster.eviction_units import Unit, unit_of
from shared.cluster.load_kind import LoadKind
from shared.cluster.nodetable import NodeTable, Placed
from shared.cluster.view import Changes, Hypothesis, together
from shared.framework.dry_run import Budgets, FreedPorts, Pods, Removed, freed_ports, victim_of
from shared.framework.judge import Judge
from shared.framework.pod_class import PodClass
from shared.messages.preemption import Candidate, Victim
from shared.model.load import PodLoad


class GangDryRun:
    """For one class, which is refreshed, as the table is now."""

    def __init__(
        self, table: NodeTable, judge: Judge, pod_class: PodClass, may_go: Callable[[PodLoad, Unit], bool]
    ) -> None:
        """`may_go`: which pods may be victims."""
        self._table = table
        self._judge = judge
        self._class = pod_class
        self._may_go = may_go
        self._units: dict[LoadKind, Unit] = {}
        self._budgets = Budgets(table.objects)
        self._found: dict[int, _OfRow] = {}
        self.judged = 0
        """Rows and their possible victims, for each rung: what its rungs have cost so far, about."""

    def rung(self, rows: Rows, count: int) -> list[Candidate]:
        """For each of these rows, in their order, who must go so that `count` pods fit; without rows where they cannot.

        Of those rows alone more pods may fit.
        """
        of_rows = [self._of_row(row) for row in rows.tolist()]
        lesser = [each.pods for each in of_rows]
        self.judged += len(rows) + sum(len(pods) for pods in lesser)
        freed = freed_ports(self._table, rows, lesser)
        fits = self._judge.judge(self._class, rows, self._copies(len(rows), count)).fits
        found = {i: Candidate(self._table.names[rows[i]], [], count) for i in np.flatnonzero(fits).tolist()}
        left = np.flatnonzero(~fits)
        if left.size:
            emptied = Removed([lesser[i] for i in left.tolist()])
            hypothesis = _with(emptied.changes(), self._copies(len(left), count), freed, left)
            helped = left[self._judge.judge(self._class, rows[left], hypothesis).fits]
            if helped.size:
                found |= self._put_back(rows, helped, [of_rows[i] for i in helped.tolist()], count, freed)
        return [found[i] for i in sorted(found)]

    def possible(self, row: int) -> list[Victim]:
        """All pods on this row that may be victims, with the node; the most important first."""
        return [replace(victim, node=self._table.names[row]) for victim in self._of_row(row).victims]

    def _of_row(self, row: int) -> "_OfRow":
        """Found once, as it is the same for every number of pods."""
        known = self._found.get(row)
        if known is None:
            pods = self._victims(row)
            budgets = self._budgets.left_after([pod for _, pod in pods])
            victims = [self._victim(uid, pod, left) for (uid, pod), left in zip(pods, budgets, strict=True)]
            known = self._found[row] = _OfRow(pods, victims)
        return known

    def _victims(self, row: int) -> Pods:
        """The pods on this row that may be victims, the most important first."""
        found = [(uid, pod) for uid, pod in self._table.placed_at(row) if self._may_go(pod.kind.load, self._unit(pod))]
        found.sort(key=lambda each: _importance(self._unit(each[1]), *each))
        return found

    def _unit(self, pod: Placed) -> Unit:
        unit = self._units.get(pod.kind)
        if unit is None:
            unit = self._units[pod.kind] = unit_of(pod.kind.load, self._table.objects.pod_groups)
        return unit

    def _victim(self, uid: str, pod: Placed, left: dict[str, int]) -> Victim:
        unit = self._unit(pod)
        return replace(victim_of(uid, pod, unit.priority, left), group=unit.group)

    def _copies(self, nodes: int, count: int) -> Changes | None:
        """The other pods that have come to each node, if this is the `count`-th there."""
        if count == 1 or not nodes:
            return None
        at = np.arange(nodes, dtype=np.intp)
        return Changes(nodes, at, np.zeros_like(at), np.full(nodes, count - 1, dtype=np.int64), [self._class.kind])

    def _put_back(
        self, rows: Rows, at: Rows, of_rows: "Sequence[_OfRow]", count: int, freed: FreedPorts | None
    ) -> dict[int, Candidate]:
        """By index, with every pod that may stay put back. `at`: the indices of rows that fit without these pods."""
        removed = Removed([each.pods for each in of_rows])
        violating = [victim.violates for each in of_rows for victim in each.victims]
        for turn in removed.turns(np.array(violating, dtype=np.bool_)):
            among = removed.at[turn]
            removed.gone[turn] = False
            hypothesis = _with(removed.changes(among), self._copies(len(among), count), freed, at[among])
            removed.gone[turn] = ~self._judge.judge(self._class, rows[at[among]], hypothesis).fits
        found: dict[int, Candidate] = {}
        for i, each, gone in zip(at.tolist(), of_rows, np.split(removed.gone, removed.ends[:-1]), strict=True):
            victims = [each.victims[k] for k in np.flatnonzero(gone).tolist()]
            found[i] = Candidate(self._table.names[rows[i]], victims, count)
        return found


class _OfRow(NamedTuple):
    """The pods on a row that may be victims, the most important first."""

    pods: Pods
    victims: list[Victim]


def _importance(unit: Unit, uid: str, pod: Placed) -> tuple[int, bool, float, str]:
    """The most important first: by priority, groups before pods, then the one that runs longest, then by uid."""
    return -unit.priority, not unit.group, math.inf if pod.started is None else pod.started, uid


def _with(removed: Changes | None, copies: Changes | None, freed: FreedPorts | None, at: Rows) -> Hypothesis | None:
    return together(together(removed, copies), None if freed is None else freed.take(at))
