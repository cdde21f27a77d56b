"""Context: what the host passes to a service."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.bus import Bus
from shared.config.settings import Settings
from shared.runtime.clocks import ApiClock
from shared.runtime.health import Health
from shared.telemetry import Telemetry
from shared.telemetry.fault import Fault
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer


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
    clock: Callable[[], float] = time.monotonic
    """Seconds, for deadlines and durations; comparable only within this process."""
    wall: Callable[[], float] = time.time
    """Unix time, for people and Kubernetes objects. May be wrong, and may jump."""
    api_clock: ApiClock = field(default_factory=ApiClock)

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
