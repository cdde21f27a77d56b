"""The affinity terms of placed pods, counted together.

Pods of one workload carry equal terms, so a cluster has few different ones: each is matched once, however many pods
carry it, and knows on which rows these are.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from shared.cluster.load import PodTerm


class TermCounts:
    """`generation` rises when a term appears that no placed pod had, or the last pod with one goes."""

    def __init__(self) -> None:
        self.generation = 0
        self._counted: dict[bytes, tuple[PodTerm, dict[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._counted)

    def __iter__(self) -> Iterator[tuple[PodTerm, Mapping[int, int]]]:
        """Each distinct term, with the number of pods that carry it by row; one that carries it twice counts twice."""
        return iter(self._counted.values())

    def add(self, terms: Sequence[bytes], row: int) -> None:
        """A pod with these terms, encoded by `encode_terms`, is on a row now."""
        for key in terms:
            counted = self._counted.get(key)
            if counted is None:
                counted = self._counted[key] = (_TERM.decode(key), {})
                self.generation += 1
            counted[1][row] = counted[1].get(row, 0) + 1

    def remove(self, terms: Sequence[bytes], row: int) -> None:
        for key in terms:
            counts = self._counted[key][1]
            if counts[row] > 1:
                counts[row] -= 1
                continue
            del counts[row]
            if not counts:
                del self._counted[key]
                self.generation += 1


def encode_terms(terms: Sequence[PodTerm]) -> tuple[bytes, ...]:
    return tuple(_ENCODER.encode(term) for term in terms)


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_TERM = msgspec.msgpack.Decoder(PodTerm)
