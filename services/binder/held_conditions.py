"""Conditions of failed bindings that would follow each other too quickly: the latest one is written after a while.

The queue holds back conditions of rejected pods likewise, over all binders. A binder knows only what it has written
itself. So it writes what it has held back only if the pod still shows what it wrote before: else somebody, another
binder for example, knows better.
"""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from services.binder.status_queue import MAX_PODS, StatusWrite
from shared.bounded import BoundedDict
from shared.kube.events_and_conditions import PodScheduled
from shared.messages.limits import CONDITION_SECONDS
from shared.runtime.paced import Paced


class HeldConditions:
    def __init__(self, put: Callable[[StatusWrite], None], clock: Callable[[], float]) -> None:
        """`put` gets what was held back."""
        self._put = put
        self._clock = clock
        self._paced: Paced[str, StatusWrite] = Paced(CONDITION_SECONDS, MAX_PODS)
        self._written: BoundedDict[str, PodScheduled] = BoundedDict(MAX_PODS)
        self._timer: asyncio.TimerHandle | None = None
        self._holds = True

    def __len__(self) -> int:
        return len(self._paced)

    def of_now(self, write: StatusWrite) -> StatusWrite:
        """What of the write is made now. The condition is held back if one like it was written a moment ago."""
        uid, condition = write.pod.uid, write.condition
        if condition is None or not self._holds:
            return write
        later = replace(write, nominated=None, version="", after=self._written.get(uid))
        if self._paced.passes(uid, condition.reason, later, self._clock()):
            self._written[uid] = condition
            return write
        self._wake_in_time()
        return replace(write, condition=None)

    def wrote(self, uid: str, condition: PodScheduled) -> None:
        """The queue has had this written: what is held back is outdated."""
        self._paced.passed(uid, condition.reason, self._clock())
        self._written[uid] = condition

    def forget(self, uid: str) -> None:
        """The pod is bound."""
        self._paced.drop(uid)

    def flush(self) -> None:
        """The binder leaves: writes what is held back, and holds back nothing more."""
        self._holds = False
        self._make(self._paced.flush())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wake_in_time(self) -> None:
        due = self._paced.next_deadline()
        if due is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(due - self._clock(), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._make(self._paced.due(self._clock()))
        self._wake_in_time()

    def _make(self, writes: list[StatusWrite]) -> None:
        for write in writes:
            if write.condition is not None:
                self._written[write.pod.uid] = write.condition
            self._put(write)
