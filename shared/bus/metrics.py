"""Metrics of the bus, by subject pattern without process names."""

from functools import lru_cache

from shared.bus.subjects import pattern
from shared.bus.wire import Refusal, Silence
from shared.telemetry.metrics import Metrics

REPLY = "reply"


class Traffic:
    """Messages of one subject in one direction."""

    __slots__ = ("_bytes", "_messages")

    def __init__(self, metrics: "BusMetrics", direction: str, subject: str) -> None:
        self._messages = metrics.messages.labels(direction, subject)
        self._bytes = metrics.bytes.labels(direction, subject)

    def count(self, size: int) -> None:
        self._messages.value += 1
        self._bytes.value += size


class BusMetrics:
    def __init__(self, metrics: Metrics) -> None:
        counter = metrics.counter
        ways = ("direction", "subject")
        self.messages = counter("flotilla_bus_messages_total", "Messages received and sent.", ways)
        self.bytes = counter("flotilla_bus_bytes_total", "Bytes of messages received and sent, without headers.", ways)
        self._refused = counter("flotilla_bus_refused_total", "Messages refused.", ("subject", "reason"))
        self._dropped = counter(
            "flotilla_bus_dropped_total", "Messages not sent: no connection, or no room.", ("subject",)
        )
        self._overflown = counter(
            "flotilla_bus_overflown_total", "Messages received and dropped: too many were waiting.", ("subject",)
        )
        self._forbidden = counter(
            "flotilla_bus_forbidden_total",
            "Publications and subscriptions that NATS denied: a permission is missing.",
            ways,
        )
        self._unanswered = counter("flotilla_bus_unanswered_total", "Requests without a reply.", ("subject", "reason"))
        self._gates_differ = counter(
            "flotilla_bus_feature_gates_differ_total", "Messages received of services with other feature gates."
        )
        self._lost = counter("flotilla_bus_connection_losses_total", "Lost connections.")
        self._latency = metrics.histogram(
            "flotilla_bus_request_duration_seconds", "From a request to its reply.", ("subject",)
        )
        self.received = lru_cache(maxsize=1024)(lambda subject: Traffic(self, "in", pattern(subject)))
        """The traffic of a subject."""
        self.sent = lru_cache(maxsize=1024)(lambda subject: Traffic(self, "out", pattern(subject)))

    def refused(self, subject: str, refusal: Refusal) -> None:
        self._refused.labels(pattern(subject), refusal).inc()

    def dropped(self, subject: str) -> None:
        self._dropped.labels(pattern(subject)).inc()

    def overflowed(self, subject: str) -> None:
        self._overflown.labels(pattern(subject)).inc()

    def forbidden(self, direction: str, subject: str) -> None:
        """`direction`: in NATS's words."""
        self._forbidden.labels("out" if direction == "publish" else "in", pattern(subject)).inc()

    def unanswered(self, subject: str, silence: Silence) -> None:
        self._unanswered.labels(pattern(subject), silence).inc()

    def gates_differ(self) -> None:
        self._gates_differ.inc()

    def lost(self) -> None:
        self._lost.inc()

    def answered(self, subject: str, seconds: float) -> None:
        self._latency.labels(pattern(subject)).observe(seconds)
