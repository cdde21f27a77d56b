"""The snapshot's metrics, under kube-scheduler's names where it has the same, and the traces of commits."""

from services.snapshot.core import SnapshotCore
from shared.messages.state import Commit, Committed
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import TraceContext, Tracer


class SnapshotMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._size = metrics.gauge(
            "scheduler_cache_size", "Nodes, pods, assumed and nominated pods, and other objects in the cache.", ["type"]
        )
        self.conflicts = metrics.counter(
            "flotilla_commit_conflicts_total", "Decisions that were rejected because the state had changed."
        )
        self.decisions = metrics.counter("flotilla_commit_decisions_total", "Decisions that were applied.")
        self.faults = metrics.counter(
            "flotilla_worker_faults_total", "Proposals that were invalid when they were made.", ["worker", "reason"]
        )
        self.misstated = metrics.counter(
            "flotilla_commit_faults_total", "Decisions rejected because the pod is not what the commit said."
        )
        self._closed_nodes = metrics.gauge(
            "flotilla_closed_nodes", "Nodes that get no further pod, as they or a pod on them cannot be read."
        )
        self.stale = metrics.counter(
            "flotilla_stale_pods_total", "Old versions of pods, without their node, that were ignored."
        )
        self.unfenced = metrics.gauge(
            "flotilla_unfenced_pods",
            "Pending pods that this term began without fencing, as the API server refuses to change them.",
        )
        self._waiting_orders = metrics.gauge("flotilla_orders_waiting", "Binding orders that no binder has room for.")

    def show(self, core: SnapshotCore, waiting_orders: int) -> None:
        for kind, count in core.cluster.counts().items():
            self._size.labels(kind).set(count)
        self._closed_nodes.set(len(core.cluster.nodes.closed))
        self._waiting_orders.set(waiting_orders)


class CommitSpans:
    """Records a span for each commit, and one in the trace of each of its pods that is sampled or rejected."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._begun: tuple[Commit, TraceContext | None, float] | None = None

    def begin(self, commit: Commit, parent: TraceContext | None, now: float) -> None:
        if self._begun is None or (commit.epoch, commit.number) != (self._begun[0].epoch, self._begun[0].number):
            self._begun = commit, parent, now

    def end(self, committed: Committed, now: float) -> int:
        """Returns how many decisions were applied; 0 for a repeated answer."""
        if self._begun is None:
            return 0
        commit, parent, begun_at = self._begun
        if (committed.epoch, committed.number) != (commit.epoch, commit.number):
            return 0
        self._begun = None
        if self._tracer.enabled:
            self._record(commit, parent, committed, begun_at, now)
        decisions, rejected = commit.decisions, {conflict.uid for conflict in committed.conflicts}
        return sum(decision.uid not in rejected for decision in decisions) if rejected else len(decisions)

    def _record(
        self, commit: Commit, parent: TraceContext | None, committed: Committed, begun_at: float, now: float
    ) -> None:
        tracer, decisions = self._tracer, commit.decisions
        context = tracer.new(False) if parent is None else tracer.child(parent)
        rejected = {conflict.uid: conflict.reason for conflict in committed.conflicts}
        attributes = {"round": committed.number, "decisions": len(decisions), "conflicts": len(rejected)}
        tracer.record("commit", context, begun_at, now, parent=parent, attributes=attributes)
        for decision in decisions:
            pod, reason = tracer.pod(decision.uid), rejected.get(decision.uid, "")
            if pod.sampled or reason:
                tracer.record(
                    "assume",
                    tracer.child(pod),
                    begun_at,
                    now,
                    parent=pod,
                    attributes={"pod": decision.key, "node": decision.node},
                    links=[context],
                    failed=reason,
                )
