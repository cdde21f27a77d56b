"""Which free volumes pods get, if pods of other classes in the same round take those that they would get first."""

import math
from collections.abc import Sequence

from shared.cluster.columns import Rows
from shared.cluster.volumes import VolumeDecision
from shared.framework.evaluator import ShardEvaluator, has_own_volumes
from shared.framework.pod_class import PodClass

MAX_NAMES = 1 << 13
"""Of volumes, about, as choices in one message; with the longest names a quarter of what a message may hold."""


class VolumeChoices:
    """Lists choices for the classes of one ask, in its order: each class has as many as earlier ones may take away."""

    def __init__(self) -> None:
        self._taken = 0
        """Volumes that the classes so far may take: pods of one class share their claims, or each has its own."""
        self._room = MAX_NAMES

    def of(
        self,
        evaluator: ShardEvaluator,
        pod_class: PodClass,
        rows: Rows,
        decided: Sequence[VolumeDecision],
        share: float,
    ) -> list[list[list[str]]]:
        """For a ladder of these rows with these decisions. Where none are listed, pods may have to wait for a round.

        `share`: the part of the cluster in this shard. As many pods of a class as its ladder has rungs so far may be
        placed in each of the other shards, too.
        """
        taken = self._taken
        of_pod = max((len(each.bindings) for each in decided), default=0)
        if not of_pod:
            return []
        each_takes = of_pod * math.ceil(1 / share) if has_own_volumes(pod_class) else 0
        self._taken += each_takes * len(rows) or of_pod
        if not (taken or each_takes):
            return []
        choices: list[list[list[str]]] = []
        for row, decision in zip(rows.tolist(), decided, strict=True):
            of_row = evaluator.volume_choices(pod_class, row, taken) if self._room > 0 else []
            self._room -= sum(map(len, of_row))
            choices.append(of_row or [[] for _ in decision.bindings])
            taken += each_takes
        return choices
