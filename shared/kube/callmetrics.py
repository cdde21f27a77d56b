"""How many calls to the API server, how long they took and how they ended; under the names that client-go has."""

from prometheus_client import Counter, Histogram

from shared.telemetry.metrics import Metrics


class CallMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._total = metrics.counter(
            "rest_client_requests_total", "Calls to the API server by method and status", ("method", "code")
        )
        self._seconds = metrics.histogram(
            "rest_client_request_duration_seconds", "How long calls to the API server take, retries included", ("verb",)
        )
        self._counters: dict[tuple[str, int], Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def count(self, method: str, status: int, seconds: float) -> None:
        """`status` 0: there was no answer."""
        counter = self._counters.get((method, status))
        if counter is None:
            code = str(status) if status else "<error>"
            counter = self._counters[method, status] = self._total.labels(method, code)
        counter.inc()
        histogram = self._histograms.get(method)
        if histogram is None:
            histogram = self._histograms[method] = self._seconds.labels(method)
        histogram.observe(seconds)
