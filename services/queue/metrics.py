"""The queue's metrics, by kube-scheduler's names, labels and buckets; and the traces of pods."""

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Iterable, Sequence

from services.queue.core import QueueCore
from services.queue.events import PodEnded, PodGone, PodPending, PodsBound, WatchEvent
from services.queue.scheduling.cluster_event import ASSIGNED_POD_ADDED, ClusterChange, label
from services.queue.scheduling.counters import ADDED, UPDATED
from services.queue.scheduling.pod_states import IN_FLIGHT
from services.queue.scheduling.queued_pod_info import PodState
from services.queue.waiting_gangs import WaitingGangs
from shared.messages.queue import Batch
from shared.model.objects import pod_from_msgpack
from shared.telemetry.metrics import GrowingSums, Metrics
from shared.telemetry.tracing import AttributeValue, Tracer

SLI_BUCKETS = [0.01 * 2**i for i in range(20)]
PLUGIN_BUCKETS = [0.00001 * 1.5**i for i in range(20)]
HINT_BUCKETS = [0.00001 * 1.5**i for i in range(20)]
EVENT_BUCKETS = [0.0001 * 2**i for i in range(12)]
ATTEMPT_BUCKETS = [2.0**i for i in range(5)]
MAX_ATTEMPTS = 15
"""Attempts from here on share a label."""
DELETED = "UnschedulablePodDelete"
QUEUES = {
    PodState.ACTIVE: "active",
    PodState.BACKOFF: "backoff",
    PodState.ERROR_BACKOFF: "backoff",
    PodState.UNSCHEDULABLE: "unschedulable",
    PodState.GATED: "gated",
}
"""The queue of each state in scheduler_pending_pods. In scheduler_queue_incoming_pods_total, gated is unschedulable."""


GANG_PLACES = (*(state.value for state in (*QUEUES, PodState.IN_FLIGHT) if state is not PodState.GATED), "held")
"""Where a gang may be, as GroupInfo.queue_state names it."""


class QueueMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._pending = metrics.gauge("scheduler_pending_pods", "Pending pods by queue.", ["queue"])
        self._in_flight = metrics.gauge("flotilla_queue_pods", "Pods in flight or being bound.", ["place"])
        self._gangs = metrics.gauge(
            "flotilla_queue_gangs", "Gangs that are one entry of a queue, in flight or held.", ["place"]
        )
        self._gang_wait = metrics.gauge(
            "flotilla_queue_gang_longest_wait_seconds",
            "The longest that a gang there has waited so far, since a pod of it had no gate of its own.",
            ["place"],
        )
        self._gangs_rejected = metrics.gauge(
            "flotilla_queue_gangs_rejected", "Gangs of which a plugin rejected pods at their last attempt.", ["plugin"]
        )
        self._shown_plugins: set[str] = set()
        self._rejecting = metrics.gauge(
            "scheduler_unschedulable_pods", "Pods that a plugin rejected at their last attempt.", ["plugin", "profile"]
        )
        self._incoming = GrowingSums(
            metrics.counter(
                "scheduler_queue_incoming_pods_total", "Pods added to a queue, by event.", ["queue", "event"]
            )
        )
        self._attempts = GrowingSums(
            metrics.counter(
                "scheduler_schedule_attempts_total", "Scheduling attempts by result.", ["result", "profile"]
            )
        )
        self._gang_attempts = GrowingSums(
            metrics.counter(
                "scheduler_podgroup_schedule_attempts_total",
                "Attempts to schedule gangs, by result.",
                ["result", "profile"],
            )
        )
        self._refused = GrowingSums(metrics.counter("flotilla_queue_refused_total", "Messages that were refused.", []))
        self.stale = metrics.counter(
            "flotilla_stale_pods_total", "Pods refused because the watch showed them without the node that they are on."
        )
        self._pod_attempts = metrics.histogram(
            "scheduler_pod_scheduling_attempts", "Attempts until a pod was scheduled.", buckets=ATTEMPT_BUCKETS
        )
        self._sli = metrics.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from when a pod was first active until it was seen bound.",
            ["attempts"],
            buckets=SLI_BUCKETS,
        )
        self._after_flush = GrowingSums(
            metrics.counter(
                "scheduler_pod_scheduled_after_flush_total",
                "Pods scheduled by an attempt that only the time limit caused.",
                [],
            )
        )
        self._plugins = metrics.histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration of a plugin at PreEnqueue, of a tenth of the pods.",
            ["plugin", "extension_point", "status"],
            buckets=PLUGIN_BUCKETS,
        )
        self._hints = metrics.histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Duration of queueing hints.",
            ["plugin", "event", "hint"],
            buckets=HINT_BUCKETS,
        )
        self._in_flight_events = metrics.gauge(
            "scheduler_inflight_events",
            "Events kept for in-flight pods, by label, and (PodPopped) the number of in-flight pods.",
            ["event"],
        )
        self._shown_events: set[str] = set()
        self._handling = metrics.histogram(
            "scheduler_event_handling_duration_seconds",
            "Duration of event handling; events of one message share its time evenly.",
            ["event"],
            buckets=EVENT_BUCKETS,
        )

    def labels(self, events: Iterable[WatchEvent], core: QueueCore) -> list[str]:
        """The labels of events that `core` has not handled yet."""
        found = []
        for event in events:
            match event:
                case ClusterChange():
                    found.append(event.label)
                case PodsBound(pods=pods):
                    found += [label(ASSIGNED_POD_ADDED)] * len(pods)
                case PodPending(pod=pod):
                    found.append(ADDED if core.pod(pod.uid) is None else UPDATED)
                case PodGone(uid=uid) if core.pod(uid) is not None:
                    found.append(DELETED)
        return found

    def handled(self, labels: Sequence[str], seconds: float) -> None:
        """`seconds`: for all of them together."""
        counts: defaultdict[str, int] = defaultdict(int)
        for each in labels:
            counts[each] += 1
        for each, count in counts.items():
            self._handling.labels(each).observe(seconds / len(labels), count)

    def ended(self, ended: PodEnded) -> None:
        """Ignores pods that were bound without an attempt of ours."""
        if not ended.bound or not ended.attempts or ended.active_at is None:
            return
        label = str(ended.attempts) if ended.attempts < MAX_ATTEMPTS else f"{MAX_ATTEMPTS}+"
        self._pod_attempts.observe(ended.attempts)
        self._sli.labels(label).observe(max(0.0, ended.ended_at - ended.active_at))

    def show(self, core: QueueCore, now: float) -> None:
        counts, counters = core.counts(), core.counters
        pending: Counts[str] = Counts()
        for state, queue in QUEUES.items():
            pending[queue] += counts[state]
        for queue, pods in pending.items():
            self._pending.labels(queue).set(pods)
        self._show_gangs(WaitingGangs(core.groups.groups(), now))
        for state in IN_FLIGHT:
            self._in_flight.labels(state.value).set(counts[state])
        for (plugin, profile), pods in counters.rejecting.items():
            self._rejecting.labels(plugin, profile).set(pods)
        incoming: Counts[tuple[str, ...]] = Counts()
        for (state, why), pods in counters.incoming.items():
            if state in QUEUES:
                incoming["unschedulable" if state is PodState.GATED else QUEUES[state], why] += pods
        self._incoming.show(incoming)
        self._attempts.show({(result.value, profile): count for (result, profile), count in counters.attempts.items()})
        of_gangs = counters.gang_attempts
        self._gang_attempts.show({(result.value, profile): count for (result, profile), count in of_gangs.items()})
        self._refused.show({(): counters.refused})
        self._after_flush.show({(): counters.scheduled_after_flush})
        events = core.in_flight_events()
        self._shown_events |= events.keys()
        for event in self._shown_events:
            self._in_flight_events.labels(event).set(events[event])
        while core.hint_calls:
            call = core.hint_calls.popleft()
            self._hints.labels(call.plugin, call.event, call.answer).observe(call.seconds)
        while core.meter.timings:
            timing = core.meter.timings.popleft()
            self._plugins.labels(timing.plugin, timing.point, timing.status).observe(timing.seconds)

    def _show_gangs(self, gangs: WaitingGangs) -> None:
        for place in GANG_PLACES:
            self._gangs.labels(place).set(gangs.count[place])
            self._gang_wait.labels(place).set(gangs.longest.get(place, 0.0))
        self._shown_plugins |= gangs.rejected.keys()
        for plugin in self._shown_plugins:
            self._gangs_rejected.labels(plugin).set(gangs.rejected[plugin])


class PodSpans:
    """Traces how long each pod waited for an attempt, and its time from the watch until it was seen bound."""

    def __init__(self, tracer: Tracer, core: QueueCore) -> None:
        self._tracer = tracer
        self._core = core

    def popped(self, batch: Batch, now: float) -> None:
        if not self._tracer.enabled:
            return
        for queued in batch.pods:
            pod = pod_from_msgpack(queued.pod)
            root, info = self._tracer.pod(pod.uid), self._core.pod(pod.uid)
            if root.sampled and info is not None:
                attributes: dict[str, AttributeValue] = {"pod": pod.key, "attempt": queued.attempt}
                span = self._tracer.child(root)
                self._tracer.record("queue", span, info.queued_at, now, parent=root, attributes=attributes)

    def ended(self, ended: PodEnded) -> None:
        if not self._tracer.enabled:
            return
        self._tracer.record(
            "pod",
            self._tracer.pod(ended.uid),
            ended.seen_at,
            ended.ended_at,
            attributes={"pod": ended.key, "profile": ended.profile, "attempts": ended.attempts, "bound": ended.bound},
            failed="" if ended.bound or not ended.attempts else "it was deleted before it was bound",
        )
