"""What lasting answers have beyond placements for their round: score groups, and scores of other classes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flotilla.plugin import Topology
from flotilla.results import Range
from shared.cluster.columns import Rows
from shared.framework.evaluator import ShardEvaluator
from shared.framework.failures import Failures
from shared.framework.lasting import ListedGroups
from shared.framework.pod_class import PodClass
from shared.messages.evaluation import Ties
from shared.messages.rounds import ClassAsk, ScoreGroup


class Outlook(NamedTuple):
    """Whether an answer lasts; or can be followed instead, with the groups if the ask is about placements ahead."""

    lasts: bool
    followed: bool = False
    groups: ListedGroups | None = None


NOTHING_LASTS = Outlook(False)


def outlook(
    evaluator: ShardEvaluator,
    pod_class: PodClass,
    ask: ClassAsk,
    topologies: Mapping[str, Topology | None],
    late: Mapping[str, object],
) -> Outlook:
    """Of an answer about an evaluated class, with its topologies by plugin and its late summaries."""
    if not evaluator.lasting.judge(pod_class, topologies, late):
        return NOTHING_LASTS
    if pod_class.followed is None:
        return Outlook(True)
    groups = evaluator.lasting.groups(pod_class, ask.count + ask.ahead) if ask.ahead else None
    return Outlook(False, groups is not None or not ask.ahead, groups)


def beside(
    evaluator: ShardEvaluator,
    placements: Sequence[tuple[PodClass, Rows]],
    classes: Sequence[str],
    known: Mapping[str, tuple[ShardEvaluator, PodClass]],
    failures: Failures,
) -> dict[str, dict[str, list[int]]]:
    """By class, scores of the other known classes on these rows after its placements there.

    Classes of another profile and unsteady ones are left out.
    """
    asked = (known[each] for each in classes if each in known)
    others = [other for of, other in asked if of is evaluator and evaluator.lasting.is_steady(other)]
    placed = [(placing, rows) for placing, rows in placements if rows.size and others != [placing]]
    if not others or not placed:
        return {}
    try:
        totals = {placing.id: of_rows.tolist() for placing, of_rows in evaluator.lasting.totals_beside(placed, others)}
    except Exception as cause:  # a plugin failed for another class than these
        failures.note(cause)
        return {}
    return {
        class_id: {other.id: of for other, of in zip(others, of_rows, strict=True) if other.id != class_id}
        for class_id, of_rows in totals.items()
    }


def ranges(
    evaluator: ShardEvaluator, classes: Sequence[str], known: Mapping[str, tuple[ShardEvaluator, PodClass]]
) -> dict[str, dict[str, Range]]:
    """By which the scores of these classes are normalised since they were evaluated last, but for followed ones."""
    cached = ((each, known[each]) for each in classes if each in known)
    of_all = ((each, evaluator.lasting.fixed_ranges(of)) for each, (by, of) in cached if by is evaluator)
    return {each: found for each, found in of_all if found is not None}


def as_sent(evaluator: ShardEvaluator, listed: ListedGroups, ties: Ties) -> list[ScoreGroup]:
    """The groups as a message has them."""
    names, bits = evaluator.table.names, evaluator.tie_bits
    mask = 0 if ties.mode == "name" else (1 << bits) - 1
    nodes = [names[row] for row in listed.rows.tolist()]
    after = np.where(listed.after < 0, 0, listed.after & mask)
    columns = [
        nodes,
        (listed.keys >> bits).tolist(),
        (listed.keys & mask).tolist(),
        np.where(listed.after < 0, -1, listed.after >> bits).tolist(),
        after.tolist(),
    ]
    ends = np.cumsum(listed.listed).tolist()
    parts = zip(listed.groups, listed.counts, [0, *ends[:-1]], ends, strict=True)
    return [
        ScoreGroup(list(group.values), group.pods, count, *(column[start:end] for column in columns))
        for group, count, start, end in parts
    ]
