"""The worker's metrics, under kube-scheduler's names where it has the same."""

from services.worker.core import WorkerCore
from shared.telemetry.metrics import GrowingSums, Metrics

PLUGIN_SECONDS = tuple(0.00001 * 1.5**i for i in range(20))


class WorkerMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._nodes = metrics.gauge("flotilla_worker_nodes", "Nodes of the shards that this worker holds.")
        self._shards = metrics.gauge("flotilla_worker_shards", "Shards that this worker holds.")
        self.reloads = metrics.counter("flotilla_worker_reloads_total", "Times its shards were loaded whole.")
        self.refused = metrics.counter("flotilla_worker_refused_total", "Messages that were not taken.")
        self.answer_seconds = metrics.histogram(
            "flotilla_worker_answer_duration_seconds", "From an ask's arrival to its answer."
        )
        self._evaluations = GrowingSums(
            metrics.counter(
                "scheduler_plugin_evaluation_total",
                "Classes of pods that a plugin has judged on this worker's nodes.",
                ["plugin", "extension_point", "profile"],
            )
        )
        self._seconds = metrics.histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration of a plugin for a class, or for all changed nodes of this worker, of a tenth of them.",
            ["plugin", "extension_point", "status"],
            buckets=PLUGIN_SECONDS,
        )

    def show(self, core: WorkerCore) -> None:
        self._nodes.set(core.node_count)
        self._shards.set(len(core.shards))
        for profile, meter in core.meters.items():
            runs = meter.evaluations().items()
            self._evaluations.show({(plugin, point, profile): count for (plugin, point), count in runs})
            while meter.timings:
                timing = meter.timings.popleft()
                self._seconds.labels(timing.plugin, timing.point, timing.status).observe(timing.seconds)
