"""Decides which Events are written, and when. Pure: occurrences and the time in, writes out.

**Repeats form a series.** The same occurrence (type, action, reason, pod, related pod, scheduler, process) within 6
minutes is no new Event but counts in the existing one. The note keeps its first text, because the API server does not
allow changing it.

**A repeat costs no call of its own.** The count is rewritten after as much time as the series was old at the last
write, but at least 10 s (a pod that keeps failing does so every 10 s at most) and at most 5 minutes (the server forgets
an Event after an hour). So an hour of repeats costs about 17 calls, whether there are a hundred or a million.

**Everything is bounded.** All Events together have a rate limit, and a lower one while pods wait to be bound. Waiting
Events and remembered series are limited in number; the least recent go first.

    new Event --> waiting --> being written --> written --(repeat, later)--> due --> being written
                     ^              |                                                    |
                     +-- not now ---+<------------- 404: the server has forgotten it ----+
"""

import heapq
from collections import deque
from dataclasses import dataclass
from enum import Enum

import msgspec

from shared.errors import InvariantBroken
from shared.kube.events_and_conditions import PodEvent
from shared.kube.outcome import CallOutcome, CallResult, TokenBucket

ROUTINE = frozenset({"Scheduled"})
"""Written once per pod: these belong to no series and wait behind all others."""

SERIES_ENDS = 360.0
"""Seconds without a repeat after which a series ends, as in client-go."""
FIRST_REWRITE = 10.0
"""Seconds between two writes of a count, at least."""
LAST_REWRITE = 300.0
"""Seconds between two writes of a count, at most."""
MAX_SERIES = 1 << 15
"""About 1 kB each."""
MAX_WAITING = 1 << 14
"""For routine Events and for all others, each."""
COUNTS_TURN = 4
"""Every fourth call may write a due count even if new Events are waiting."""

RATE = 200.0
"""Calls a second: a tenth to a fifth of an API server's capacity. A burst of 10,000 pods takes 50 s."""
BURST = 400
"""Calls at once after a quiet time."""
YIELDING_RATE = 20.0
"""While pods wait to be bound."""

SPAM_BURST = 25.0
"""New Events of one type about one object, as in client-go; then one every 5 minutes."""
SPAM_REFILL = 300.0
"""Seconds until one more Event about an object is allowed."""

MAX_TRIES = 12
"""Tries of one write."""
FIRST_PAUSE = 1.0
"""Seconds until writing is resumed after a failure; doubled each time."""
LONGEST_PAUSE = 30.0
"""Seconds of such a pause, at most."""
LONGEST_RETRY_AFTER = 300.0
"""A longer Retry-After of the server is cut to this."""
POLL = 0.1
"""Seconds for which new Events wait for others. Their calls then go out together, which wakes this process and the API
server less often.
"""
REFILL_POLL = 0.5
"""Seconds until tokens are checked again, for the same reason, unless a new Event comes."""

UNANSWERED = frozenset({CallOutcome.UNREACHABLE, CallOutcome.UNKNOWN})
BUSY = frozenset({429, 503, 504})
"""These affect all Events. 500 may concern a single one, on which an admission webhook fails."""


class Admission(Enum):
    WAITS = "waits"
    COUNTED = "counted"
    """Counted in a series."""
    CROWDED = "crowded"
    """Dropped: too many are waiting."""
    SPAM = "spam"
    """Dropped: too many about this object."""


