"""What the supervisor is told, and what it wants done. Every event and effect is about one process, by name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Started:
    """Event: the process runs."""

    name: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Event: the process has ended, or could not be started. A negative code is the signal that ended it."""

    name: str
    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stopping:
    """Event: from now on processes may end as they like."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Effect: start the process, `after` so many seconds."""

    name: str
    after: float


@dataclass(frozen=True, slots=True)
class Tell:
    """Effect: let people know about a process."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Effect: end everything; starting this process again would change nothing."""

    name: str
    reason: str


Event = Started | Ended | Stopping
Effect = Launch | Tell | GiveUp
