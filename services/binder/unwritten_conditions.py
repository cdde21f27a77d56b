"""Conditions that were not written to their pods, and what the pods showed instead.

A delayed condition is written only if its pod still shows the one before it (`delayed_conditions.py`). If that one
could not be written, or another writer had newer information then, the pod cannot show it; then the delayed one is
written if the pod still shows what it showed at that time, or if that is unknown.
"""

from shared.bounded import BoundedDict
from shared.kube.events_and_conditions import POD_SCHEDULED, ObservedCondition, ObservedPod, PodScheduled

MAX_REMEMBERED = 1 << 16
"""Pods of which this is remembered."""


class UnwrittenConditions:
    """At most one write to a pod is in progress; all calls refer to it."""

    def __init__(self) -> None:
        self._unwritten: BoundedDict[str, tuple[PodScheduled, ObservedCondition | None]] = BoundedDict(MAX_REMEMBERED)
        """By uid: the condition, and the one that the pod showed. That is None if the pod was not read."""
        self._read: BoundedDict[str, ObservedCondition] = BoundedDict(MAX_REMEMBERED)
        """What pods showed when they were last read for the write under way."""

    def read(self, pod: ObservedPod) -> None:
        """The pod was read to write a condition: `not_written` or `forget` follows."""
        self._read[pod.uid] = shown_by(pod)

    def not_written(self, uid: str, condition: PodScheduled) -> None:
        self._unwritten[uid] = condition, self._read.pop(uid, None)

    def forget(self, uid: str) -> None:
        """The pod shows its last condition, or needs none any more."""
        self._read.pop(uid, None)
        self._unwritten.pop(uid, None)

    def is_still_at(self, after: PodScheduled, pod: ObservedPod) -> bool:
        """Whether the pod shows this condition, or it was not written and nothing else was since."""
        if says(pod, after):
            return True
        condition, shown = self._unwritten.get(pod.uid, (None, None))
        return condition == after and shown in (None, shown_by(pod))


def shown_by(pod: ObservedPod) -> ObservedCondition:
    """The pod's PodScheduled condition, an empty one if it has none."""
    return next((each for each in pod.conditions if each.type == POD_SCHEDULED), ObservedCondition())


def says(pod: ObservedPod, why: PodScheduled) -> bool:
    """Whether the pod's PodScheduled condition is this one."""
    shown = shown_by(pod)
    return (shown.status, shown.reason, shown.message) == ("False", why.reason, why.message)
