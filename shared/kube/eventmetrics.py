"""What becomes of Events."""

from shared.kube.eventseries import Fate
from shared.telemetry.metrics import Metrics


class EventMetrics:
    """`crowded` and `failed` are also for what is written of a pod beside its Events."""

    def __init__(self, metrics: Metrics) -> None:
        dropped = metrics.counter(
            "flotilla_events_dropped_total",
            "Events and conditions that were not written: too many waited, or there were too many about one pod.",
            ("reason",),
        )
        self.crowded = dropped.labels(Fate.CROWDED.value)
        self.spam = dropped.labels(Fate.SPAM.value)
        self.failed = metrics.counter(
            "flotilla_events_failed_total", "Events and conditions that the API server did not take."
        )
        self.counted = metrics.counter(
            "flotilla_events_counted_total", "Repeats of Events that were counted in a series, and not written each."
        )
        self.waiting = metrics.gauge("flotilla_events_waiting", "Events that wait for their turn to be written.")
