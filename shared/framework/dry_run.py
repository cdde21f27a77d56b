"""DryRun: which nodes would have room for a pod if pods of lower priority were evicted, and which of them.

Many rows are judged at once: first without any pod of lower priority; where the pod fits then, they are put back one by
one, the most important first, and stay if the pod still fits. The i-th pod of every row is put back at the same time.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from flotilla.plugin import Code, Mask, Status, unresolvable
from shared.cluster.columns import Rows
from shared.cluster.disruption_budgets import budgets_about, counts_already
from shared.cluster.eviction_units import family, family_of, priority_of
from shared.cluster.load_kind import PODS, LoadKind
from shared.cluster.nodetable import NodeTable, Placed
from shared.cluster.objects import ClusterObjects
from shared.cluster.view import Changes, together
from shared.framework.judge import Judge
from shared.framework.pod_class import PodClass
from shared.messages.preemption import Candidate, Victim
from shared.model.load import PodLoad
from shared.model.objects import PodDisruptionBudget
from shared.model.resources import HostPort

FEWEST_AT_ONCE = 64
"""Rows tried at once, at least: fewer hardly cost less."""
NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")


Pods = list[tuple[str, Placed]]


@dataclass(slots=True)
class Tried:
    """`rejected`: on how many nodes it does not help, by status. `faults`: what went wrong on single nodes. `spared`:
    the groups of which a pod of lower priority was spared.
    """

    candidates: list[Candidate] = field(default_factory=list)
    rejected: dict[Status, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    spared: list[str] = field(default_factory=list)

    def reject(self, status: Status, nodes: int) -> None:
        self.rejected[status] = self.rejected.get(status, 0) + nodes

    def is_enough(self, wanted: int) -> bool:
        """One candidate at least violates no budget."""
        return len(self.candidates) >= wanted and any(not candidate.violations for candidate in self.candidates)


class DryRun:
    """For one class, which is refreshed, as the table is now."""

    def __init__(self, table: NodeTable, judge: Judge, pod_class: PodClass, spares: Iterable[str] = ()) -> None:
        """`spares`: groups, as `group_of` names them. A pod might leave too few of its own."""
        self._table = table
        self._judge = judge
        self._class = pod_class
        self._budgets = Budgets(table.objects)
        self._of_groups: dict[LoadKind, int] = {}
        """The priorities of pods with a group."""
        self._families: dict[str, list[str]] = {}
        """Of the spared groups."""
        for group in spares:
            self._families.setdefault(family(group, table.objects.pod_groups), []).append(group)
        self._spared: set[str] = set()

    def run(self, rows: Rows, wanted: int) -> Tried:
        """Try these rows in this order until `wanted` candidates are found."""
        tried, start = Tried(), 0
        while start < len(rows) and not tried.is_enough(wanted):
            end = start + max(FEWEST_AT_ONCE, wanted - len(tried.candidates))
            self._try(rows[start:end], tried)
            start = end
        tried.spared = sorted(group for each in self._spared for group in self._families[each])
        return tried

    def _try(self, rows: Rows, tried: Tried) -> None:
        priority = self._class.state.pod.priority
        lesser = [
            [(uid, pod) for uid, pod in self._table.placed_at(row) if self._may_go(pod.kind, priority)]
            for row in rows.tolist()
        ]
        at = np.array([i for i, pods in enumerate(lesser) if pods], dtype=np.intp)
        if len(at) < len(rows):
            tried.reject(NO_VICTIMS, len(rows) - len(at))
        if not at.size:
            return
        rows, lesser = rows[at], [lesser[i] for i in at.tolist()]
        freed = freed_ports(self._table, rows, lesser)
        judged = self._judge.judge(self._class, rows, together(Removed(lesser).changes(), freed))
        for of_status, status in self._judge.statuses(self._class, judged):
            if status.code is Code.ERROR:
                tried.faults.append(status.message)
            else:
                tried.reject(status, len(of_status))
        fits = np.flatnonzero(judged.fits)
        if fits.size:
            freed = None if freed is None else freed.take(fits)
            self._reprieve(rows[fits], [lesser[i] for i in fits.tolist()], freed, tried)

    def _may_go(self, kind: LoadKind, priority: int) -> bool:
        """Whether a pod may be a victim of one of this priority."""
        if self._priority(kind) >= priority:
            return False
        own = family_of(kind.load, self._table.objects.pod_groups) if self._families else ""
        if own not in self._families:
            return True
        self._spared.add(own)
        return False

    def _priority(self, kind: LoadKind) -> int:
        if not kind.load.group:
            return kind.load.priority
        found = self._of_groups.get(kind)
        if found is None:
            found = self._of_groups[kind] = priority_of(kind.load, self._table.objects.pod_groups)
        return found

    def _importance(self, pod: tuple[str, Placed]) -> tuple[int, float, str]:
        """The most important first: by priority, then the one that runs longest, then by uid."""
        uid, placed = pod
        return -self._priority(placed.kind), math.inf if placed.started is None else placed.started, uid

    def _reprieve(self, rows: Rows, lesser: Sequence[Pods], freed: "FreedPorts | None", tried: Tried) -> None:
        """Put back every pod that may stay."""
        by_importance = [sorted(pods, key=self._importance) for pods in lesser]
        budgets = [self._budgets.left_after([pod for _, pod in pods]) for pods in by_importance]
        violating = [[any(left < 0 for left in of_pod.values()) for of_pod in of_row] for of_row in budgets]
        removed = Removed(by_importance)
        for turn in removed.turns(np.array([each for of_row in violating for each in of_row], dtype=np.bool_)):
            at = removed.at[turn]
            removed.gone[turn] = False
            changes = removed.changes(at)
            hypothesis = None if changes is None else together(changes, None if freed is None else freed.take(at))
            judged = self._judge.judge(self._class, rows[at], hypothesis)
            removed.gone[turn] = ~judged.fits
        gone_by_row = np.split(removed.gone, removed.ends[:-1])
        for row, pods, of_row, gone in zip(rows.tolist(), by_importance, budgets, gone_by_row, strict=True):
            node = self._table.names[row]
            victims = [
                victim_of(uid, pod, self._priority(pod.kind), left)
                for (uid, pod), left, is_gone in zip(pods, of_row, gone, strict=True)
                if is_gone
            ]
            if victims:
                tried.candidates.append(Candidate(node, victims))
            else:
                tried.faults.append(f'expected at least one victim pod on node "{node}"')


class Removed:
    """Pods of lower priority, one list a row, and which of them are removed: at first all."""

    def __init__(self, pods: Sequence[Pods]) -> None:
        sizes = [len(of_row) for of_row in pods]
        number: dict[LoadKind, int] = {}
        which = [number.setdefault(pod.kind, len(number)) for of_row in pods for _, pod in of_row]
        self._which = np.array(which, dtype=np.intp)
        self._kinds = list(number)
        self.ends = np.cumsum(sizes)
        self._rows = len(pods)
        self.at: Rows = np.repeat(np.arange(len(pods), dtype=np.intp), sizes)
        self.gone: Mask = np.ones(len(which), dtype=np.bool_)

    def changes(self, only: Rows | None = None) -> Changes | None:
        """What the removed pods change on the rows at these indices (all when None); None if nothing."""
        gone = np.flatnonzero(self.gone)
        at, rows = self.at[gone], self._rows
        if only is not None:
            renumbered = np.full(self._rows, -1, dtype=np.intp)
            renumbered[only] = np.arange(len(only))
            among = renumbered[at] >= 0
            gone, at, rows = gone[among], renumbered[at[among]], len(only)
        if not gone.size:
            return None
        return Changes(rows, at, self._which[gone], np.full(len(gone), -1, dtype=np.int64), self._kinds)

    def turns(self, first: Mask) -> Iterator[Rows]:
        """The order in which pods are put back, one of each row at a time; in a row the `first` go first."""
        order = np.lexsort((np.arange(len(self.at)), ~first, self.at))
        starts = np.concatenate([[0], self.ends[:-1]])
        sizes = self.ends - starts
        for turn in range(int(sizes.max(initial=0))):
            yield order[starts[sizes > turn] + turn]


def victim_of(uid: str, pod: Placed, priority: int, left: dict[str, int]) -> Victim:
    violates = any(allowed < 0 for allowed in left.values())
    return Victim(uid, pod.key or uid, priority, pod.started, violates, pod.kind.load.terminating, left)


class Budgets:
    """For one search: the budgets of each kind of pod are looked for once."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects
        self._any = bool(objects.disruption_budgets)
        self._of_kind: dict[LoadKind, list[PodDisruptionBudget]] = {}

    def left_after(self, pods: Iterable[Placed]) -> list[dict[str, int]]:
        """For the pods of one node in this order: what is left of each budget about a pod, by the budget's key.

        Every pod takes from all budgets that are about it, whether there is anything left or not. One whose disruption
        was counted in already takes nothing.
        """
        if not self._any:
            return [{} for _ in pods]
        left: dict[str, int] = {}
        return [self._take(pod, left) for pod in pods]

    def _take(self, pod: Placed, left: dict[str, int]) -> dict[str, int]:
        taken_from: dict[str, int] = {}
        for budget in self._about(pod.kind):
            if not counts_already(budget, pod.key.partition("/")[2]):
                left[budget.key] = left.get(budget.key, budget.status.disruptions_allowed) - 1
                taken_from[budget.key] = left[budget.key]
        return taken_from

    def _about(self, kind: LoadKind) -> list[PodDisruptionBudget]:
        found = self._of_kind.get(kind)
        if found is None:
            found = self._of_kind[kind] = budgets_about(self._objects, kind.load)
        return found


