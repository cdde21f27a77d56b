"""A gang as one entry of the queue: its members have one place in the order, one back-off and one count of attempts.

The members that wait for their turn (active, backing off or unschedulable) are its content and are all in the same
state. It stands where the first of them would by itself. The first member of an attempt whose failure is reported
counts it for all; a member that joins later waits as long as the others, and all are popped together.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from math import floor
from typing import Any

from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.errors import InvariantBroken

_SOONER = (PodState.UNSCHEDULABLE, PodState.ERROR_BACKOFF, PodState.BACKOFF, PodState.ACTIVE)
"""The states of a gang, the last one is popped first."""


class AttemptResult(StrEnum):
    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"
    WAITING_ON_PREEMPTION = "waiting_on_preemption"
    """Of gangs only: unschedulable, and others are evicted for it."""


_COUNTS = (
    AttemptResult.UNSCHEDULABLE,
    AttemptResult.WAITING_ON_PREEMPTION,
    AttemptResult.ERROR,
    AttemptResult.SCHEDULED,
)
"""What an attempt of a gang has come to: the last of these that is reported of any of its pods."""


def in_order(pods: Iterable[QueuedPodInfo]) -> list[QueuedPodInfo]:
    """In the order in which they are decided."""
    return sorted(pods, key=lambda info: (-info.pod.priority, info.seen_at, info.uid))


class QueuedGang:
    """Changed by PodGroups (its members), SchedulingQueue (attempts) and the heap that it is in (the last five)."""

    def __init__(self) -> None:
        self.pods: dict[str, QueuedPodInfo] = {}
        self.state: PodState | None = None
        """Of all its pods; None while there are none."""
        self.attempts = 0
        self.rejections = 0
        self.errors = 0
        self.backoff_until = -1
        self.queued_at = 0.0
        self.sequence = 0
        """Of its last failure, as in QueuedPodInfo."""
        self._failed = False
        self._result: AttemptResult | None = None
        self._is_counted = True
        """Whether `take_result` has returned the result of the last attempt."""

        self.heap: object = None
        self.heap_number = 0
        self.heap_key: Any = None
        self.pods_in_heap = 0
        self._first: QueuedPodInfo | None = None

    # Members

    def join(self, info: QueuedPodInfo) -> None:
        self.pods[info.uid], self.state = info, info.state

    def leave(self, info: QueuedPodInfo) -> None:
        del self.pods[info.uid]
        if not self.pods:
            self.state = None

    def sooner(self, wanted: PodState) -> PodState:
        """The state of all once a pod joins that should be in this state: that of both in which it is popped first."""
        if self.state is None:
            return wanted
        return max(self.state, wanted, key=_SOONER.index)

    def in_order(self) -> list[QueuedPodInfo]:
        """Its pods in the order in which they are decided."""
        return in_order(self.pods.values())

    def first(self) -> QueuedPodInfo:
        """The pod by whose key it stands in a heap."""
        if self._first is None:
            self._first = min(self.pods.values(), key=lambda info: info.sort_key)
        return self._first

    def entered_heap(self, info: QueuedPodInfo) -> None:
        self.pods_in_heap += 1
        if self._first is not None and info.sort_key < self._first.sort_key:
            self._first = info

    def left_heap(self, info: QueuedPodInfo) -> None:
        self.pods_in_heap -= 1
        if self._first is info:
            self._first = None

    # Attempts

    def backs_off(self, now: float) -> bool:
        return self.backoff_until >= floor(now)

    def share_history(self, info: QueuedPodInfo) -> bool:
        """Gives the pod the gang's failures, or the gang those of a pod that was tried more often.

        Returns whether the pod stands elsewhere in the queue now.
        """
        if info.attempts > self.attempts:
            self.attempts = info.attempts
            self._take_failures(info)
            return False
        if not self.rejections and not self.errors:
            return False
        info.rejections, info.errors, info.backoff_until = self.rejections, self.errors, self.backoff_until
        if self.queued_at <= info.queued_at:
            return False
        info.queued_at, info.sequence = self.queued_at, self.sequence
        return True

    def begin_attempt(self, pods: Collection[QueuedPodInfo]) -> None:
        """Of these pods, which are about to be popped together."""
        for info in pods:
            self.share_history(info)
        for info in pods:
            info.attempts, info.rejections, info.errors = self.attempts, self.rejections, self.errors
        self.attempts += 1
        self._failed = self._is_counted = False
        self._result = None

    def has_failed(self, info: QueuedPodInfo) -> bool:
        """Whether the failure of the pod's present attempt is counted already."""
        return self._failed and info.attempts == self.attempts

    def count_failure(self, info: QueuedPodInfo) -> None:
        """Takes over a pod's failed attempt for all."""
        self.attempts = max(self.attempts, info.attempts)
        self._failed = True
        self._take_failures(info)

    def fail_after_all(self) -> None:
        """The last attempt counts as an error: the back-off is not cut short."""
        self.errors = max(self.errors, 1)
        if self.state is PodState.BACKOFF:
            self.state = PodState.ERROR_BACKOFF

    def report(self, result: AttemptResult) -> None:
        """What became of one pod; it counts for the gang as _COUNTS says."""
        self._result = result if self._result is None else max(self._result, result, key=_COUNTS.index)

    def take_result(self) -> AttemptResult | None:
        """The result of the attempt, once. A gang that was scheduled begins again without failures."""
        if self._is_counted or self._result is None:
            return None
        self._is_counted = True
        if self._result is AttemptResult.SCHEDULED:
            self.attempts = self.rejections = self.errors = 0
            self.backoff_until = -1
        return self._result

    def _take_failures(self, info: QueuedPodInfo) -> None:
        self.rejections, self.errors, self.backoff_until = info.rejections, info.errors, info.backoff_until
        self.queued_at, self.sequence = info.queued_at, info.sequence

    def validate(self) -> None:
        for uid, info in self.pods.items():
            if info.gang is not self or info.uid != uid or info.state is not self.state:
                raise InvariantBroken(f"pod {info.pod.key} is in a gang that is {self.state}: {info.history()}")
        if (self.state is None) == bool(self.pods):
            raise InvariantBroken(f"a gang of {len(self.pods)} pods is {self.state}")
        if self.pods_in_heap != (len(self.pods) if self.heap is not None else 0):
            raise InvariantBroken(f"a gang of {len(self.pods)} pods is in a heap with {self.pods_in_heap}")
