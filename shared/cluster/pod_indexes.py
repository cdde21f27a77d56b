"""Indexes of a table's placed pods: label classes, and affinity terms.

A selector sees a pod's namespace, its labels and whether it is terminating. Pods that agree in these form a *label
class*; a selector is matched once per class, however many pods it has. Pods of one workload have equal affinity terms,
so a cluster has few distinct ones: each is matched once, however many pods have it, and knows the rows of these.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from shared.model.individual_labels import read_by_selector
from shared.model.load import PodLoad, PodTerm


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

    def add(self, label_class: LabelClass, row: int, pods: int = 1) -> None:
        number = self._ids.get(label_class)
        if number is None:
            if self._free:
                number = self._free.pop()
            else:
                number = len(self._counts)
                self._counts.append({})
            self._ids[label_class] = number
        counts = self._counts[number]
        counts[row] = counts.get(row, 0) + pods

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


MAX_CHANGES = 1 << 12
"""Appearances and removals of terms that are remembered."""


class TermCounts:
    """`generation` rises when a term first appears, or its last pod goes."""

    def __init__(self) -> None:
        self._changes: list[tuple[PodTerm, bool]] = []
        self._forgotten = 0
        self._counted: dict[bytes, tuple[PodTerm, dict[int, int]]] = {}
        self._naming: dict[str, dict[bytes, None]] = {}
        self._selecting: dict[bytes, None] = {}
        self.individual_labels: Counter[str] = Counter()
        """Those by which terms select pods, with the number of these terms."""

    def __len__(self) -> int:
        return len(self._counted)

    def __iter__(self) -> Iterator[tuple[PodTerm, Mapping[int, int]]]:
        """The distinct terms, with the number of their pods by row; a pod with a term twice counts twice."""
        return iter(self._counted.values())

    def about(self, namespace: str) -> Iterator[tuple[PodTerm, Mapping[int, int]]]:
        """The terms that may select pods of a namespace: those that name it, or select namespaces by labels."""
        naming = self._naming.get(namespace, _NONE)
        yield from (self._counted[key] for key in naming)
        yield from (self._counted[key] for key in self._selecting if key not in naming)

    @property
    def generation(self) -> int:
        return self._forgotten + len(self._changes)

    def since(self, generation: int) -> Sequence[tuple[PodTerm, bool]] | None:
        """The terms that appeared (or, if False, went) since then, in order; None if that is too long ago."""
        return None if generation < self._forgotten else self._changes[generation - self._forgotten :]

    def add(self, terms: Sequence[bytes], row: int, pods: int = 1) -> None:
        """Count pods with these terms, encoded by `encode_terms`, that are placed on a row."""
        for key in terms:
            counted = self._counted.get(key)
            if counted is None:
                counted = self._counted[key] = (_TERM.decode(key), {})
                for namespace in counted[0].namespaces:
                    self._naming.setdefault(namespace, {})[key] = None
                if counted[0].namespace_selector is not None:
                    self._selecting[key] = None
                self._note(counted[0], True)
            counted[1][row] = counted[1].get(row, 0) + pods

    def remove(self, terms: Sequence[bytes], row: int) -> None:
        for key in terms:
            term, counts = self._counted[key]
            if counts[row] > 1:
                counts[row] -= 1
                continue
            del counts[row]
            if not counts:
                del self._counted[key]
                for namespace in term.namespaces:
                    del self._naming[namespace][key]
                    if not self._naming[namespace]:
                        del self._naming[namespace]
                self._selecting.pop(key, None)
                self._note(term, False)

    def _note(self, term: PodTerm, appeared: bool) -> None:
        for label in read_by_selector(term.selector):
            self.individual_labels[label] += 1 if appeared else -1
        self._changes.append((term, appeared))
        if len(self._changes) > MAX_CHANGES:
            self._forgotten += MAX_CHANGES // 2
            del self._changes[: MAX_CHANGES // 2]


def encode_terms(terms: Sequence[PodTerm]) -> tuple[bytes, ...]:
    return tuple(_ENCODER.encode(term) for term in terms)


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_TERM = msgspec.msgpack.Decoder(PodTerm)
_NONE: Mapping[bytes, None] = {}
