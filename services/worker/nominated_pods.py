"""Judges nominated pods on the nodes that they are nominated to, beside the class that they are of otherwise.

On that node the pod's own nomination reserves nothing from it; on all others it is judged as its class. Further
nominated pods of a class therefore cost little.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from flotilla.plugin import Mask
from flotilla.results import Status
from shared.cluster.nodetable import NodeTable
from shared.framework.evaluator import ShardEvaluator
from shared.framework.judge import Judged
from shared.framework.ladders import Rungs
from shared.framework.pod_class import PodClass
from shared.framework.signatures import named
from shared.messages.rounds import KeptOut, Ladder, NominatedPod, OwnNodes
from shared.model.objects import Pod
from shared.plugins.preemption import DefaultPreemption, is_final


class _Here(NamedTuple):
    """A pod that is nominated to a node of this shard, in this row."""

    pod: NominatedPod
    row: int


def own_nodes(
    evaluator: ShardEvaluator,
    pod_class: PodClass,
    nominated: Sequence[NominatedPod],
    within: Mask | None,
    ladder: Callable[[Rungs], Ladder],
    *,
    fits_elsewhere: bool,
) -> OwnNodes | None:
    """For a class that has been evaluated. `within`: the rows to consider. `ladder`: makes one of these placements.

    `fits_elsewhere`: there are feasible nodes for the class, so why a pod may not go to its own one does not matter.
    """
    if not nominated:
        return None
    row_of = evaluator.table.row_of
    here = [_Here(pod, row) for pod in nominated if (row := row_of(pod.node)) is not None]
    if within is not None:
        here = [each for each in here if within[each.row]]
    if not here:
        return OwnNodes()
    rows = np.array([each.row for each in here], dtype=np.intp)
    judged = evaluator.judge.judge_nominated(pod_class, rows, [each.pod.uid for each in here])
    fit, unfit = np.flatnonzero(judged.fits), np.flatnonzero(~judged.fits)
    own = OwnNodes(
        [here[i].pod.uid for i in fit.tolist()], ladder(Rungs(rows[fit], np.zeros(len(fit), dtype=np.int64), True, []))
    )
    if fits_elsewhere or not unfit.size:
        return own
    return replace(own, unfit=_kept_out(evaluator, pod_class, [here[i] for i in unfit.tolist()], judged.take(unfit)))


def _kept_out(evaluator: ShardEvaluator, pod_class: PodClass, pods: Sequence[_Here], judged: Judged) -> list[KeptOut]:
    rows = np.array([each.row for each in pods], dtype=np.intp)
    own = _by_index(evaluator, pod_class, judged)
    of_class = _by_index(evaluator, pod_class, evaluator.judge.judge(pod_class, rows))
    others = _what_others_say(evaluator, pod_class)
    found: list[KeptOut] = []
    for i, (pod, _) in enumerate(pods):
        differs = own[i] != of_class.get(i)
        found.append(
            KeptOut(
                pod.uid,
                own[i] if differs else None,
                of_class.get(i) if differs else None,
                "" if others is None else _in_vain(evaluator, pod_class, pod.node, own[i], others),
            )
        )
    return found


def _by_index(evaluator: ShardEvaluator, pod_class: PodClass, judged: Judged) -> dict[int, Status]:
    """The status that rejected each of these rows."""
    statuses: dict[int, Status] = {}
    for at, status in evaluator.judge.statuses(pod_class, judged):
        statuses |= dict.fromkeys(at.tolist(), status)
    return statuses


def _what_others_say(evaluator: ShardEvaluator, pod_class: PodClass) -> list[str] | None:
    """Reasons of the PostFilter plugins before DefaultPreemption; None if a search must tell what comes of them.

    These pods have no claims, so no plugin looks at nodes.
    """
    reasons: list[str] = []
    for plugin in evaluator.framework.post_filter:
        if isinstance(plugin, DefaultPreemption):
            return reasons
        with named(plugin, "post_filter"):
            result = plugin.post_filter(pod_class.state, {})
        if is_final(result.status) or result.nominated_node or result.deallocate or result.delete:
            return None
        reasons += result.status.reasons
    return None


def _in_vain(evaluator: ShardEvaluator, pod_class: PodClass, node: str, status: Status, others: Sequence[str]) -> str:
    """What PostFilter plugins say if the pod may not preempt."""
    preemption = evaluator.framework.post_filter[-1]
    if not isinstance(preemption, DefaultPreemption):
        return ""
    ineligible = preemption.ineligible(_nominated_to(pod_class.state.pod, node), evaluator.table, status)
    return ", ".join([*others, f"preemption: {ineligible}"]) if ineligible else ""


def _nominated_to(pod: Pod, node: str) -> Pod:
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def own_node(table: NodeTable, pod_class: PodClass, feasible: Mask) -> Mask | None:
    """The row of the node that the pod is nominated to, if it is feasible; no other node is compared."""
    name = pod_class.state.pod.status.nominated_node_name
    row = table.row_of(name) if name else None
    if row is None or not feasible[row]:
        return None
    alone = np.zeros_like(feasible)
    alone[row] = True
    return alone
