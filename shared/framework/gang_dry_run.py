"""GangDryRun: the victims on each node with which one, two, three ... pods of a class fit there.

For each number of pods it is the dry run for one pod, with the others in place: all pods that may be victims are
removed, and put back one by one, those that disruption budgets protect first, then the most important, where as many
pods still fit. All rows are judged at once.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from flotilla.plugin import Mask
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

    def run(self, rows: Rows, members: int) -> Iterator[Candidate]:
        """For each of these rows its rungs: for one pod, for two, up to `members` or as many as fit."""
        lesser = [self._victims(row) for row in rows.tolist()]
        freed = freed_ports(self._table, rows, lesser)
        at = np.arange(len(rows), dtype=np.intp)
        for count in range(1, members + 1):
            if not at.size:
                return
            fits = self._fits(rows, at, self._copies(len(at), count))
            for i in at[fits].tolist():
                yield Candidate(self._table.names[rows[i]], [], count)
            left = at[~fits]
            emptied = Removed([lesser[i] for i in left.tolist()])
            hypothesis = _with(emptied.changes(), self._copies(len(left), count), freed, left)
            helps = self._judge.judge(self._class, rows[left], hypothesis).fits if left.size else fits[:0]
            helped = left[helps]
            yield from self._rungs(rows, helped, [lesser[i] for i in helped.tolist()], count, freed)
            at = np.union1d(at[fits], helped)

    def possible(self, row: int) -> list[Victim]:
        """All pods on this row that may be victims, with the node; the most important first."""
        pods = self._victims(row)
        budgets = self._budgets.left_after([pod for _, pod in pods])
        of_row = (self._victim(uid, pod, left) for (uid, pod), left in zip(pods, budgets, strict=True))
        return [replace(victim, node=self._table.names[row]) for victim in of_row]

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
        return replace(victim_of(uid, pod, left), priority=unit.priority, group=unit.group)

    def _fits(self, rows: Rows, at: Rows, copies: Hypothesis | None) -> Mask:
        return self._judge.judge(self._class, rows[at], copies).fits

    def _copies(self, nodes: int, count: int) -> Changes | None:
        """The other pods that have come to each node, if this is the `count`-th there."""
        if count == 1 or not nodes:
            return None
        at = np.arange(nodes, dtype=np.intp)
        return Changes(nodes, at, np.zeros_like(at), np.full(nodes, count - 1, dtype=np.int64), [self._class.kind])

    def _rungs(
        self, rows: Rows, at: Rows, pods: Sequence[Pods], count: int, freed: FreedPorts | None
    ) -> Iterator[Candidate]:
        """Put back every pod that may stay."""
        if not at.size:
            return
        budgets = [self._budgets.left_after([pod for _, pod in of_row]) for of_row in pods]
        violating = [any(left < 0 for left in of_pod.values()) for of_row in budgets for of_pod in of_row]
        removed = Removed(pods)
        for turn in removed.turns(np.array(violating, dtype=np.bool_)):
            among = removed.at[turn]
            removed.gone[turn] = False
            hypothesis = _with(removed.changes(among), self._copies(len(among), count), freed, at[among])
            removed.gone[turn] = ~self._judge.judge(self._class, rows[at[among]], hypothesis).fits
        for i, of_row, left_of, gone in zip(
            at.tolist(), pods, budgets, np.split(removed.gone, removed.ends[:-1]), strict=True
        ):
            each = zip(of_row, left_of, gone, strict=True)
            victims = [self._victim(uid, pod, left) for (uid, pod), left, is_gone in each if is_gone]
            yield Candidate(self._table.names[rows[i]], victims, count)


def _importance(unit: Unit, uid: str, pod: Placed) -> tuple[int, bool, float, str]:
    """The most important first: by priority, groups before pods, then the one that runs longest, then by uid."""
    return -unit.priority, not unit.group, math.inf if pod.started is None else pod.started, uid


def _with(removed: Changes | None, copies: Changes | None, freed: FreedPorts | None, at: Rows) -> Hypothesis | None:
    return together(together(removed, copies), None if freed is None else freed.take(at))
