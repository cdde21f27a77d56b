"""What the snapshot counts, under kube-scheduler's names where it has the same."""

from services.snapshot.core import SnapshotCore
from services.snapshot.events import WorkerFault
from shared.messages.state import Committed
from shared.telemetry.metrics import Metrics


class SnapshotMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._size = metrics.gauge(
            "scheduler_cache_size", "Nodes, pods, assumed and nominated pods, and other objects in the cache.", ["type"]
        )
        self._conflicts = metrics.counter(
            "flotilla_commit_conflicts_total", "Decisions that were not taken, as the state had changed."
        )
        self._decisions = metrics.counter("flotilla_commit_decisions_total", "Decisions that were taken.")
        self._faults = metrics.counter(
            "flotilla_worker_faults_total",
            "Answers that cannot have been right when they were given.",
            ["worker", "reason"],
        )
        self.misstated = metrics.counter(
            "flotilla_commit_faults_total", "Decisions refused because the pod is not what the commit said."
        )
        self._closed_nodes = metrics.gauge(
            "flotilla_closed_nodes", "Nodes that get no further pod, as they or a pod on them cannot be read."
        )
        self.stale = metrics.counter(
            "flotilla_stale_pods_total", "Pods refused because the watch showed them without the node that they are on."
        )
        self.unfenced = metrics.gauge(
            "flotilla_unfenced_pods",
            "Pending pods that this term began without fencing, as the API server refuses to change them.",
        )
        self._waiting_orders = metrics.gauge("flotilla_orders_waiting", "Binding orders that no binder has room for.")

    def answered(self, committed: Committed, decisions: int) -> None:
        """`decisions`: that were asked for."""
        self._conflicts.inc(len(committed.conflicts))
        self._decisions.inc(decisions)

    def at_fault(self, fault: WorkerFault) -> None:
        self._faults.labels(fault.worker, fault.kind).inc()

    def show(self, core: SnapshotCore, waiting_orders: int) -> None:
        for kind, count in core.counts().items():
            self._size.labels(kind).set(count)
        self._closed_nodes.set(core.closed_nodes)
        self._waiting_orders.set(waiting_orders)
