"""Evictions that binders were asked for, until one of them says how it ended.

Nobody knows which binder has taken one, and whoever is lost has lost what it had. So all that is open is asked for
again once there is a new binder: where it is under way, or has ended, that does no harm.
"""

from collections import OrderedDict
from collections.abc import Iterable

from msgspec.structs import replace

from shared.messages.binding import Evict, Evicted

PATIENCE = 25.0
"""Seconds after which it is not asked for any more: the queue will soon have the pod tried again in any case."""


class Displacing:
    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, int], tuple[Evict, float]] = OrderedDict()
        """The first to be given up first."""

    def asked(self, evict: Evict, now: float) -> None:
        self._give_up(now)
        self._open[evict.uid, evict.attempt] = evict, now + PATIENCE

    def names(self, uid: str, attempt: int, victims: Iterable[str]) -> bool:
        """Whether binders were asked, for this nomination, to have all of these go."""
        evict, _ = self._open.get((uid, attempt), (None, 0.0))
        return evict is not None and {victim.uid for victim in evict.victims}.issuperset(victims)

    def ended(self, evicted: Evicted) -> None:
        self._open.pop((evicted.uid, evicted.attempt), None)

    def open(self, now: float) -> list[Evict]:
        """What is to be asked for again."""
        self._give_up(now)
        left = [(evict, until - PATIENCE + evict.window - now) for evict, until in self._open.values()]
        return [replace(evict, window=window) for evict, window in left if window > 0]

    def _give_up(self, now: float) -> None:
        while self._open and next(iter(self._open.values()))[1] <= now:
            self._open.popitem(last=False)
