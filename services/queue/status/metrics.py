"""The queue's metrics: kube-scheduler's, by their names, labels and buckets."""

from collections import Counter as Counts
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import Counter

from services.queue.core import QueueCore
from services.queue.events import ClusterChange, Ended, PodGone, PodPending, Seen
from services.queue.happenings import label
from services.queue.places import Place
from services.queue.scheduling.scheduling_queue import ADDED, UPDATED
from services.queue.tally import QUEUES
from shared.telemetry.metrics import Metrics

SLI_BUCKETS = [0.01 * 2**i for i in range(20)]
HINT_BUCKETS = [0.00001 * 1.5**i for i in range(20)]
EVENT_BUCKETS = [0.0001 * 2**i for i in range(12)]
ATTEMPT_BUCKETS = [2.0**i for i in range(5)]
MOST_ATTEMPTS = 15
"""From here on, attempts have one label in common."""
DELETED = "UnschedulablePodDelete"
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
        self.stale = metrics.counter(
            "flotilla_stale_pods_total", "Pods refused because the watch showed them without the node that they are on."
        )
        self._pod_attempts = metrics.histogram(
            "scheduler_pod_scheduling_attempts", "Attempts until a pod was scheduled.", buckets=ATTEMPT_BUCKETS
        )
        self._sli = metrics.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From a pod's first being active until it was seen bound.",
            ["attempts"],
            buckets=SLI_BUCKETS,
        )

        self._after_flush = _Growing(
            metrics.counter(
                "scheduler_pod_scheduled_after_flush_total",
                "Pods that were scheduled by an attempt that nothing but the time limit gave them.",
                [],
            )
        )
        self._hints = metrics.histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "How long plugins take to tell whether an event helps a pod.",
            ["plugin", "event", "hint"],
            buckets=HINT_BUCKETS,
        )
        self._away = metrics.gauge(
            "scheduler_inflight_events",
            "Events that are remembered for pods which cycle or a binder has, and (PodPopped) how many these are.",
            ["event"],
        )
        self._away_shown: set[str] = set()
        self._handling = metrics.histogram(
            "scheduler_event_handling_duration_seconds",
            "Of events of the cluster; those that come in one message share the time evenly.",
            ["event"],
            buckets=EVENT_BUCKETS,
        )

    def labels(self, seen: Iterable[Seen], core: QueueCore) -> list[str]:
        """Of the events among them; `core` has not been told yet."""
        found = []
        for one in seen:
            match one:
                case ClusterChange(event=event):
                    found.append(label(event))
                case PodPending(pod=pod):
                    found.append(ADDED if core.place_of(pod.uid) is None else UPDATED)
                case PodGone(uid=uid) if core.place_of(uid) is not None:
                    found.append(DELETED)
        return found

    def handled(self, labels: Sequence[str], seconds: float) -> None:
        """All of them together took so long."""
        for each, count in Counts(labels).items():
            handling = self._handling.labels(each)
            for _ in range(count):
                handling.observe(seconds / len(labels))

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
        self._after_flush.show({(): tally.scheduled_after_flush})
        self._show_away(core.inflight_events())
        while tally.hints:
            taken = tally.hints.popleft()
            self._hints.labels(taken.plugin, taken.event, taken.answer).observe(taken.seconds)

    def _show_away(self, counts: Mapping[str, int]) -> None:
        self._away_shown |= counts.keys()
        for event in self._away_shown:
            self._away.labels(event).set(counts.get(event, 0))


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
