"""Normalisers: how a raw score becomes one from 0 to 100, given the lowest and highest raw score of all feasible nodes.

A range is all that a normaliser may know of the other nodes, because ranges can be merged over shards.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.int64]
Normalizer = Callable[[Scores, int, int], Scores]

MAX_NODE_SCORE = 100


def scale_to_highest(raw: Scores, low: int, high: int) -> Scores:
    """The highest raw score becomes 100, and nought stays nought."""
    return raw if high <= 0 else MAX_NODE_SCORE * raw // high


def scale_to_highest_reversed(raw: Scores, low: int, high: int) -> Scores:
    """The highest raw score becomes nought, and nought becomes 100."""
    return np.full_like(raw, MAX_NODE_SCORE) if high <= 0 else MAX_NODE_SCORE - MAX_NODE_SCORE * raw // high
