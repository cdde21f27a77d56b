"""What the binder counts, under kube-scheduler's names where it has the same."""

from functools import lru_cache

from prometheus_client import Counter, Histogram

from services.binder.events import Done, Refused, Result, Took, Waited
from services.binder.eviction.eviction_state import Over
from shared.kube.eventmetrics import EventMetrics
from shared.telemetry.metrics import Metrics

POINT_SECONDS = tuple(0.0001 * 2**i for i in range(12))
PERMIT_SECONDS = tuple(0.001 * 2**i for i in range(15))
VICTIMS = tuple(float(2**i) for i in range(7))
EVICTION_SECONDS = tuple(0.01 * 2**i for i in range(20))


class BinderMetrics:
    def __init__(self, metrics: Metrics) -> None:
        points = metrics.histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "How long all plugins of an extension point take, their API calls included.",
            ("extension_point", "status", "profile"),
            POINT_SECONDS,
        )
        waits = metrics.histogram(
            "scheduler_permit_wait_duration_seconds", "How long pods wait for permits.", ("result",), PERMIT_SECONDS
        )
        calls = metrics.counter("flotilla_bind_calls_total", "Calls that bind, by how they ended.", ("result",))
        self.call_seconds = metrics.histogram("flotilla_bind_call_duration_seconds", "How long calls that bind take.")
        self.held = metrics.gauge("flotilla_binder_held", "Orders that are being carried out.")
        self.refused = metrics.counter("flotilla_binder_refused_total", "Orders and other things that were not right.")
        self.events = EventMetrics(metrics)
        self.statuses_joined = metrics.counter(
            "flotilla_statuses_joined_total",
            "Conditions and nominations that were written as one with a later one of the pod.",
        )
        self.victims = metrics.histogram(
            "scheduler_preemption_victims", "How many pods make way for one.", buckets=VICTIMS
        )
        evictions = metrics.histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "How long it takes to tell all victims of a pod to go.",
            ("result",),
            EVICTION_SECONDS,
        )
        evicted = metrics.counter(
            "scheduler_preemption_goroutines_execution_total", "Pods that others made way for.", ("result",)
        )
        # Looking up a labelled metric costs more than counting.
        self._point = lru_cache(maxsize=1024)(points.labels)
        self._wait = lru_cache(maxsize=16)(waits.labels)
        self._eviction = lru_cache(maxsize=2)(evictions.labels)
        self._evicted = lru_cache(maxsize=2)(evicted.labels)
        self._calls: dict[type[Result], Counter] = {}
        for kind in (Done, Refused):
            self._calls[kind] = calls.labels(kind.__name__.lower())
        self._unknown = calls.labels("unknown")

    def took(self, took: Took) -> None:
        histogram: Histogram = self._point(took.point, took.code, took.profile)
        histogram.observe(took.seconds)

    def waited(self, waited: Waited) -> None:
        histogram: Histogram = self._wait(waited.code)
        histogram.observe(waited.seconds)

    def called(self, result: Result, seconds: float) -> None:
        self._calls.get(type(result), self._unknown).inc()
        self.call_seconds.observe(seconds)

    def evicted(self, over: Over) -> None:
        result = "error" if over.failed else "success"
        duration: Histogram = self._eviction(result)
        duration.observe(over.seconds)
        total: Counter = self._evicted(result)
        total.inc()