class WriteEnd(Enum):
    WRITTEN = "written"
    LATER = "later"
    """It will be tried again."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Limits:
    rate: float = RATE
    burst: int = BURST
    yielding_rate: float = YIELDING_RATE
    most_waiting: int = MAX_WAITING
    most_series: int = MAX_SERIES
    first_rewrite: float = FIRST_REWRITE


Key = tuple[str, ...]


class Series(msgspec.Struct, gc=False, eq=False):
    """An Event and its repeats. `began`, `seen`: the first and last occurrence; `written_at`: the last write."""

    key: Key
    event: PodEvent
    began: float
    seen: float
    written_at: float
    count: int = 1
    last: float = 0.0
    written: int = 0
    """The count that the API server has; 0 before the Event is created."""
    tries: int = 0
    queued: bool = True
    """Waiting, due, or being written."""


class Write(msgspec.Struct, frozen=True, gc=False):
    """Create the Event, or patch its count: everything up to now."""

    series: Series
    event: PodEvent
    creates: bool


class EventSeries:
    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._most_waiting = limits.most_waiting
        self._most_series = limits.most_series
        self._first_rewrite = limits.first_rewrite
        self._budget = TokenBucket(limits.rate, limits.burst)
        self._trickle = TokenBucket(limits.yielding_rate, 1)
        self._series: dict[Key, Series] = {}
        """Least recently seen first."""
        self._spam: dict[Key, tuple[float, float]] = {}
        """Remaining tokens and their time, least recently used first."""
        self._waiting: deque[Series] = deque()
        self._routine: deque[Series] = deque()
        self._due: list[tuple[float, int, Series]] = []
        self._pushed = 0
        self._taken = 0
        self._named = 0.0
        self._paused_until = float("-inf")
        self._pauses = 0

    @property
    def waiting(self) -> int:
        """New Events that wait."""
        return len(self._waiting) + len(self._routine)

    @property
    def remembered(self) -> int:
        """Series that can still count a repeat."""
        return len(self._series)

    @property
    def due(self) -> int:
        """Series with an unwritten count."""
        return len(self._due)

    def occurred(self, event: PodEvent, now: float) -> Admission:
        if event.reason in ROUTINE:
            if len(self._routine) >= self._most_waiting:
                return Admission.CROWDED
            self._routine.append(Series((), self._distinct(event), now, now, now))
            return Admission.WAITS
        self._forget_ended(now)
        key = _key(event)
        series = self._series.pop(key, None)
        if series is not None:
            self._series[key] = series
            self._count(series, event.at, now)
            return Admission.COUNTED
        if len(self._waiting) >= self._most_waiting:
            return Admission.CROWDED
        if not self._spam_allows(event, now):
            return Admission.SPAM
        series = self._series[key] = Series(key, self._distinct(event), now, now, now)
        if len(self._series) > self._most_series:
            del self._series[next(iter(self._series))]
        self._waiting.append(series)
        return Admission.WAITS

    def next(self, now: float, *, yielding: bool) -> Write | None:
        """The next write, if one may go out now; `ended` must follow. `yielding`: pods wait to be bound."""
        if now < self._paused_until or not self._ready(now):
            return None
        if yielding and self._trickle.take(now, now) is None:
            return None
        if self._budget.take(now, now) is None:
            return None
        series = self._take(now)
        event = series.event
        if series.count > 1:
            event = msgspec.structs.replace(event, count=series.count, last=series.last)
        return Write(series, event, not series.written)

    def wait(self, now: float) -> float | None:
        """Seconds until `next` may return something; None if there is nothing to wait for."""
        if not (self._due or self.waiting):
            return None
        if now < self._paused_until:
            return self._paused_until - now
        if self._ready(now):
            return REFILL_POLL
        return max(self._due[0][0] - now, POLL)

    def ended(self, write: Write, result: CallResult, now: float) -> WriteEnd:
        """The result of a write."""
        series = write.series
        if result.ok or (write.creates and result.outcome is CallOutcome.CONFLICT):
            # an Event that exists already was written by an unanswered try, before its repeats
            series.written = write.event.count if result.ok else 1
            series.tries = self._pauses = 0
            self._settle(series, now)
            return WriteEnd.WRITTEN
        if result.status in BUSY or (not result.status and result.outcome in UNANSWERED):
            self._pause(result.retry_after, now)
            return self._again(series, now)
        if result.outcome is CallOutcome.NOT_FOUND and not write.creates:
            series.written = 0
            return self._again(series, now)
        self._give_up(series, now)
        return WriteEnd.FAILED

    def validate(self) -> None:
        """Raises InvariantBroken."""
        bounds = {"series": (len(self._series), self._most_series), "spam": (len(self._spam), self._most_series)}
        for name, (size, most) in bounds.items():
            if size > most:
                raise InvariantBroken(f"{size} {name} are remembered, {most} at most")
        if len(self._due) > self._most_series:
            raise InvariantBroken(f"{len(self._due)} counts are due")
        lined = [*self._waiting, *self._routine, *(series for _, _, series in self._due)]
        if len(lined) != len({id(series) for series in lined}):
            raise InvariantBroken("a series is queued twice")
        for series in lined:
            if not series.queued:
                raise InvariantBroken(f"{series} is queued, but not marked so")

    # Internals

    def _take(self, now: float) -> Series:
        self._taken += 1
        if self._counts_are_due(now) and (self._taken % COUNTS_TURN == 0 or not self.waiting):
            return heapq.heappop(self._due)[2]
        return (self._waiting or self._routine).popleft()

    def _count(self, series: Series, at: float, now: float) -> None:
        series.count += 1
        series.seen = now
        series.last = at
        if not series.queued:
            self._write_count_later(series, now)

    def _write_count_later(self, series: Series, now: float) -> None:
        age = series.written_at - series.began
        self._push(series, max(now, series.written_at + min(max(age, self._first_rewrite), LAST_REWRITE)))

    def _push(self, series: Series, at: float) -> None:
        """Without room, the next repeat tries again."""
        series.queued = len(self._due) < self._most_series
        if series.queued:
            self._pushed += 1
            heapq.heappush(self._due, (at, self._pushed, series))

    def _settle(self, series: Series, now: float) -> None:
        series.written_at = now
        series.queued = False
        if series.count > series.written:
            self._write_count_later(series, now)

    def _again(self, series: Series, now: float) -> WriteEnd:
        series.tries += 1
        if series.tries >= MAX_TRIES:
            self._give_up(series, now)
            return WriteEnd.FAILED
        if series.written:
            self._push(series, now)
        else:
            (self._waiting if series.key else self._routine).appendleft(series)
        return WriteEnd.LATER

    def _give_up(self, series: Series, now: float) -> None:
        """Without an Event there is no series; an unwritten count is retried with the next repeat."""
        series.tries = 0
        series.written_at = now
        series.queued = False
        if not series.written and self._series.get(series.key) is series:
            del self._series[series.key]

    def _pause(self, retry_after: float | None, now: float) -> None:
        """Pause all writes: what the API server does to one Event it would do to all."""
        if now < self._paused_until:
            return
        if retry_after is None:
            pause = min(FIRST_PAUSE * 2.0 ** min(self._pauses, 10), LONGEST_PAUSE)
        else:
            pause = min(retry_after, LONGEST_RETRY_AFTER)
        self._pauses += 1
        self._paused_until = now + pause

    def _ready(self, now: float) -> bool:
        return self.waiting > 0 or self._counts_are_due(now)

    def _counts_are_due(self, now: float) -> bool:
        return bool(self._due) and self._due[0][0] <= now

    def _forget_ended(self, now: float) -> None:
        """Their unwritten counts are still written."""
        while self._series:
            series = next(iter(self._series.values()))
            if now - series.seen <= SERIES_ENDS:
                break
            del self._series[series.key]

    def _spam_allows(self, event: PodEvent, now: float) -> bool:
        key = (event.pod.uid, event.type)
        tokens, since = self._spam.pop(key, (SPAM_BURST, now))
        tokens = min(SPAM_BURST, tokens + max(now - since, 0.0) / SPAM_REFILL)
        allowed = tokens >= 1.0
        self._spam[key] = (tokens - 1.0 if allowed else tokens, now)
        if len(self._spam) > self._most_series:
            del self._spam[next(iter(self._spam))]
        return allowed

    def _distinct(self, event: PodEvent) -> PodEvent:
        """Event names contain the time: keep times distinct if the clock is coarse or goes back a little."""
        if 0.0 <= self._named - event.at < 1.0:
            event = msgspec.structs.replace(event, at=self._named + 1e-6)
        self._named = event.at
        return event


def _key(event: PodEvent) -> Key:
    related = event.related.uid if event.related is not None else ""
    return (event.pod.uid, event.reason, related, event.type, event.action, event.controller, event.instance)
