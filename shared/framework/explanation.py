"""Why each node was rejected, or how it was scored."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from flotilla.results import Status
from shared.cluster.changes import Rows
from shared.framework.evaluator import ShardEvaluator
from shared.framework.podclass import PodClass
from shared.framework.results import UNKNOWN
from shared.framework.view import NodeView
from shared.messages.evaluation import Explanation, Rejections


def explain(evaluator: ShardEvaluator, pod_class: PodClass) -> Explanation:
    """For a class that was ranked just now."""
    names = evaluator.table.names
    rejected = {names[row]: status for rows, status in _rejected(evaluator, pod_class) for row in rows.tolist()}
    feasible = np.flatnonzero(evaluator.feasible_rows(pod_class))
    scores: dict[str, dict[str, int]] = {names[row]: {} for row in feasible.tolist()}
    skipped = set(pod_class.state.skip_score)
    for s, plugin in enumerate(evaluator.answers.scores):
        if not pod_class.score_slots[s]:
            continue
        if plugin.has_no_say(pod_class.state):
            skipped.add(plugin.name)
            continue
        weighted = evaluator.weighted_scores(pod_class, s, feasible)
        for row, score in zip(feasible.tolist(), weighted.tolist(), strict=True):
            scores[names[row]][plugin.name] = score
    return Explanation(rejected, scores, sorted(skipped))


def rejections(evaluator: ShardEvaluator, pod_class: PodClass) -> list[Rejections]:
    """How many nodes each status rejected."""
    return [Rejections(status, len(rows)) for rows, status in _rejected(evaluator, pod_class)]


def _rejected(evaluator: ShardEvaluator, pod_class: PodClass) -> Iterator[tuple[Rows, Status]]:
    """The status of the first filter, in the profile's order, that rejects each node; grouped by status."""
    table = evaluator.table
    if not table.node_count:
        return
    left = np.flatnonzero(table.valid[: table.size])
    for rows, status in evaluator.kept_room.rejected(pod_class):
        left = np.setdiff1d(left, rows)
        yield rows, status
    for f, plugin in enumerate(evaluator.answers.filters):
        slot = int(pod_class.filter_slots[f])
        if not slot:
            continue
        pool = evaluator.answers.filter_pools[f]
        unasked = left[pool.values[slot, left] == UNKNOWN]
        if unasked.size:
            pool.values[slot, unasked] = plugin.filter(pool.state(slot), NodeView(table, unasked))
        verdicts: NDArray[np.int64] = pool.values[slot, left]
        if not verdicts.any():
            continue
        for verdict in np.unique(verdicts[verdicts != 0]).tolist():
            yield left[verdicts == verdict], plugin.explain(pool.state(slot), verdict).by(plugin.name)
        left = left[verdicts == 0]
