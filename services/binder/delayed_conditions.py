"""Conditions of failed bindings that would follow each other too quickly: the latest one is written after a while.

The queue delays conditions of rejected pods likewise, over all binders. A binder knows only what it has written itself.
So it writes what it has delayed only if the pod still shows what it wrote before: otherwise another writer, such as
another binder, has newer information. What could not be written is in `unwritten_conditions.py`.
"""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from services.binder.status_queue import StatusWrite
from shared.bounded import BoundedDict
from shared.kube.events_and_conditions import PodScheduled
from shared.messages.limits import CONDITION_SECONDS
from shared.runtime.rate_limited import RateLimited

MAX_REMEMBERED = 1 << 16
"""Pods of which the condition that was written last is remembered; conditions of further ones are not delayed."""


class DelayedConditions:
    def __init__(self, put: Callable[[StatusWrite], None], clock: Callable[[], float]) -> None:
        """`put` gets what was delayed."""
        self._put = put
        self._clock = clock
        self._delayed: RateLimited[str, StatusWrite] = RateLimited(CONDITION_SECONDS, MAX_REMEMBERED)
        self._written: BoundedDict[str, PodScheduled] = BoundedDict(MAX_REMEMBERED)
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        """When the timer fires."""
        self._delays = True

    def __len__(self) -> int:
        return len(self._delayed)

    def write_now(self, write: StatusWrite) -> StatusWrite:
        """What of the write is made now. The condition is delayed if one like it was written a moment ago."""
        uid, condition = write.pod.uid, write.condition
        if condition is None or not self._delays:
            return write
        later = replace(write, nominated=None, version="", after=self._written.get(uid))
        if self._delayed.offer(uid, condition.reason, later, self._clock()):
            self._written[uid] = condition
            return write
        self._wake_in_time()
        return replace(write, condition=None)

    def wrote(self, uid: str, condition: PodScheduled) -> None:
        """The queue has had this written: what is delayed is outdated."""
        self._delayed.record(uid, condition.reason, self._clock())
        self._written[uid] = condition

    def forget(self, uid: str) -> None:
        """The pod is bound."""
        self._delayed.drop(uid)

    def flush(self) -> None:
        """The binder leaves: writes what is delayed, and delays nothing more."""
        self._delays = False
        self._put_all(self._delayed.flush())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wake_in_time(self) -> None:
        """A condition that is delayed last may be due first: the pod's one before it was written earlier."""
        due = self._delayed.next_deadline()
        if due is None or (self._timer is not None and self._wakes_at <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = due
        self._timer = asyncio.get_running_loop().call_later(due - self._clock(), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._put_all(self._delayed.due(self._clock()))
        self._wake_in_time()

    def _put_all(self, writes: list[StatusWrite]) -> None:
        for write in writes:
            if write.condition is not None:
                self._written[write.pod.uid] = write.condition
            self._put(write)
