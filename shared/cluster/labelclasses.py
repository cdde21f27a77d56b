"""Pods that selectors cannot tell apart, counted together.

A selector sees a pod's namespace, its labels and whether it is terminating. Pods that agree in these form a *label
class*; a selector is matched once per class, however many pods it has.
"""

from collections.abc import Callable

import msgspec

from shared.model.load import PodLoad


class LabelClass(msgspec.Struct, frozen=True, gc=False):
    namespace: str
    labels: tuple[tuple[str, str], ...]
    terminating: bool

    def label_map(self) -> dict[str, str]:
        return dict(self.labels)


Predicate = Callable[[LabelClass], bool]


class LabelClasses:
    """Interns label classes, and counts for each its pods by row."""

    def __init__(self) -> None:
        self._ids: dict[LabelClass, int] = {}
        self._free: list[int] = []
        self._counts: list[dict[int, int]] = []

    def __len__(self) -> int:
        return len(self._ids)

    def class_of(self, load: PodLoad) -> LabelClass:
        return LabelClass(load.namespace, tuple(sorted(load.labels.items())), load.terminating)

    def add(self, label_class: LabelClass, row: int) -> None:
        number = self._ids.get(label_class)
        if number is None:
            number = self._intern(label_class)
        counts = self._counts[number]
        counts[row] = counts.get(row, 0) + 1

    def remove(self, label_class: LabelClass, row: int) -> None:
        number = self._ids[label_class]
        counts = self._counts[number]
        if counts[row] > 1:
            counts[row] -= 1
            return
        del counts[row]
        if not counts:
            del self._ids[label_class]
            self._free.append(number)

    def counts(self, wanted: Predicate) -> dict[int, int]:
        """Row -> number of its pods whose class `wanted` accepts."""
        total: dict[int, int] = {}
        for label_class, number in self._ids.items():
            if wanted(label_class):
                for row, count in self._counts[number].items():
                    total[row] = total.get(row, 0) + count
        return total

    def _intern(self, label_class: LabelClass) -> int:
        if self._free:
            number = self._free.pop()
        else:
            number = len(self._counts)
            self._counts.append({})
        self._ids[label_class] = number
        return number
