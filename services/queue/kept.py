"""What the queue wants to know of a pod again when it has been started anew."""

from collections.abc import Container, Mapping

import msgspec
from msgspec.structs import replace


class Kept(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Of a pod whose last attempt has failed. `errors` are in a row; if there are any, the last failure was one.

    `queued_at`: when it failed. `backoff_until`: the whole second through which it rests. Both are seconds of the
    queue's own clock; in Redis, Unix times.
    """

    attempts: int
    rejections: int
    errors: int
    queued_at: float
    backoff_until: int

    def moved(self, seconds: int) -> "Kept":
        """The same by another clock, which is so far ahead."""
        return replace(self, queued_at=self.queued_at + seconds, backoff_until=self.backoff_until + seconds)

    def resumed(self, seconds: int, now: float) -> "Kept":
        """As `moved`, but not later than `now`: the clock by which it was written may have been ahead of ours."""
        there = self.moved(seconds)
        return replace(there, queued_at=min(there.queued_at, now))


class Memory:
    """Of pods whose last attempt has failed, and of those that have not been seen yet since the queue was started."""

    def __init__(self, kept: Mapping[str, Kept]) -> None:
        self.news: dict[str, Kept | None] = {}
        """What is to be kept of pods from now on, or no longer, for whoever clears it."""
        self._kept = dict(kept)

    def of(self, uid: str) -> Kept | None:
        return self._kept.get(uid)

    def keep(self, uid: str, kept: Kept) -> None:
        self._kept[uid] = self.news[uid] = kept

    def lapse(self, uid: str) -> None:
        if self._kept.pop(uid, None) is not None:
            self.news[uid] = None

    def lapse_all_but(self, known: Container[str]) -> None:
        for uid in [uid for uid in self._kept if uid not in known]:
            self.lapse(uid)
