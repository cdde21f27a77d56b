"""Chooses victims for several pods at once: on which nodes, how many of the pods each takes, and which victims.

Workers offer ladders: for a node and a number of pods, who must go so that as many fit. A choice takes at most one rung
of each node. Sets of victims are compared as kube-scheduler compares the victims of one node: the fewest disruption
budgets violated, the lowest highest priority, the lowest sum of priorities, the fewest victims, the latest start.

Violations, sums and numbers add up over nodes, so the best set is found by dynamic programming over the pods placed so
far. The highest priority does not add up: it comes between two criteria that do, so its lowest possible value is found
first, and rungs above it are left out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.messages.preemption import Candidate, Victim
from shared.plugins.preemption import LOWEST_PRIORITY

Amounts = NDArray[np.int64]
Starts = NDArray[np.float64]

NOBODY = LOWEST_PRIORITY - 1
"""The highest priority of no victims: below all."""


class Cost(NamedTuple):
    """In the order of importance; the lower, the better. `start`: the most negative is the latest."""

    violations: int
    highest: int
    total: int
    number: int
    start: float


def cost_of(victims: Iterable[Victim], budgets: Mapping[str, int]) -> Cost:
    """`budgets`: what each allows. Victims on all nodes count down the same budgets, the most important one first."""
    left, violations, total, number = dict(budgets), 0, 0, 0
    highest, start = NOBODY, math.inf
    for victim in sorted(victims, key=importance):
        number += 1
        total += victim.priority - LOWEST_PRIORITY
        for budget in victim.budgets:
            left[budget] = left.get(budget, 0) - 1
        violations += any(left[budget] < 0 for budget in victim.budgets)
        if victim.priority >= highest:
            highest = victim.priority
            start = min(start, _start(victim))
    return Cost(violations, highest, total, number, -start)


def importance(victim: Victim) -> tuple[int, float, str]:
    """The most important victim first: by priority, then the one that runs longest, then by uid."""
    return -victim.priority, _start(victim), victim.uid


def units_of(victims: Iterable[Victim]) -> dict[str, list[Victim]]:
    """Those that go together, by their group; each other victim is a unit by its uid."""
    units: dict[str, list[Victim]] = {}
    for victim in victims:
        units.setdefault(victim.group or victim.uid, []).append(victim)
    return units


def choose(candidates: Sequence[Candidate], wanted: int, budgets: Mapping[str, int]) -> list[Candidate] | None:
    """Rungs for at least `wanted` pods, one a node at most, whose victims together cost least; None if none suffice.

    Of equally good choices, the one that the order of the candidates prefers. Violations are counted node by node at
    first. If budgets that still allow something protect victims on several nodes, a second choice is made by the number
    of protected victims, and the better one counts.
    """
    if room_of(candidates) < wanted:
        return None
    found = _Choice(candidates, wanted, [each.violations for each in candidates]).best()
    cost = cost_of(victims_of(found), budgets)
    if cost.violations:
        protected = [sum(bool(victim.budgets) for victim in each.victims) for each in candidates]
        other = _Choice(candidates, wanted, protected).best()
        if cost_of(victims_of(other), budgets) < cost:
            return other
    return found


def room_of(candidates: Iterable[Candidate]) -> int:
    """For how many pods there is room, at any cost."""
    most: dict[str, int] = {}
    for each in candidates:
        most[each.node] = max(most.get(each.node, 0), each.members)
    return sum(most.values())


def victims_of(candidates: Iterable[Candidate]) -> list[Victim]:
    return [victim for each in candidates for victim in each.victims]


def undominated(candidates: Sequence[Candidate], wanted: int, most_nodes: int) -> list[Candidate]:
    """The rungs of those nodes, of `most_nodes` at most, that a best choice for this many pods may need.

    A node is left out if as many nodes as there are pods are at least as good for every number of pods: a choice that
    takes it can take one of these instead, because it has at most one node for each pod. Among equals, names decide.
    So `choose` finds the same among what several shards have left, if this is applied to all of it, as among all nodes.
    """
    by_node: dict[str, list[Candidate]] = {}
    for each in sorted(candidates, key=lambda each: (each.node, each.members)):
        by_node.setdefault(each.node, []).append(each)
    if len(by_node) <= wanted:
        return [each for of_node in by_node.values() for each in of_node]
    rungs = max(each.members for each in candidates)
    features = np.full((len(by_node), rungs, len(_features(candidates[0]))), np.inf)
    for i, of_node in enumerate(by_node.values()):
        for each in of_node:
            features[i, each.members - 1] = _features(each)
    flat = features.reshape(len(by_node), -1)
    kept: list[int] = []
    better = np.empty((min(most_nodes, len(by_node)), flat.shape[1]))
    for i in np.lexsort(flat.T[::-1]).tolist():
        if len(kept) == most_nodes:
            break
        if len(kept) >= wanted and np.count_nonzero((better[: len(kept)] <= flat[i]).all(axis=1)) >= wanted:
            continue
        better[len(kept)] = flat[i]
        kept.append(i)
    nodes = list(by_node.values())
    return [each for i in sorted(kept) for each in nodes[i]]


def _features(rung: Candidate) -> tuple[float, ...]:
    """What a choice is compared by, each the lower the better."""
    cost = cost_of(rung.victims, {})
    protected = sum(bool(victim.budgets) for victim in rung.victims)
    return rung.violations, cost.highest, cost.total, cost.number, cost.start, protected


def _start(victim: Victim) -> float:
    return math.inf if victim.started is None else victim.started


class _Choice:
    """One search for the best choice, where the budgets that each candidate violates are known."""

    def __init__(self, candidates: Sequence[Candidate], wanted: int, violations: Sequence[int]) -> None:
        self._candidates = candidates
        self._wanted = wanted
        self._violations = violations
        self._costs = [cost_of(each.victims, {}) for each in candidates]

    def best(self) -> list[Candidate]:
        """There is a choice that suffices."""
        everything = range(len(self._candidates))
        fewest = self._fewest_violations(everything)
        limits = sorted({self._costs[i].highest for i in everything})
        low, high = 0, len(limits) - 1
        while low < high:
            middle = (low + high) // 2
            if self._fewest_violations(self._below(limits[middle])) == fewest:
                high = middle
            else:
                low = middle + 1
        rungs = self._rungs(self._below(limits[low]), limits[low])
        return [rung.candidate for rung in _cheapest(rungs, self._wanted)]

    def _below(self, highest: int) -> list[int]:
        return [i for i, cost in enumerate(self._costs) if cost.highest <= highest]

    def _fewest_violations(self, among: Iterable[int]) -> int | None:
        """None if these candidates do not suffice."""
        indices = list(among)
        if room_of(self._candidates[i] for i in indices) < self._wanted:
            return None
        if room_of(self._candidates[i] for i in indices if not self._violations[i]) >= self._wanted:
            return 0
        rungs = [_Rung(self._candidates[i], (self._violations[i], 0, 0), 0.0) for i in indices]
        return sum(rung.adds[0] for rung in _cheapest(rungs, self._wanted))

    def _rungs(self, among: Iterable[int], highest: int) -> "list[_Rung]":
        """The start counts only of those that are the most important of the whole choice."""
        rungs: list[_Rung] = []
        for i in among:
            cost = self._costs[i]
            start = cost.start if cost.highest == highest else -math.inf
            rungs.append(_Rung(self._candidates[i], (self._violations[i], cost.total, cost.number), start))
        return rungs


class _Rung(NamedTuple):
    """`adds`: what adds up, the most important first. `start`: of which the highest counts."""

    candidate: Candidate
    adds: tuple[int, int, int]
    start: float


class _Table:
    """For 0, 1, 2 ... pods: what the cheapest choice among the nodes so far costs."""

    def __init__(self, wanted: int) -> None:
        self.adds = np.full((3, wanted + 1), _INFINITE, dtype=np.int64)
        self.adds[:, 0] = 0
        self.start = np.full(wanted + 1, -np.inf)

    def improved(self, best: "_Table", rung: _Rung) -> NDArray[np.bool_]:
        """Takes the rung in addition to what this table has; writes what is cheaper than the `best`, and says where."""
        members, last = rung.candidate.members, self.start.size - 1
        before = np.maximum(np.arange(last + 1) - members, 0)
        adds = np.minimum(self.adds[:, before] + np.array(rung.adds, dtype=np.int64)[:, np.newaxis], _INFINITE)
        adds[:, self.adds[0, before] == _INFINITE] = _INFINITE
        start = np.maximum(self.start[before], rung.start)
        better, equal = np.zeros(last + 1, dtype=np.bool_), np.ones(last + 1, dtype=np.bool_)
        for mine, theirs in zip([*adds, start], [*best.adds, best.start], strict=True):
            better |= equal & (mine < theirs)
            equal &= mine == theirs
        better[0] = False
        best.adds[:, better], best.start[better] = adds[:, better], start[better]
        return better

    def copy(self) -> "_Table":
        made = _Table(self.start.size - 1)
        made.adds, made.start = self.adds.copy(), self.start.copy()
        return made


_INFINITE = 1 << 62


def _cheapest(rungs: Sequence[_Rung], wanted: int) -> list[_Rung]:
    """The choice for at least this many pods, which exists."""
    by_node: dict[str, list[_Rung]] = {}
    for rung in rungs:
        by_node.setdefault(rung.candidate.node, []).append(rung)
    table = _Table(wanted)
    taken: list[NDArray[np.intp]] = []
    for of_node in by_node.values():
        best = table.copy()
        of_taken = np.full(wanted + 1, -1, dtype=np.intp)
        for k, rung in enumerate(of_node):
            of_taken[table.improved(best, rung)] = k
        table = best
        taken.append(of_taken)
    chosen: list[_Rung] = []
    left = wanted
    for of_node, of_taken in zip(reversed(by_node.values()), reversed(taken), strict=True):
        if of_taken[left] >= 0:
            rung = of_node[int(of_taken[left])]
            chosen.append(rung)
            left = max(left - rung.candidate.members, 0)
    return chosen[::-1]
