"""The watcher's metrics and spans. Traces of pods begin here."""

from collections import defaultdict
from collections.abc import Iterable

from shared.messages.watch import Kind, PodChange, WatchBeat, Watched
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer


class WatchMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._events = metrics.counter(
            "flotilla_watch_events_total",
            "Objects that the API server sent: LISTED, ADDED, MODIFIED or DELETED.",
            ("kind", "type"),
        )
        self.listings = metrics.counter("flotilla_watch_listings_total", "Completed listings.", ("kind",))
        self.asked = metrics.counter("flotilla_watch_relists_asked_total", "Listings that followers requested.")
        self.troubles = metrics.counter(
            "flotilla_watch_troubles_total", "Lists and watches that failed and were retried.", ("kind",)
        )
        self.unreadable = metrics.counter(
            "flotilla_watch_unreadable_total",
            "Objects that cannot be read completely, each problem once.",
            ("kind",),
        )
        self.stale = metrics.counter(
            "flotilla_watch_stale_total",
            "Lists and watches refused because they went back in time.",
            ("kind",),
        )
        self.held_up = metrics.counter(
            "flotilla_watch_held_up_seconds_total",
            "How long reading from the API server paused because followers were behind.",
        )
        self.lag = metrics.histogram(
            "flotilla_watch_lag_seconds", "From reading a change from the API server to handing it to the bus."
        )

    def count(self, kind: Kind, types: Iterable[str]) -> None:
        counts: defaultdict[str, int] = defaultdict(int)
        for type_ in types:
            counts[type_] += 1
        for type_, number in counts.items():
            self._events.labels(kind, type_).inc(number)


class WatchSpans:
    def __init__(self, tracer: Tracer, schedulers: frozenset[str]) -> None:
        self._tracer = tracer
        self._schedulers = schedulers

    def told(self, messages: Iterable[Watched | WatchBeat], began: float, now: float) -> None:
        """Record, for each pending pod in these messages, the span from reading it (`began`) to handing it to the bus
        (`now`).
        """
        if not self._tracer.enabled:
            return
        for message in messages:
            for change in message.changes if isinstance(message, Watched) else ():
                if isinstance(change, PodChange) and self._waits(change):
                    self._record(change, began, now)

    def _waits(self, change: PodChange) -> bool:
        gone = change.gone or change.finished
        return not gone and not change.node and change.scheduler in self._schedulers

    def _record(self, change: PodChange, began: float, now: float) -> None:
        pod = self._tracer.pod(change.uid)
        if pod.sampled:
            attributes = {"pod": f"{change.namespace}/{change.name}"}
            span = self._tracer.child(pod)
            self._tracer.record("watch", span, began, now, parent=pod, attributes=attributes)
