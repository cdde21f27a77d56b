"""Context: what the host passes to a service. Health: why the process is not ready, and whether it leads."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from shared.bus import Bus
from shared.config.settings import Settings
from shared.runtime.api_clock import ApiClock
from shared.runtime.lease_thread import LeaseThread
from shared.telemetry import Telemetry
from shared.telemetry.fault import Fault
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer

STARTING = "service"
PATIENCE = 10.0
"""Seconds until a watchdog reports a silent peer; a process restarts in less."""


@dataclass(frozen=True, slots=True)
class Leads:
    """`since`: Unix time."""

    term: int
    since: float


@dataclass(frozen=True, slots=True)
class StandsBy:
    """Another process leads; `leader` is its name in the Lease. `since`: Unix time."""

    leader: str
    since: float


class Health:
    """Not ready at first; `ready` clears that once the service has started.

    A standby counts as ready: it is there for when it is needed.
    """

    def __init__(self) -> None:
        self.leadership: Leads | StandsBy | None = None
        """None in services without a leader, and before the Lease was seen."""
        self._reasons: dict[str, str] = {STARTING: "is starting"}
        self._checks: dict[str, Callable[[], str]] = {}
        self._known: dict[str, None] = {STARTING: None}
        """Every key that was ever waited for or checked."""

    def wait_for(self, key: str, why: str) -> None:
        """Not ready until this key is cleared."""
        self._known[key] = None
        self._reasons[key] = why

    def clear(self, key: str) -> None:
        self._reasons.pop(key, None)

    def ready(self) -> None:
        self.clear(STARTING)

    @property
    def role(self) -> str:
        """`standby: X leads` or `leads, term N`; empty without a leadership."""
        match self.leadership:
            case Leads(term=term):
                return f"leads, term {term}"
            case StandsBy(leader=leader):
                return f"standby: {leader} leads"
        return ""

    @property
    def standing_by(self) -> bool:
        return isinstance(self.leadership, StandsBy)

    def stand_by(self, leader: str, now: float) -> None:
        """`now`: Unix time."""
        if not (isinstance(self.leadership, StandsBy) and self.leadership.leader == leader):
            self.leadership = StandsBy(leader, now)
        self.clear(STARTING)

    def lead(self, term: int, now: float) -> None:
        """A former standby becomes ready again when its service calls `ready`. `now`: Unix time."""
        if self.standing_by:
            self.wait_for(STARTING, "is starting")
        self.leadership = Leads(term, now)

    def check(self, key: str, why: Callable[[], str]) -> None:
        """`why` is called at each request: why this part is not ready, empty if it is."""
        self._known[key] = None
        self._checks[key] = why

    def checks(self) -> dict[str, str]:
        """Why each known key is not ready; empty if it is."""
        found = {key: why() for key, why in self._checks.items()} | self._reasons
        return {key: found.get(key, "") for key in self._known}

    def reasons(self) -> list[str]:
        """One line each; empty if the process is ready."""
        return [f"{key}: {why}" for key, why in self.checks().items() if why]


class SharedHealth(Health):
    """Of a process with several services: ready when all are. Their checks are named `queue.nats` and so on."""

    def __init__(self, services: Mapping[str, Health]) -> None:
        super().__init__()
        self.ready()
        self._services = services

    @property
    def role(self) -> str:
        return "; ".join(f"{service} {health.role}" for service, health in self._services.items() if health.role)

    @property
    def standing_by(self) -> bool:
        """Never: whether a service does is asked of that one."""
        return False

    def checks(self) -> dict[str, str]:
        return {
            f"{service}.{key}": why
            for service, health in self._services.items()
            for key, why in health.checks().items()
        }


class Watchdog:
    """Expects messages of a peer: registers the check `key`, which reports `missing` after PATIENCE without `reset`.

    It runs from the start.
    """

    def __init__(self, health: Health, clock: Callable[[], float], key: str, missing: str) -> None:
        self._clock = clock
        self._missing = missing
        self._since: float | None = clock()
        health.check(key, self.problem)

    def start(self) -> None:
        """Expect a message from now on; does nothing if it runs already."""
        if self._since is None:
            self._since = self._clock()

    def stop(self) -> None:
        """No message is expected any more."""
        self._since = None

    def reset(self) -> None:
        """A message has come; expect the next one."""
        self._since = self._clock()

    def problem(self) -> str:
        waited = 0.0 if self._since is None else self._clock() - self._since
        return f"{self._missing} for {waited:.0f} s" if waited > PATIENCE else ""


@dataclass(slots=True)
class Reported:
    """What a service adds to the status of its process (`shared/messages/status.py`).

    `positions`: how far it has read or written. `peers`: the names of the processes whose heartbeats it hears.
    """

    positions: dict[str, Callable[[], int]] = field(default_factory=dict)
    peers: Callable[[], Iterable[str]] = tuple


STEADY_CLOCK: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Monotonic; on Linux it also counts the time in which the machine is suspended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """`name`: this process's, unique among processes of its service. `http_url`: of its endpoints."""

    service: str
    name: str
    settings: Settings
    bus: Bus
    telemetry: Telemetry
    health: Health
    http_url: str
    validates: bool = False
    """Whether cores validate themselves after every event."""
    clock: Callable[[], float] = STEADY_CLOCK
    """Seconds, for deadlines and durations; comparable only within this process."""
    wall: Callable[[], float] = time.time
    """Unix time, for people and Kubernetes objects. May be wrong, and may jump."""
    api_clock: ApiClock = field(default_factory=ApiClock)
    reported: Reported = field(default_factory=Reported)
    leases: LeaseThread = field(default_factory=LeaseThread)
    """Shared by the services of a process."""

    def date(self, at: float) -> float:
        """The Unix time that corresponds to a time of `clock`."""
        return self.wall() - (self.clock() - at)

    @property
    def log(self) -> logging.Logger:
        return self.telemetry.log

    @property
    def fault(self) -> Fault:
        return self.telemetry.fault

    @property
    def metrics(self) -> Metrics:
        return self.telemetry.metrics

    @property
    def tracer(self) -> Tracer:
        return self.telemetry.tracer
