"""A process's metrics, traces, logs and fault. Knows nothing of messages or services."""

import logging
from dataclasses import dataclass, field

from shared.telemetry.fault import Fault
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer


@dataclass(frozen=True, slots=True)
class Telemetry:
    metrics: Metrics
    tracer: Tracer
    log: logging.Logger
    fault: Fault = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fault", Fault(self.metrics, self.log))
