"""Answers about nominated pods, made of the answer about their class without the nomination.

The nomination matters on one node only: there the pod itself does not count, and if the node is feasible, no other one
is compared, and so it has no score. Everything else is the class's, so many nominated pods cost little more than one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from flotilla.results import Status
from shared.framework.evaluator import ShardEvaluator
from shared.framework.judge import Judged
from shared.framework.ladders import Rungs
from shared.framework.pod_class import PodClass
from shared.messages.evaluation import Rejections
from shared.messages.rounds import ClassAnswer, ClassAsk, Ladder, NominatedPod
from shared.model.objects import Pod
from shared.plugins.preemption import DefaultPreemption


class _Here(NamedTuple):
    """A pod that is nominated to a node of this shard, in this row."""

    class_id: str
    nominated: NominatedPod
    row: int


def answers_of_nominated(
    evaluator: ShardEvaluator,
    pod_class: PodClass,
    asks: Sequence[ClassAsk],
    answer: ClassAnswer,
    ladder: Callable[[Rungs], Ladder],
) -> Iterator[ClassAnswer]:
    """`answer`: about the class, which has been evaluated. `ladder`: makes one of these placements.

    No answer about a pod whose own node is feasible for others of the class, and not for it: it is judged by itself.
    """
    here: list[_Here] = []
    for ask in asks:
        row = None if ask.nominated is None else evaluator.table.row_of(ask.nominated.node)
        if ask.nominated is None or row is None:
            yield replace(answer, class_id=ask.class_id)
        else:
            here.append(_Here(ask.class_id, ask.nominated, row))
    if not here:
        return
    rows = np.array([each.row for each in here], dtype=np.intp)
    judged = evaluator.judge.judge_nominated(pod_class, rows, [each.nominated.uid for each in here])
    of_class = evaluator.feasible_rows(pod_class)[rows]
    for i in np.flatnonzero(judged.fits).tolist():
        summary, alone = answer.summary, Rungs(rows[i : i + 1], np.zeros(1, dtype=np.int64), False, [])
        yield ClassAnswer(
            here[i].class_id,
            score_failure=answer.score_failure,
            summary=replace(summary, feasible=summary.feasible + int(not of_class[i])),
            ladder=ladder(alone),
            restricted_by=answer.restricted_by,
            topology=answer.topology,
            via_nominated=True,
            by_itself=answer.by_itself,
        )
    at = np.flatnonzero(~judged.fits & ~of_class)
    if at.size:
        yield from _not_there(evaluator, pod_class, [here[i] for i in at.tolist()], judged.take(at), answer)


def without_nomination(pod: Pod) -> Pod:
    return _nominated_to(pod, "")


def _not_there(
    evaluator: ShardEvaluator, pod_class: PodClass, pods: Sequence[_Here], judged: Judged, answer: ClassAnswer
) -> Iterator[ClassAnswer]:
    """The class's answer, except that the status of the pod's own node may be another one than for other pods."""
    rows = np.array([each.row for each in pods], dtype=np.intp)
    own = _by_row(evaluator, pod_class, judged)
    of_class = _by_row(evaluator, pod_class, evaluator.judge.judge(pod_class, rows))
    preemption = _only_preemption(evaluator)
    for i, (class_id, nominated, _) in enumerate(pods):
        counted = Counter({part.status: part.nodes for part in answer.rejections})
        if counted:
            counted[of_class[i]] -= 1
            counted[own[i]] += 1
        ineligible = ""
        if preemption is not None:
            pod = _nominated_to(pod_class.state.pod, nominated.node)
            ineligible = preemption.ineligible(pod, evaluator.table, own[i])
        rejections = [Rejections(status, nodes) for status, nodes in counted.items() if nodes]
        yield replace(answer, class_id=class_id, rejections=rejections, ineligible=ineligible)


def _by_row(evaluator: ShardEvaluator, pod_class: PodClass, judged: Judged) -> dict[int, Status]:
    """The status that rejected each of these rows."""
    statuses: dict[int, Status] = {}
    for at, status in evaluator.judge.statuses(pod_class, judged):
        statuses |= dict.fromkeys(at.tolist(), status)
    return statuses


def _only_preemption(evaluator: ShardEvaluator) -> DefaultPreemption | None:
    """DefaultPreemption if no other PostFilter plugin has a say."""
    plugins = evaluator.framework.post_filter
    return plugins[0] if len(plugins) == 1 and isinstance(plugins[0], DefaultPreemption) else None


def _nominated_to(pod: Pod, node: str) -> Pod:
    return replace(pod, status=replace(pod.status, nominated_node_name=node))
