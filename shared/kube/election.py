"""Who leads: what is seen of a Lease, and the time, make what is to be done about it.

    waiting --nobody leads, or the leader is silent for too long--> taking --written--> leading
       ^                                                              |                   |
       +------------- somebody else was faster, or no answer ---------+                   |
                                                                     over <---------------+
                                       another holds the Lease, or it was not renewed in time

Two never both lead. Who waits takes the Lease only after it has not seen it change for the whole of its duration, by
its own clock; who leads stops a good while before that, counted from when it *asked* for its last renewal. Clocks are
never compared, only the server's order of writes.

Each time somebody takes the Lease, `leaseTransitions` rises: that is the term. It is at least the number of minutes
since the start of 2026, so that it does not fall back where the Lease was deleted, or the server's store is an old one.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

TERMS_BEGIN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
JITTER = 1.2
"""Who waits looks again after its retry period, and a random share of so many of them."""
SOON = 0.25
"""Of a retry period: until the server is asked again that gave no answer to one who waits, or the Lease is looked at
that somebody has changed under the leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds. `elect`: otherwise the Lease is taken at once, whoever holds it."""

    elect: bool = True
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says. `renewed` is only compared with what was read before; `duration` in seconds, 0 if unsaid.

    `settled`: nobody holds it, and who led last has left nothing behind that the next term would have to wait for.
    `network`: the identity of the NATS of its holder, empty if unsaid. `acquired`: when it was taken, for people.
    """

    holder: str
    term: int
    renewed: str
    duration: float
    settled: bool = False
    network: str = ""
    acquired: str = ""


# Events


@dataclass(frozen=True, slots=True)
class Looked:
    """The Lease as it is; none: there is none."""

    record: Record | None


@dataclass(frozen=True, slots=True)
class Written:
    """The Lease is as it was to be written."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """It was not written: somebody has changed it since it was looked at."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, or one that says nothing about the Lease; what was to be written may be, or come to be."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Raise:
    """The leader needs a new term, above this one."""

    beyond: int


Event = Looked | Written | Overtaken | Failed | Tick | Raise

# Effects


@dataclass(frozen=True, slots=True)
class Look:
    """Ask the server for the Lease."""

    patience: float


@dataclass(frozen=True, slots=True)
class Write:
    """Write the Lease in the place of the one that was seen last, if that is still there."""

    term: int
    acquired: bool
    patience: float


@dataclass(frozen=True, slots=True)
class Follow:
    """Somebody else leads."""

    holder: str


@dataclass(frozen=True, slots=True)
class Lead:
    """From now on we lead, in this term. `before`: the last term there was, 0 if none is known.

    `settled`: the Lease that was taken said that the term before had left nothing behind.
    """

    term: int
    before: int
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Lose:
    """It is over."""

    why: str


Effect = Look | Write | Follow | Lead | Lose


