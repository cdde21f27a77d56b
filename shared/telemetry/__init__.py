"""What a process tells about itself: metrics, traces and logs. Knows nothing of messages or services."""

import logging
from dataclasses import dataclass

from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer


@dataclass(frozen=True, slots=True)
class Telemetry:
    metrics: Metrics
    tracer: Tracer
    log: logging.Logger
