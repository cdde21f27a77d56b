"""Context: what a service is given by its host."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.bus import Bus
from shared.config.settings import Settings
from shared.runtime.apiclock import ApiClock
from shared.runtime.health import Health
from shared.telemetry import Telemetry
from shared.telemetry.fault import Fault
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """`name` is this process's among its like; `http_url` is where its endpoints are."""

    service: str
    name: str
    settings: Settings
    bus: Bus
    telemetry: Telemetry
    health: Health
    http_url: str
    validates: bool = False
    """Cores are to check themselves after every event."""
    clock: Callable[[], float] = time.monotonic
    """Seconds for deadlines and durations; only ever compared with itself, in this process."""
    wall: Callable[[], float] = time.time
    """Seconds since 1970, for people and for Kubernetes' objects. May be wrong, and may be set."""
    api_clock: ApiClock = field(default_factory=ApiClock)

    def date(self, at: float) -> float:
        """The Unix time of a moment of `clock`, by the wall clock as it is now."""
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