# Host ports that several pods of one node have. kube-scheduler knows which ports of a node are taken, not how often: it
# treats such a port as free as soon as one of these pods is gone.


class FreedPorts(Changes):
    """Removes ports from rows, but no pod."""

    def loads(self, i: int, there: list[PodLoad]) -> list[PodLoad]:
        return there

    def take(self, at: Rows) -> "FreedPorts":
        some = Changes.take(self, at)
        return FreedPorts(some.nodes, some.at, some.which, some.count, some.kinds)


def freed_ports(table: NodeTable, rows: Rows, gone: Sequence[Sequence[tuple[str, Placed]]]) -> FreedPorts | None:
    """The ports that pods which stay have in common with pods of the same row that are gone; None if there are none."""
    kinds: dict[HostPort, LoadKind] = {}
    at: list[int] = []
    ports: list[HostPort] = []
    for i, (row, pods) in enumerate(zip(rows.tolist(), gone, strict=True)):
        freed = {port for _, pod in pods for port in pod.kind.load.ports}
        if freed:
            leave = {uid for uid, _ in pods}
            staying = [pod for uid, pod in table.placed_at(row) if uid not in leave]
            shared = [(port, pod.kind) for pod in staying for port in pod.kind.load.ports if port in freed]
            at += [i] * len(shared)
            ports += [port for port, _ in shared]
            for port, of_kind in shared:
                if port not in kinds:  # a load that is nothing but a port: it does not even count as a pod
                    kind = kinds[port] = LoadKind(PodLoad(namespace="", ports=(port,)), of_kind.label_class)
                    kind.resources, kind.amounts = np.array([PODS], dtype=np.intp), np.zeros(1, dtype=np.int64)
    if not ports:
        return None
    number = {port: k for k, port in enumerate(kinds)}
    which = np.array([number[port] for port in ports], dtype=np.intp)
    count = np.full(len(ports), -1, dtype=np.int64)
    return FreedPorts(len(rows), np.array(at, dtype=np.intp), which, count, list(kinds.values()))
