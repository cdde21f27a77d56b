"""Counts for how many pods of a class there is room, by topology domain: which domains can hold a gang."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flotilla.nodes import LabelValue
from flotilla.plugin import Code, Ints, Mask, Status
from shared.cluster.columns import Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.topology import Domains, Strata, domains_of
from shared.framework.evaluator import ShardEvaluator
from shared.framework.pod_class import PodClass
from shared.messages.rounds import Places

MAX_PLACES = 1 << 10
"""Pods of one class that are counted on one node."""
MAX_DOMAINS = 1 << 14
"""Domains that are listed for one class: those with the most room."""
AFFINITY = "InterPodAffinity"


class Counted(NamedTuple):
    places: list[Places]
    limited_by: tuple[str, ...]


def count_places(
    evaluator: ShardEvaluator, pod_class: PodClass, within: Mask | None, labels: list[str], *, loosely: bool
) -> Counted:
    """Of an evaluated class. Topology rules between pods of different nodes count as if they were all satisfied, so
    this is an upper bound. `loosely`: any number of pods is taken to fit on a feasible node.
    """
    feasible = evaluator.feasible_rows(pod_class)
    may_hold, limits = feasible.copy(), set[str]()
    for rejected, status in evaluator.rejected(pod_class):
        may_hold[rejected] = _may_change(evaluator, status)
        limits.add(status.plugin)
    rows = np.flatnonzero(may_hold if within is None else may_hold & within)
    places = np.full(len(rows), MAX_PLACES, dtype=np.int64)
    if not loosely and rows.size:
        places = _places(evaluator, pod_class, rows, limits)
    counts = _Counts(rows, places, np.where(feasible[rows], evaluator.totals(pod_class, rows), 0))
    listed = [counts.of(values, members) for values, members in _by_values(evaluator.table, labels, rows)]
    if labels and not any(None not in each.values for each in listed):
        listed += _full(evaluator.table, labels, within)
    if len(listed) > MAX_DOMAINS:
        listed = sorted(listed, key=lambda each: (-each.places, [value or "" for value in each.values]))[:MAX_DOMAINS]
    return Counted(listed, tuple(sorted(limits - {""})))


def values_of(table: NodeTable, labels: list[str], nodes: list[str]) -> dict[str, Domains]:
    """The values of these labels on those of the nodes that the table has."""
    known = [(node, row) for node in nodes if (row := table.row_of(node)) is not None]
    rows = np.array([row for _, row in known], dtype=np.intp)
    columns = [domains_of(table, label, rows) for label in labels]
    return {node: [column[i] for column in columns] for i, (node, _) in enumerate(known)}


def labelled(table: NodeTable, labels: Mapping[str, str]) -> Mask:
    """The rows of nodes with these labels."""
    rows: Mask = np.ones(table.size, dtype=np.bool_)
    for key, value in labels.items():
        number = table.label_values(key).known(value)
        rows &= False if number is None else table.columns.of_nodes(LabelValue(key))[: table.size] == number
    return rows


class _Counts(NamedTuple):
    """`rows` ascend."""

    rows: Rows
    places: Ints
    scores: Ints

    def of(self, values: Domains, members: Rows) -> Places:
        at = np.searchsorted(self.rows, members)
        return Places(values, int(self.places[at].sum()), len(members), int(self.scores[at].sum()))


def _by_values(table: NodeTable, labels: list[str], rows: Rows) -> list[tuple[Domains, Rows]]:
    if not rows.size:
        return []
    return Strata(table, labels).split(rows) if labels else [([], rows)]


def _full(table: NodeTable, labels: list[str], within: Mask | None) -> list[Places]:
    """A domain without room, the one with most of the labels: so domains are full, rather than a label missing."""
    rows = np.flatnonzero(table.valid[: table.size] if within is None else table.valid[: len(within)] & within)
    found = [values for values, _ in _by_values(table, labels, rows) if any(values)]
    found.sort(key=lambda values: (values.count(None), [value or "" for value in values]))
    return [Places(values, 0) for values in found[:1]]


def _places(evaluator: ShardEvaluator, pod_class: PodClass, rows: Rows, limits: set[str]) -> Ints:
    """How many pods each row takes, one after the other: twice as many are tried each time, then the range is halved.

    Each row, which is feasible at present or may become so, takes one at least. Adds to `limits` what rejects more.
    """
    fit, step = np.ones(len(rows), dtype=np.int64), np.ones(len(rows), dtype=np.int64)
    too_many = np.full(len(rows), MAX_PLACES + 1, dtype=np.int64)
    doubling = np.ones(len(rows), dtype=np.bool_)
    while (open_ := np.flatnonzero(too_many - fit > 1)).size:
        tried = np.where(doubling[open_], fit[open_] + step[open_], (fit[open_] + too_many[open_]) // 2)
        tried = np.minimum(tried, too_many[open_] - 1)
        fits = np.ones(len(open_), dtype=np.bool_)
        for rejected, status in evaluator.rejected_with(pod_class, rows[open_], tried - 1):
            fits[rejected] = _may_change(evaluator, status)
            limits.add(status.plugin)
        fit[open_[fits]] = tried[fits]
        too_many[open_[~fits]] = tried[~fits]
        doubling[open_[~fits]] = False
        step[open_] *= 2
    return fit


def _may_change(evaluator: ShardEvaluator, status: Status) -> bool:
    """Whether placements of other members may end this rejection: they add pods that this one wants to be near to, or
    fill domains so that it may go to others. Anti-affinity only grows.
    """
    if status.plugin == AFFINITY:
        return status.code is Code.UNRESOLVABLE
    return status.plugin in evaluator.domain_filters and status.code is Code.UNSCHEDULABLE
