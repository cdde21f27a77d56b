"""What the scheduling queue counts for metrics, and its reasons for moves from state to state."""

from collections import Counter
from collections.abc import Iterable

from services.queue.scheduling.queued_gang import AttemptResult
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.errors import InvariantBroken

# Reasons for moves, as kube-scheduler's metrics call them; the last five are our own.
ADDED = "UnschedulablePodAdd"
UPDATED = "UnschedulablePodUpdate"
ATTEMPT_FAILED = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POPPED_FROM_BACKOFF = "PopFromBackoffQ"
TIME_LIMIT = "UnschedulableTimeout"
ACTIVATED = "ForceActivate"
OVERDUE = "Overdue"
CYCLE_CHANGED = "CycleChanged"
DECISION_LOST = "DecisionLost"
PREEMPTION_OVER = "PreemptionOver"
REGROUPED = "GangRegrouped"


class Counters:
    """Sums since the start, for metrics."""

    def __init__(self) -> None:
        self.incoming: Counter[tuple[PodState, str]] = Counter()
        """By state and reason, the pods that came."""
        self.attempts: Counter[tuple[AttemptResult, str]] = Counter()
        """By result and profile."""
        self.gang_attempts: Counter[tuple[AttemptResult, str]] = Counter()
        """By result and profile."""
        self.rejecting: Counter[tuple[str, str]] = Counter()
        """By plugin and profile, the pods that it rejected and that have not been tried since."""
        self.scheduled_after_flush = 0
        self.refused = 0
        """Messages that were not accepted."""

    def set_gating_plugin(self, info: QueuedPodInfo, plugin: str | None) -> None:
        """The gating plugin counts as one that rejected the pod, also after its gate has opened."""
        info.gating_plugin = plugin
        if plugin and plugin not in info.unschedulable_plugins:
            if plugin not in info.pending_plugins:
                self.rejecting[plugin, info.framework.name] += 1
            info.unschedulable_plugins = (*info.unschedulable_plugins, plugin)

    def set_rejectors(self, info: QueuedPodInfo, plugins: tuple[str, ...], pending: tuple[str, ...]) -> None:
        for plugin in info.rejecting_plugins:
            self.rejecting[plugin, info.framework.name] -= 1
        info.unschedulable_plugins, info.pending_plugins = plugins, pending
        for plugin in info.rejecting_plugins:
            self.rejecting[plugin, info.framework.name] += 1

    def validate(self, pods: Iterable[QueuedPodInfo]) -> None:
        due = Counter((plugin, info.framework.name) for info in pods for plugin in info.rejecting_plugins)
        if +self.rejecting != due or min(self.rejecting.values(), default=0) < 0:
            raise InvariantBroken("pods are counted wrongly by the plugins that rejected them")
