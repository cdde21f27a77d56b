"""Leader election: decides from what a Lease says, and from the time, what to do about it.

`TRANSITIONS` has the states and their transitions.

Two candidates never lead at once. A candidate takes the Lease only after it has seen no change of it for the Lease's
whole duration, by its own clock; the leader stops well before that, counted from when it *sent* its last successful
renewal. Clocks of different processes are never compared, only the API server's order of writes.

Each time the Lease is taken, `leaseTransitions` rises: that is the term. It is at least the number of minutes since the
start of 2026, so that it does not fall back if the Lease is deleted or the server's store is restored from a backup.

All four leaders must belong to one pipeline, although everyone who connects to the API server shares the Leases and
only those on one NATS share messages. Otherwise each of two pipelines could hold some of the Leases, and both would
stop. So:

- Every leader writes the identity of its NATS into its Lease (`Record.network`).
- The snapshot's Lease is taken like any other, also from another pipeline, once it is no longer renewed.
- The other three Leases are not taken while a process on another NATS holds the snapshot's.
- A process that sees another pipeline renew the snapshot's Lease for FOREIGN_TIMEOUT ends, standby or leader.

Decisions never depend on this: epochs, pod versions and the store's history fence those.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from shared.terms import TERMS_BEGIN, is_possible
from shared.ticks import next_tick

JITTER = 1.2
"""A candidate adds up to this many retry periods, at random, to each of its waits."""
HINT_PAUSE = 0.1
"""Seconds from one read of the Lease to the next where others say that it is released."""
EARLY_SHARE = 0.25
"""Share of a retry period after which a candidate asks again that got no answer, and after which a leader reads a
Lease that another process has changed."""


class ElectionState(StrEnum):
    WAITING = "waiting"
    TAKING = "taking"
    LEADING = "leading"
    OVER = "over"


TRANSITIONS = (
    (ElectionState.WAITING, ElectionState.TAKING, "the Lease is free, our own identity's, or expired"),
    (ElectionState.TAKING, ElectionState.LEADING, "the Lease is written"),
    (ElectionState.TAKING, ElectionState.WAITING, "another candidate was faster, or no answer came in time"),
    (ElectionState.LEADING, ElectionState.OVER, "another process holds the Lease, or it was not renewed in time"),
)
"""From, to, and why; there are no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """In seconds. Without `elect` the Lease is taken at once, even from a live holder."""

    elect: bool = True
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says. `renewed` is only compared for equality; `duration` in seconds, 0 if unknown.

    `settled`: it has no holder, and the last leader left nothing behind that the next term would have to wait for.
    `network`: the identity of its holder's NATS, empty if unknown. `acquired`: when it was taken, for people.
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
    """The Lease was read; None: it does not exist."""

    record: Record | None


