"""SpanSink: exports spans to an OTLP/HTTP collector, by a bounded queue and a thread. Failures affect nothing else."""

import logging
import threading

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from shared.telemetry.logs import QUIET_SECONDS, AtMostEvery

TRACES_PATH = "/v1/traces"
MAX_WAITING = 4096
"""Waiting spans; with more, the oldest are dropped."""
BATCH = 512
"""Spans in one request."""
DELAY_MILLISECONDS = 1000.0
"""Milliseconds between two requests."""
EXPORT_SECONDS = 3.0
"""Seconds for one batch, retries included."""
CLOSE_SECONDS = 1.5
"""Seconds for the last request when the process ends."""
LAST_SECONDS = 0.5
"""Seconds to notice that the time is over."""


class _Exporter(OTLPSpanExporter):
    """May be shut down twice: when the time is over, and by the processor."""

    def shutdown(self) -> None:
        if not self._shutdown:
            super().shutdown()  # type: ignore[no-untyped-call]


class SpanSink:
    def __init__(self, endpoint: str) -> None:
        """`endpoint`: a collector's base URL, as in OTEL_EXPORTER_OTLP_ENDPOINT."""
        _quieten_exporter()
        self._exporter = _Exporter(endpoint=endpoint.rstrip("/") + TRACES_PATH, timeout=EXPORT_SECONDS)
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=MAX_WAITING,
            schedule_delay_millis=DELAY_MILLISECONDS,
            max_export_batch_size=BATCH,
        )

    def put(self, span: ReadableSpan) -> None:
        self._processor.on_end(span)

    def close(self) -> None:
        """Spans that cannot be sent within CLOSE_SECONDS are lost, and a request in progress is abandoned."""
        closer = threading.Thread(target=self._processor.shutdown, daemon=True)
        closer.start()
        closer.join(CLOSE_SECONDS)
        if closer.is_alive():
            self._exporter.shutdown()
            closer.join(LAST_SECONDS)


def _quieten_exporter() -> None:
    """Log an unreachable collector now and then, not for every batch and retry."""
    for name in ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal"):
        logger = logging.getLogger(name)
        if not any(isinstance(known, AtMostEvery) for known in logger.filters):
            logger.addFilter(AtMostEvery(QUIET_SECONDS))
