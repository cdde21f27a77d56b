"""Names: which of several processes of one name holds it. The leader decides, from heartbeats alone.

             +-- heartbeat within SILENCE after another process's --> the other process is refused: both are alive
    holder --+
             +-- silent for SILENCE, or says that it is leaving ----> the other takes over; this one is superseded

A process is a name and an incarnation. The first one heard holds the name. While another one waits, nothing of it is
accepted, so that the holder's work does not move to and fro. A restarted process waits at most SILENCE since the last
heartbeat of its predecessor. A process that was superseded because it stood still is refused for good: its work belongs
to another one.

A new leader first hears whichever process sends first: within its FIRST_MOMENTS the older process gets the name.
"""

import time
from collections import deque
from dataclasses import dataclass, field

from shared.bounded import BoundedDict
from shared.errors import UserError
from shared.messages.identity import NameTaken
from shared.messages.limits import BEAT_INTERVAL

SILENCE = 3 * BEAT_INTERVAL
"""Seconds without a heartbeat after which another process of that name takes over: three heartbeats."""
FIRST_MOMENTS = 2.0
"""Seconds in which the holder that was heard first may turn out to be the younger process."""
MAX_NAMES = 1 << 10
"""Names that are remembered."""
MAX_SUPERSEDED = 16
"""Ended processes that are remembered per name."""
MAX_RIVALS = 16
"""Remembered per name."""


@dataclass(slots=True)
class _Holder:
    incarnation: str
    uptime: float
    first_heard_at: float
    heard_at: float
    leaving: bool = False
    rivals: BoundedDict[str, float] = field(default_factory=lambda: BoundedDict(MAX_RIVALS))
    """When each other incarnation was first heard."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether a heartbeat counts. `taken`: the reply for its sender if another process holds the name."""

    counts: bool
    taken: NameTaken | None = None


COUNTS, WAITS = Ruling(True), Ruling(False)


class Names:
    def __init__(self) -> None:
        self._holders: BoundedDict[str, _Holder] = BoundedDict(MAX_NAMES)
        self._superseded: BoundedDict[str, deque[str]] = BoundedDict(MAX_NAMES)

    def beat(
        self, name: str, incarnation: str, now: float, *, epoch: int, uptime: float = 0.0, leaving: bool = False
    ) -> Ruling:
        """`epoch`: of the leader that heard it. `uptime`: seconds since the process began; 0 if it does not say.

        `leaving`: it is about to end.
        """
        holder = self._holders.get(name)

        def refused(by: _Holder) -> Ruling:
            age = now - by.first_heard_at + by.uptime
            return Ruling(False, NameTaken(epoch, name, incarnation, by.incarnation, age))

        if incarnation in self._superseded.get(name, ()):
            return WAITS if leaving or holder is None else refused(holder)
        if holder is None or holder.incarnation == incarnation:
            self._hold(name, incarnation, uptime, leaving, now)
            return COUNTS
        if holder.leaving or now - holder.heard_at > SILENCE:
            self._supersede(name, holder.incarnation)
            del self._holders[name]
            self._hold(name, incarnation, uptime, leaving, now)
            return COUNTS
        if leaving:
            return WAITS
        known_for = now - holder.first_heard_at
        if known_for < FIRST_MOMENTS and holder.uptime > 0.0 and uptime > holder.uptime + known_for:
            del self._holders[name]
            self._hold(name, incarnation, uptime, leaving, now)
            self._holders[name].rivals[holder.incarnation] = now
            return COUNTS
        since = holder.rivals.setdefault(incarnation, now)
        return WAITS if holder.heard_at <= since else refused(holder)

    def told_to_end(self, name: str) -> None:
        """The holder of this name was told to end: the next process takes over at once."""
        holder = self._holders.get(name)
        if holder is not None:
            holder.leaving = True

    def _hold(self, name: str, incarnation: str, uptime: float, leaving: bool, now: float) -> None:
        holder = self._holders.get(name) or _Holder(incarnation, uptime, now, now)
        holder.heard_at, holder.leaving = now, leaving
        self._holders[name] = holder

    def _supersede(self, name: str, incarnation: str) -> None:
        of_name = self._superseded.get(name) or deque(maxlen=MAX_SUPERSEDED)
        of_name.append(incarnation)
        self._superseded[name] = of_name


NAME_TAKEN = "names must be unique"


def name_taken(service: str, taken: NameTaken, wall: float) -> UserError:
    """The error of a process that ends because another one holds its name. `wall`: the Unix time."""
    since = utc(wall - taken.age)
    return UserError(
        f"another {service} named {taken.name} is running (incarnation {taken.holder}, since {since}):"
        f" {NAME_TAKEN}; set --name or FLOTILLA_NAME"
    )


def utc(at: float) -> str:
    """A Unix time as text."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def name_conflict(service: str, taken: NameTaken) -> str:
    """The leader's log line about it."""
    return f"two {service}s are named {taken.name}: {taken.holder} keeps the name, {taken.incarnation} must end"