@dataclass(frozen=True, slots=True)
class Written:
    """The Lease was written."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The write was refused: the Lease has changed since it was read."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, or none about the Lease. A write may have happened, or may still happen."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Raise:
    """The leader needs a new term above `beyond`."""

    beyond: int


@dataclass(frozen=True, slots=True)
class SaidReleased:
    """The last leader says that the Lease is free: worth a look at once."""


Event = Looked | Written | Overtaken | Failed | Tick | Raise | SaidReleased

# Effects


@dataclass(frozen=True, slots=True)
class Look:
    """Read the Lease."""

    patience: float


@dataclass(frozen=True, slots=True)
class Write:
    """Replace the Lease that was read or written last, if it is unchanged."""

    term: int
    acquired: bool
    patience: float


@dataclass(frozen=True, slots=True)
class Follow:
    """Another process leads."""

    holder: str


@dataclass(frozen=True, slots=True)
class Lead:
    """We lead from now on, in this term. `before`: the last term, 0 if none is known.

    `settled`: the Lease said that the term before had left nothing behind.
    """

    term: int
    before: int
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Lose:
    """We lead no longer, and never again."""

    why: str


Effect = Look | Write | Follow | Lead | Lose


class Election:
    """One candidate. `now` is monotonic, `wall` the Unix time.

    One request is in progress at a time: each Look or Write is followed by its answer, or by Failed after `patience`.
    """

    def __init__(self, identity: str, timings: Timings, draw: Callable[[], float] = random.random) -> None:
        """`draw` returns a random number from 0 to 1."""
        self._identity = identity
        self._timings = timings
        self._draw = draw
        self._record: Record | None = None
        self._seen_at: float | None = None
        """When the record was first seen as it is."""
        self._newest = 0
        """The highest term seen or tried."""
        self._before = 0
        self._settled = False
        self._asked: Look | Write | None = None
        self._asked_at = 0.0
        self._ask_at = -math.inf
        self._knows = False
        """Whether the Lease is probably still as it was read or written last."""
        self._renewed_at = 0.0
        self.wanted = 0
        """The term that was tried last; it may be in the Lease even if no answer came."""
        self.term = 0
        """The term in which we lead; 0 while we do not."""
        self.over = False

    @property
    def state(self) -> ElectionState:
        if self.over:
            return ElectionState.OVER
        if self.term:
            return ElectionState.LEADING
        return ElectionState.TAKING if isinstance(self._asked, Write) else ElectionState.WAITING

    @property
    def leads_until(self) -> float:
        """When leading ends without a further renewal."""
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
            case SaidReleased():
                if not self.term:
                    self._ask_at = min(self._ask_at, max(now, self._asked_at + HINT_PAUSE))
                return []
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
                self._ask_at = now + self._timings.retry_period * EARLY_SHARE if self.term else self._later(now)
            case _:
                self._knows = False
                soon = max(now, self._asked_at + self._timings.retry_period)
                self._ask_at = soon if self.term else self._later(now, EARLY_SHARE)
        return []

    def _on_looked(self, record: Record | None, now: float, wall: float) -> list[Effect]:
        if record is not None and not is_possible(record.term, wall):
            record = replace(record, term=0, settled=False)  # followers would refuse what it leads to
        if self._seen_at is None or record != self._record:
            self._record, self._seen_at = record, now
        if record is not None:
            self._newest = max(self._newest, record.term)
        if self.term:
            if record is not None and (record.holder != self._identity or record.term > self.wanted):
                return [self._lose(f"{record.holder or 'nobody'} has it, in term {record.term}")]
            return self._write(now)
        # Free, our own identity's from an earlier process, or expired.
        free = record is None or not self._timings.elect or record.holder in ("", self._identity)
        if record is None or free or now >= self._seen_at + self._duration(record):
            self._before, self._settled = self._newest, record is not None and record.settled
            self._want_new_term(wall)
            return self._write(now)
        self._ask_at = self._later(now)
        expires = self._seen_at + self._duration(record)
        if now < expires:
            self._ask_at = min(self._ask_at, expires)
        return [Follow(record.holder)]

    def _on_written(self, asked: Write, now: float) -> list[Effect]:
        """A write that was sent too long ago gives no right to lead; the Lease is ours then and is taken again."""
        if now >= self._asked_at + self._timings.renew_deadline:
            self._knows, self._ask_at = False, now
            return []
        before, self.term = self.term, asked.term
        self._knows, self._renewed_at = True, self._asked_at
        renews_at = next_tick(self._asked_at, self._timings.retry_period)
        self._ask_at = now if self.wanted > self.term else max(now, renews_at)
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

    def _duration(self, record: Record) -> float:
        return record.duration if record.duration > 0 else self._timings.lease_duration

    def _want_new_term(self, wall: float) -> None:
        minutes = int((wall - TERMS_BEGIN) // 60)
        self._newest = self.wanted = max(self._newest + 1, minutes, self.term + 1)

    def _later(self, now: float, share: float = 1.0) -> float:
        """Spread the candidates' reads over time."""
        return now + share * self._timings.retry_period * (1 + JITTER * self._draw())

    def _lose(self, why: str) -> Lose:
        self.over, self.term = True, 0
        return Lose(why)


FOREIGN_TIMEOUT = 8.0
"""Seconds for which another pipeline must have renewed the snapshot's Lease before a process ends because of it. After
NATS was replaced, a leader takes up to 6 s to notice; until then its Lease names the previous one.
"""


class Ownership(Enum):
    """Which pipeline holds the snapshot's Lease."""

    OURS = "ours"
    """No other pipeline holds it."""
    FOREIGN = "foreign"
    """Another pipeline holds it, or has left it behind."""
    REFUSED = "refused"
    """Another pipeline renews it: ours is the second one."""


@dataclass(slots=True)
class _ForeignHolder:
    record: Record
    first_seen_at: float
    renewed_at: float


class OwnershipTracker:
    """Judges each read of the snapshot's Lease."""

    def __init__(self) -> None:
        self._other: _ForeignHolder | None = None

    def judge(self, record: Record | None, network: str, now: float) -> Ownership:
        """`network`: the identity of our NATS."""
        if record is None or not record.holder or record.network in ("", network):
            self._other = None
            return Ownership.OURS
        other = self._other
        if other is None or other.record.network != record.network:
            self._other = _ForeignHolder(record, now, now)
            return Ownership.FOREIGN
        if record != other.record:
            other.record, other.renewed_at = record, now
        return Ownership.REFUSED if other.renewed_at - other.first_seen_at >= FOREIGN_TIMEOUT else Ownership.FOREIGN


def describe_holder(where: str, record: Record) -> str:
    """Who holds the snapshot's Lease `where`."""
    since = f" since {record.acquired}" if record.acquired else ""
    return f"{where} is held by {record.holder}{since}, which names another NATS than ours"


def describe_conflict(where: str, record: Record) -> str:
    """The error of a process that ends because of it."""
    return (
        f"{describe_holder(where, record)} and keeps renewing it: another pipeline schedules this cluster. Stop that"
        " one and start this one again (if it has crashed, once its Lease has run out), or connect this one to the same"
        " NATS (FLOTILLA_NATS_URL)"
    )
