"""Histograms that cost a third of a microsecond to observe: prometheus_client's take a lock for each of their numbers.

They are for one thread, that of the event loop, which also serves them.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

INFINITY = float("inf")


class Observations:
    """What was observed with one set of labels. `bounds`: the largest values of the buckets but the last."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.counts = [0] * (len(bounds) + 1)
        """By bucket; the last one is for larger values."""
        self.sum = 0.0
        self._bounds = bounds

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    def observe_all(self, values: Sequence[float]) -> None:
        counts, bounds = self.counts, self._bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self.sum += sum(values)


class Histogram(Collector):
    """`labels` names them; without any there is one set of observations, which exists from the start."""

    def __init__(
        self, registry: CollectorRegistry, name: str, help: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self._name = name
        self._help = help
        self._labels = tuple(labels)
        self._bounds = tuple(float(bound) for bound in bounds)
        self._names: list[str] = [floatToGoString(bound) for bound in (*self._bounds, INFINITY)]  # type: ignore[no-untyped-call]
        self._observed: dict[tuple[str, ...], Observations] = {}
        self._all = Observations(self._bounds)
        if not labels:
            self._observed[()] = self._all
        registry.register(self)

    def labels(self, *values: str) -> Observations:
        """Those with these values, in the order of the labels' names."""
        observed = self._observed.get(values)
        if observed is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self._name} has the labels {self._labels}, not {values}")
            observed = self._observed.setdefault(tuple(map(str, values)), Observations(self._bounds))
        return observed

    def observe(self, value: float, times: int = 1) -> None:
        """Without labels."""
        self._all.observe(value, times)

    def describe(self) -> Iterator[HistogramMetricFamily]:
        yield HistogramMetricFamily(self._name, self._help, labels=self._labels)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        for values, observed in self._observed.items():
            total, buckets = 0, []
            for name, count in zip(self._names, observed.counts, strict=True):
                total += count
                buckets.append((name, float(total)))
            family.add_metric(values, buckets, observed.sum)
        yield family
