"""Counters that cost a tenth of a microsecond to count: prometheus_client's take a lock for each number.

They are for one thread, that of the event loop, which also serves them.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class Sum:
    """What was counted with one set of labels."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount


class Counter(Collector):
    """`labels` names them; without any there is one sum, which exists from the start."""

    def __init__(self, registry: CollectorRegistry, name: str, help: str, labels: Sequence[str]) -> None:
        self._name = name
        self._help = help
        self._labels = tuple(labels)
        self._sums: dict[tuple[str, ...], Sum] = {}
        self._all = Sum()
        if not labels:
            self._sums[()] = self._all
        registry.register(self)

    def labels(self, *values: str) -> Sum:
        """The sum with these values, in the order of the labels' names."""
        found = self._sums.get(values)
        if found is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self._name} has the labels {self._labels}, not {values}")
            found = self._sums.setdefault(tuple(map(str, values)), Sum())
        return found

    def inc(self, amount: float = 1.0) -> None:
        """Without labels."""
        self._all.value += amount

    def describe(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(self._name, self._help, labels=self._labels)

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for values, found in self._sums.items():
            family.add_metric(values, found.value)
        yield family
