"""The queue's metrics: kube-scheduler's, by their names, labels and buckets."""

from collections import Counter as Counts
from collections.abc import Mapping
from typing import Any

from prometheus_client import Counter

from services.queue.core import QueueCore
from services.queue.events import Ended
from services.queue.places import Place
from services.queue.tally import QUEUES
from shared.telemetry.metrics import Metrics

SLI_BUCKETS = [0.01 * 2**i for i in range(20)]
ATTEMPT_BUCKETS = [2.0**i for i in range(5)]
MOST_ATTEMPTS = 15
"""From here on, attempts have one label in common."""
PENDING = {
    "active": (Place.ACTIVE,),
    "backoff": (Place.BACKOFF, Place.ERROR_BACKOFF),
    "unschedulable": (Place.UNSCHEDULABLE,),
    "gated": (Place.GATED,),
}


class QueueMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._pending = metrics.gauge("scheduler_pending_pods", "Pods that wait, by where.", ["queue"])
        self._with_others = metrics.gauge("flotilla_queue_pods", "Pods that cycle has, or that are bound.", ["place"])
        self._rejecting = metrics.gauge(
            "scheduler_unschedulable_pods", "Pods that a plugin rejected at their last attempt.", ["plugin", "profile"]
        )
        self._incoming = _Growing(
            metrics.counter(
                "scheduler_queue_incoming_pods_total",
                "Pods that came to a queue, by what sent them.",
                ["queue", "event"],
            )
        )
        self._attempts = _Growing(
            metrics.counter("scheduler_schedule_attempts_total", "Attempts, by how they ended.", ["result", "profile"])
        )
        self._refused = _Growing(metrics.counter("flotilla_queue_refused_total", "Messages that were not taken.", []))
        self._pod_attempts = metrics.histogram(
            "scheduler_pod_scheduling_attempts", "Attempts until a pod was scheduled.", buckets=ATTEMPT_BUCKETS
        )
        self._sli = metrics.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From a pod's first being active until it was seen bound.",
            ["attempts"],
            buckets=SLI_BUCKETS,
        )

    def ended(self, ended: Ended) -> None:
        """Pods that were bound without an attempt of ours do not count."""
        if not ended.bound or not ended.attempts or ended.active_at is None:
            return
        label = str(ended.attempts) if ended.attempts < MOST_ATTEMPTS else f"{MOST_ATTEMPTS}+"
        self._pod_attempts.observe(ended.attempts)
        self._sli.labels(label).observe(max(0.0, ended.ended_at - ended.active_at))

    def show(self, core: QueueCore) -> None:
        counts, tally = core.counts(), core.tally
        for queue, places in PENDING.items():
            self._pending.labels(queue).set(sum(counts[place] for place in places))
        for place in (Place.IN_FLIGHT, Place.BINDING):
            self._with_others.labels(place.value).set(counts[place])
        for (plugin, profile), pods in tally.rejecting.items():
            self._rejecting.labels(plugin, profile).set(pods)
        incoming: Counts[tuple[str, ...]] = Counts()
        for (place, why), pods in tally.incoming.items():
            if place in QUEUES:
                incoming[QUEUES[place], why] += pods
        self._incoming.show(incoming)
        self._attempts.show({(result.value, profile): count for (result, profile), count in tally.attempts.items()})
        self._refused.show({(): tally.refused})


class _Growing:
    """A counter that is told sums."""

    def __init__(self, counter: Counter) -> None:
        self._counter: Any = counter
        self._shown: Counts[tuple[str, ...]] = Counts()

    def show(self, sums: Mapping[tuple[str, ...], int]) -> None:
        for labels, value in sums.items():
            if (grown := value - self._shown[labels]) > 0:
                (self._counter.labels(*labels) if labels else self._counter).inc(grown)
                self._shown[labels] = value
