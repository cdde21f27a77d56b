"""Measures from beats whose wall clock differs from ours. It is shown and logged. Nothing rests on it.

A process is not ready if its clock is the wrong one: if it differs from the API server's, or, while that is unknown,
from those of most processes. A process that hears one with a wrong clock is ready.

A beat says what time it was when it was sent. How much later it arrives is the difference between two clocks and the
time that it took, which is never negative; so of the beats of some seconds, the one that took least tells.
"""

import logging
from collections import deque
from dataclasses import dataclass, field

from shared.runtime.apiclock import CLOCKS, with_clock
from shared.runtime.context import Context

LARGEST = 2.0
"""Seconds by which a clock may differ: more than a beat takes, and than clocks that are kept differ."""
WINDOW = 10.0
"""Seconds of beats that are looked at."""
ENOUGH = 3.0
"""Seconds that they must span: after a process stood still its messages arrive late, and all at once."""
FORGOTTEN_AFTER = 60.0
MOST_PEERS = 1 << 10


@dataclass(slots=True)
class Peer:
    """`beats`: when each arrived, by our monotonic clock, and how far ahead of ours its sender's wall clock seemed."""

    beats: deque[tuple[float, float]] = field(default_factory=deque)
    measured: bool = False
    told: bool = False

    @property
    def ahead(self) -> float | None:
        """Seconds; None where too little was heard to tell."""
        if not self.beats or self.beats[-1][0] - self.beats[0][0] < ENOUGH:
            return None
        return max(ahead for _, ahead in self.beats)

    @property
    def differs(self) -> bool:
        return self.ahead is not None and abs(self.ahead) > LARGEST


class ClockOffsets:
    """One for a process that hears beats. `heard` with each of them; the rest follows."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._wall = context.wall
        self._log: logging.Logger = context.log
        self._peers: dict[str, Peer] = {}
        self._gauge = context.metrics.gauge(
            "flotilla_clock_offset_seconds", "By how much another's clock is ahead of this process's.", ["peer"]
        )
        self._api = context.api_clock
        context.health.check(CLOCKS, with_clock(self._problem, self._api, self._clock))

    def heard(self, name: str, sent_at: float, api_ahead: float | None = None) -> None:
        """A beat of this peer; `sent_at` is the Unix time that it names, 0 if it names none.

        `api_ahead`: by how much the API server's clock is ahead of that peer's, where it tells.
        """
        if not sent_at:
            return
        now = self._clock()
        peer = self._peers.get(name)
        if peer is None:
            self._make_room(now)
            peer = self._peers[name] = Peer()
        peer.beats.append((now, sent_at - self._wall()))
        while peer.beats[0][0] < now - WINDOW:
            peer.beats.popleft()
        if (ahead := peer.ahead) is not None:
            peer.measured = True
            self._gauge.labels(name).set(ahead)
            if api_ahead is not None:
                self._api.measured(ahead + api_ahead, now)
        if peer.differs and not peer.told:
            peer.told = True
            self._log.warning("%s; nothing is decided by it, but what people read is wrong", described(name, peer))
        elif peer.told and peer.ahead is not None and not peer.differs:
            peer.told = False
            self._log.info("the clock of %s is right again", name)

    def _make_room(self, now: float) -> None:
        """Those that have not been heard for long go, and the first of too many."""
        late = [name for name, peer in self._peers.items() if peer.beats[-1][0] < now - FORGOTTEN_AFTER]
        if not late and len(self._peers) >= MOST_PEERS:
            late = [next(iter(self._peers))]
        for name in late:
            if self._peers.pop(name).measured:
                self._gauge.remove(name)

    def _problem(self) -> str:
        """Ignore silent peers; a lost process is reported elsewhere. Of two clocks nobody knows which is wrong."""
        recent = self._clock() - WINDOW
        heard = [peer for peer in self._peers.values() if peer.ahead is not None and peer.beats[-1][0] >= recent]
        differ = sum(peer.differs for peer in heard)
        if differ <= len(heard) - differ + 1:
            return ""
        return f"this process's clock differs from those of {differ} of the {len(heard)} others that it hears"


def described(name: str, peer: Peer) -> str:
    ahead = peer.ahead or 0.0
    return f"the clock of {name} is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this process's"
