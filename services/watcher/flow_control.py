"""Flow control: the watcher reads from the API server no faster than its slowest follower.

NATS disconnects a subscriber that does not keep up, and a subscriber that was disconnected needs a new listing; on a
large cluster that would never end. Silent followers do not count: they are gone, or will notice that they missed
something.
"""

from collections import deque
from typing import NamedTuple

from shared.messages.watch import WatchSeen

MAX_UNSEEN_BYTES = 8 << 20
"""An eighth of what NATS buffers for one connection."""
SILENCE = 10.0
"""Seconds after which a silent follower no longer counts."""


class _Follower(NamedTuple):
    """`seq`: of the last message seen. `at`: when it reported that. `alike`: it reads AlikePods."""

    seq: int
    at: float
    alike: bool


class FlowControl:
    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._unseen: deque[tuple[int, int]] = deque()
        """Number and size of each message that some follower has not seen yet."""
        self._unseen_bytes = 0
        self._followers: dict[str, _Follower] = {}

    def sent(self, seq: int, size: int) -> None:
        if self._followers:
            self._unseen.append((seq, size))
            self._unseen_bytes += size

    def seen(self, seen: WatchSeen, now: float) -> None:
        known = self._followers.get(seen.asker)
        before = 0 if known is None else known.seq
        seq = max(before, seen.seq) if seen.epoch == self._epoch else 0
        self._followers[seen.asker] = _Follower(seq, now, seen.alike)
        self._drop_seen()

    @property
    def all_read_alike(self) -> bool:
        """Whether there are followers, and all of them read AlikePods."""
        return bool(self._followers) and all(follower.alike for follower in self._followers.values())

    def must_wait(self, now: float) -> bool:
        """Whether too much is unseen to read on."""
        silent = [name for name, follower in self._followers.items() if now - follower.at > SILENCE]
        for name in silent:
            del self._followers[name]
        if silent:
            self._drop_seen()
        return self._unseen_bytes > MAX_UNSEEN_BYTES

    def _drop_seen(self) -> None:
        slowest = min((follower.seq for follower in self._followers.values()), default=None)
        while self._unseen and (slowest is None or self._unseen[0][0] <= slowest):
            self._unseen_bytes -= self._unseen.popleft()[1]
