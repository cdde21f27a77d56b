"""Prometheus metrics of this process.

Metrics that kube-scheduler has keep its names and labels; the others begin with `flotilla_`.
"""

from collections import Counter as Counts
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric

from shared.telemetry.counter import Counter
from shared.telemetry.histogram import Histogram

CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Buckets from a loopback request to a time-out."""


class Metrics:
    """One registry per service; one per process has its CPU time, memory, open files and garbage collections."""

    def __init__(self, *, of_process: bool = True) -> None:
        self.registry = CollectorRegistry()
        if of_process:
            ProcessCollector(registry=self.registry)
            GCCollector(registry=self.registry)

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(self.registry, name, help, labels)

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(name, help, labels, registry=self.registry)

    def histogram(
        self, name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        return Histogram(self.registry, name, help, labels, buckets)

    def exposition(self, names: Sequence[str] = ()) -> bytes:
        """All metrics, or the samples of these names, as clients of Prometheus let them be chosen."""
        return generate_latest(self.registry.restricted_registry(names) if names else self.registry)


class SharedMetrics(Metrics):
    """Those of a process with several services: their metrics have a label `service`."""

    def __init__(self, services: Mapping[str, Metrics]) -> None:
        super().__init__()
        self._services = services

    def exposition(self, names: Sequence[str] = ()) -> bytes:
        families: dict[str, Metric] = {}
        for service, metrics in {"": self, **self._services}.items():
            registry = metrics.registry
            for metric in (registry.restricted_registry(names) if names else registry).collect():
                family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                added = {"service": service} if service else {}
                family.samples += [sample._replace(labels={**sample.labels, **added}) for sample in metric.samples]
        return generate_latest(_Collected(families.values()))


class _Collected:
    """What generate_latest needs of a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class GrowingSums:
    """A counter that is set to growing sums, by its labels."""

    def __init__(self, counter: Counter) -> None:
        self._counter: Any = counter
        self._shown: Counts[tuple[str, ...]] = Counts()

    def show(self, sums: Mapping[tuple[str, ...], int]) -> None:
        for labels, value in sums.items():
            if (added := value - self._shown[labels]) > 0:
                (self._counter.labels(*labels) if labels else self._counter).inc(added)
                self._shown[labels] = value
