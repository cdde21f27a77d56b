"""Clock offsets: how far this process's wall clock is from the API server's and from those of other processes.

Offsets are shown, logged and checked for readiness; no decision depends on them. A process is not ready if its own
clock is wrong: if it differs from the API server's or, while that offset is unknown, from those of most processes. A
process that merely hears from one with a wrong clock stays ready.

A heartbeat carries the time at which it was sent. It arrives later by the clock offset plus its time on the way, which
is never negative; so of the heartbeats of some seconds, the fastest one gives the offset.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.runtime.api_clock import LARGEST_OFFSET, ApiClock
from shared.runtime.context import Context

CLOCKS = "clocks"
WINDOW = 10.0
"""Seconds of heartbeats that are compared."""
SHORTEST_SPAN = 3.0
"""Seconds that these must span: after a process stood still, its messages arrive late and all at once."""
PEER_TTL = 60.0
"""Seconds after the last heartbeat until a peer is forgotten."""
MAX_PEERS = 1 << 10
"""Peers whose clocks are compared."""


@dataclass(slots=True)
class _Peer:
    """`beats`: when each arrived, by our monotonic clock, and how far ahead of ours its sender's wall clock seemed."""

    beats: deque[tuple[float, float]] = field(default_factory=deque)
    in_gauge: bool = False
    logged: bool = False

    @property
    def ahead(self) -> float | None:
        """Seconds; None before enough heartbeats have come."""
        if not self.beats or self.beats[-1][0] - self.beats[0][0] < SHORTEST_SPAN:
            return None
        return max(ahead for _, ahead in self.beats)

    @property
    def differs(self) -> bool:
        return self.ahead is not None and abs(self.ahead) > LARGEST_OFFSET


class ClockOffsets:
    """Measures the offsets of the processes whose heartbeats this one hears. Registers the readiness check."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._wall = context.wall
        self._log: logging.Logger = context.log
        self._peers: dict[str, _Peer] = {}
        self._gauge = context.metrics.gauge(
            "flotilla_clock_offset_seconds", "By how much another process's clock is ahead of this one's.", ["peer"]
        )
        self._api = context.api_clock
        context.reported.peers = self.peers
        context.health.check(CLOCKS, with_clock(self._problem, self._api, self._clock))

    def heard(self, name: str, sent_at: float, api_ahead: float | None = None) -> None:
        """Take a heartbeat of this peer; `sent_at` is the Unix time that it carries, 0 if none.

        `api_ahead`: by how much the API server's clock is ahead of that peer's, if the peer reports it.
        """
        if not sent_at:
            return
        now = self._clock()
        peer = self._peers.get(name)
        if peer is None:
            self._evict(now)
            peer = self._peers[name] = _Peer()
        peer.beats.append((now, sent_at - self._wall()))
        while peer.beats[0][0] < now - WINDOW:
            peer.beats.popleft()
        if (ahead := peer.ahead) is not None:
            peer.in_gauge = True
            self._gauge.labels(name).set(ahead)
            if api_ahead is not None:
                self._api.measured(ahead + api_ahead, now)
        if peer.differs and not peer.logged:
            peer.logged = True
            self._log.warning("%s; no decision depends on it, but displayed times are wrong", _described(name, peer))
        elif peer.logged and peer.ahead is not None and not peer.differs:
            peer.logged = False
            self._log.info("the clock of %s is right again", name)

    def peers(self) -> list[str]:
        """The processes that were heard within the last seconds."""
        recent = self._clock() - WINDOW
        return [name for name, peer in self._peers.items() if peer.beats[-1][0] >= recent]

    def _evict(self, now: float) -> None:
        """Forget peers that are silent for long; if there are too many, the oldest."""
        late = [name for name, peer in self._peers.items() if peer.beats[-1][0] < now - PEER_TTL]
        if not late and len(self._peers) >= MAX_PEERS:
            late = [next(iter(self._peers))]
        for name in late:
            if self._peers.pop(name).in_gauge:
                self._gauge.remove(name)

    def _problem(self) -> str:
        """Ignore silent peers; a lost process is reported elsewhere. Two clocks do not show which one is wrong."""
        recent = self._clock() - WINDOW
        heard = [peer for peer in self._peers.values() if peer.ahead is not None and peer.beats[-1][0] >= recent]
        differ = sum(peer.differs for peer in heard)
        if differ <= len(heard) - differ + 1:
            return ""
        return f"this process's clock differs from those of {differ} of the {len(heard)} others that it hears"


def with_clock(problem: Callable[[], str], api: ApiClock, clock: Callable[[], float]) -> Callable[[], str]:
    """A check for `Health`: the API server's clock decides; `problem` does while that is unknown."""

    def check() -> str:
        return problem() if api.ahead(clock()) is None else api.problem(clock())

    return check


def _described(name: str, peer: _Peer) -> str:
    ahead = peer.ahead or 0.0
    return f"the clock of {name} is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this process's"