class Election:
    """One candidate. It is told the time by a clock that only runs forward, and the Unix time.

    One thing is asked of the server at a time: after Look or Write comes its answer, or Failed once patience is over.
    """

    def __init__(self, identity: str, timings: Timings, draw: Callable[[], float] = random.random) -> None:
        """`draw`: from 0 to 1."""
        self._identity = identity
        self._timings = timings
        self._draw = draw
        self._record: Record | None = None
        self._seen_at: float | None = None
        """When it was first seen as it is."""
        self._newest = 0
        """The highest term that was seen or tried."""
        self._before = 0
        self._settled = False
        self._asked: Look | Write | None = None
        self._asked_at = 0.0
        self._ask_at = -math.inf
        self._knows = False
        """Whether the Lease is most likely still as it was seen or written last."""
        self._renewed_at = 0.0
        self.wanted = 0
        """The term that was tried last; with an unknown outcome it may be in the Lease."""
        self.term = 0
        """The one in which we lead; 0 while we do not."""
        self.over = False

    @property
    def leads_until(self) -> float:
        """If nothing is renewed any more."""
        return self._renewed_at + self._timings.renew_deadline if self.term else -math.inf

    def next_deadline(self) -> float:
        if self.over:
            return math.inf
        ask_at = self._ask_at if self._asked is None else math.inf
        return min(ask_at, self.leads_until) if self.term else ask_at

    def handle(self, event: Event, now: float, wall: float) -> list[Effect]:
        if self.over:
            return []
        if self.term and now >= self.leads_until:
            return [self._lose(f"it was not renewed within {self._timings.renew_deadline:g} s")]
        match event:
            case Tick():
                return self._ask(now) if self._asked is None and now >= self._ask_at else []
            case Raise(beyond=beyond):
                self._newest = max(self._newest, beyond)
                self._want_new_term(wall)
                self._ask_at = now
                return self._ask(now) if self._asked is None else []
            case _:
                asked, self._asked = self._asked, None
                return [] if asked is None else self._on_answer(event, asked, now, wall)

    # Answers

    def _on_answer(
        self, event: Looked | Written | Overtaken | Failed, asked: Look | Write, now: float, wall: float
    ) -> list[Effect]:
        match event:
            case Looked(record=record):
                return self._on_looked(record, now, wall)
            case Written() if isinstance(asked, Write):
                return self._on_written(asked, now)
            case Overtaken():
                self._knows = False
                self._ask_at = now + self._timings.retry_period * SOON if self.term else self._later(now)
            case _:
                self._knows = False
                soon = max(now, self._asked_at + self._timings.retry_period)
                self._ask_at = soon if self.term else self._later(now, SOON)
        return []

    def _on_looked(self, record: Record | None, now: float, wall: float) -> list[Effect]:
        if self._seen_at is None or record != self._record:
            self._record, self._seen_at = record, now
        if record is not None:
            self._newest = max(self._newest, record.term)
        if self.term:
            if record is not None and (record.holder != self._identity or record.term > self.wanted):
                return [self._lose(f"{record.holder or 'nobody'} has it, in term {record.term}")]
            return self._write(now)
        if record is None or self._may_be_taken(record, self._seen_at, now):
            self._before, self._settled = self._newest, record is not None and record.settled
            self._want_new_term(wall)
            return self._write(now)
        self._ask_at = self._later(now)
        expires = self._seen_at + self._duration(record)
        if now < expires:
            self._ask_at = min(self._ask_at, expires)
        return [Follow(record.holder)]

    def _on_written(self, asked: Write, now: float) -> list[Effect]:
        """What was asked for too long ago is no ground to lead by: the Lease is ours then, and will be taken anew."""
        if now >= self._asked_at + self._timings.renew_deadline:
            self._knows, self._ask_at = False, now
            return []
        before, self.term = self.term, asked.term
        self._knows, self._renewed_at = True, self._asked_at
        self._ask_at = now if self.wanted > self.term else max(now, self._asked_at + self._timings.retry_period)
        if self.term == before:
            return []
        return [Lead(self.term, before)] if before else [Lead(self.term, self._before, self._settled)]

    # Inside

    def _ask(self, now: float) -> list[Effect]:
        if self._knows and self.term:
            return self._write(now)
        return self._begin(Look(self._patience(now)), now)

    def _write(self, now: float) -> list[Effect]:
        return self._begin(Write(self.wanted, self.wanted != self.term, self._patience(now)), now)

    def _begin(self, asked: Look | Write, now: float) -> list[Effect]:
        self._asked, self._asked_at = asked, now
        return [asked]

    def _patience(self, now: float) -> float:
        patience = self._timings.renew_deadline / 2
        return min(patience, self.leads_until - now) if self.term else patience

    def _may_be_taken(self, record: Record, seen_at: float, now: float) -> bool:
        """It is nobody's, or our identity's from an earlier process, or its holder has been silent for too long."""
        free = not self._timings.elect or record.holder in ("", self._identity)
        return free or now >= seen_at + self._duration(record)

    def _duration(self, record: Record) -> float:
        return record.duration if record.duration > 0 else self._timings.lease_duration

    def _want_new_term(self, wall: float) -> None:
        minutes = int((wall - TERMS_BEGIN) // 60)
        self._newest = self.wanted = max(self._newest + 1, minutes, self.term + 1)

    def _later(self, now: float, share: float = 1.0) -> float:
        """Not all who wait look at a time."""
        return now + share * self._timings.retry_period * (1 + JITTER * self._draw())

    def _lose(self, why: str) -> Lose:
        self.over, self.term = True, 0
        return Lose(why)
