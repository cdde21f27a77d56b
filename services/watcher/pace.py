"""Pace: the watcher says no more than those who follow can take.

NATS cuts off who does not keep up, and who was cut off needs a new listing: that of a large cluster would never end. So
the API server is read only as fast as the slowest follower goes, but for those that are silent: they are gone, or will
find out that they have missed something.
"""

from collections import deque

from shared.messages.watch import NodeChange, ObjectChange, PodChange, WatchChange, WatchSeen

MOST_BYTES = 8 << 20
"""That may be on the way: an eighth of what NATS lets wait for one connection."""
PATIENCE = 10.0
"""Seconds without a word after which a follower is waited for no longer."""


NAMES = 200
"""Bytes of a change beside its body, about."""


def size_of(change: WatchChange) -> int:
    return NAMES + (len(change.body) if isinstance(change, PodChange | NodeChange | ObjectChange) else 0)


class Pace:
    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._on_the_way: deque[tuple[int, int]] = deque()
        """Number and bytes of each message that somebody may not have seen yet."""
        self._bytes = 0
        self._followers: dict[str, tuple[int, float]] = {}
        """By name, how far it has come and when it said so."""

    def said(self, seq: int, size: int) -> None:
        if self._followers:
            self._on_the_way.append((seq, size))
            self._bytes += size

    def heard(self, seen: WatchSeen, now: float) -> None:
        before = self._followers.get(seen.asker, (0, 0.0))[0]
        self._followers[seen.asker] = (max(before, seen.seq) if seen.epoch == self._epoch else 0, now)
        self._settle()

    def is_ahead(self, now: float) -> bool:
        """Whether nothing more is to be said for now."""
        silent = [name for name, (_, at) in self._followers.items() if now - at > PATIENCE]
        for name in silent:
            del self._followers[name]
        if silent:
            self._settle()
        return self._bytes > MOST_BYTES

    def _settle(self) -> None:
        """What everybody has seen is not on its way any more."""
        slowest = min((seq for seq, _ in self._followers.values()), default=None)
        while self._on_the_way and (slowest is None or self._on_the_way[0][0] <= slowest):
            self._bytes -= self._on_the_way.popleft()[1]
