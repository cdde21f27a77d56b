"""What the watcher counts."""

from collections.abc import Mapping

from prometheus_client import Counter

from shared.messages.watch import Kind
from shared.telemetry.metrics import Metrics


class WatchMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._events = metrics.counter(
            "flotilla_watch_events_total",
            "Objects that the API server told of: LISTED, ADDED, MODIFIED or DELETED.",
            ("kind", "type"),
        )
        self._counters: dict[tuple[Kind, str], Counter] = {}
        self.listings = metrics.counter("flotilla_watch_listings_total", "Listings that were completed.", ("kind",))
        self.asked = metrics.counter("flotilla_watch_relists_asked_total", "Listings that somebody asked for.")
        self.troubles = metrics.counter(
            "flotilla_watch_troubles_total", "Lists and watches that failed and were tried again.", ("kind",)
        )
        self.unreadable = metrics.counter(
            "flotilla_watch_unreadable_total",
            "Objects that cannot be read whole, each problem once.",
            ("kind",),
        )
        self.stale = metrics.counter(
            "flotilla_watch_stale_total",
            "Lists and watches that were refused, as they went back in time.",
            ("kind",),
        )
        self.held_up = metrics.counter(
            "flotilla_watch_held_up_seconds_total", "How long the API server was not read, as others were behind."
        )
        self.lag = metrics.histogram(
            "flotilla_watch_lag_seconds", "From reading what the API server says to handing it to the bus."
        )

    def count(self, kind: Kind, types: Mapping[str, int]) -> None:
        for type_, number in types.items():
            counter = self._counters.get((kind, type_))
            if counter is None:
                counter = self._counters[kind, type_] = self._events.labels(kind, type_)
            counter.inc(number)
