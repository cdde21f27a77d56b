"""Which free volumes pods get, if pods of other classes in the same round take those that they would get first."""

from collections.abc import Sequence

from shared.cluster.columns import Rows
from shared.cluster.volumes import VolumeDecision
from shared.framework.evaluator import ShardEvaluator
from shared.framework.pod_class import PodClass

MAX_NAMES = 1 << 13
"""Of volumes, as choices in one message; with the longest names a quarter of what a message may hold."""


class VolumeChoices:
    """Lists choices for the classes of one ask, in its order: each class has as many as earlier ones may take away."""

    def __init__(self) -> None:
        self._taken = 0
        """Volumes that the classes so far may take: pods of one class share their claims."""
        self._room = MAX_NAMES

    def of(
        self, evaluator: ShardEvaluator, pod_class: PodClass, rows: Rows, decided: Sequence[VolumeDecision | None]
    ) -> list[list[list[str]]]:
        """For a ladder of these rows with these decisions; if it is empty, pods may have to wait for the next round."""
        taken = self._taken
        self._taken += max((len(each.bindings) for each in decided if each is not None), default=0)
        if not taken or taken == self._taken:
            return []
        choices = evaluator.volume_choices(pod_class, rows, taken)
        self._room -= sum(len(names) for of_row in choices for names in of_row)
        return choices if self._room >= 0 else []
