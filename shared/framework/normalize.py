"""Normalisers: how a raw score becomes one from 0 to 100, given the lowest and highest raw score of all feasible nodes.

A range is all that a normaliser may know of the other nodes, because ranges can be merged over shards.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.int64]

MAX_NODE_SCORE = 100


class Normalizer(Protocol):
    def __call__(self, raw: Scores, low: int, high: int) -> Scores: ...


@dataclass(frozen=True, slots=True)
class ScaleToHighest:
    """The highest raw score becomes 100, and nought stays nought; `reversed`, they change places."""

    reversed: bool = False

    def __call__(self, raw: Scores, low: int, high: int) -> Scores:
        scaled = raw if high <= 0 else MAX_NODE_SCORE * raw // high
        return MAX_NODE_SCORE - scaled if self.reversed else scaled
