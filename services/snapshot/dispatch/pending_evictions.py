"""Evictions that binders were asked for, until one reports the end.

Which binder has one is unknown, and a lost binder has lost its evictions. So all pending ones are sent again once there
is a new binder; if one is under way, or has ended, that does no harm.
"""

from collections import OrderedDict
from collections.abc import Iterable

from msgspec.structs import replace

from shared.messages.binding import Evict, Evicted
from shared.messages.limits import PREEMPTION_TIMEOUT

PENDING_SECONDS = PREEMPTION_TIMEOUT - 5
"""For so long an eviction is sent again: then the queue will soon retry the preemptor anyway."""


class PendingEvictions:
    def __init__(self) -> None:
        self._pending: OrderedDict[tuple[str, int], tuple[Evict, float]] = OrderedDict()
        """In the order in which they expire."""

    def add(self, evict: Evict, now: float) -> None:
        self._expire(now)
        self._pending[evict.uid, evict.attempt] = evict, now + PENDING_SECONDS

    def has_victims(self, uid: str, attempt: int, victims: Iterable[str]) -> bool:
        """Whether binders were asked to evict all of these for this nomination."""
        evict, _ = self._pending.get((uid, attempt), (None, 0.0))
        return evict is not None and {victim.uid for victim in evict.victims}.issuperset(victims)

    def on_evicted(self, evicted: Evicted) -> None:
        self._pending.pop((evicted.uid, evicted.attempt), None)

    def resend(self, now: float) -> list[Evict]:
        """With what is left of their windows."""
        self._expire(now)
        left = [(evict, until - PENDING_SECONDS + evict.window - now) for evict, until in self._pending.values()]
        return [replace(evict, window=window) for evict, window in left if window > 0]

    def _expire(self, now: float) -> None:
        while self._pending and next(iter(self._pending.values()))[1] <= now:
            self._pending.popitem(last=False)
