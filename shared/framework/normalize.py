"""Normalisers: how a raw score becomes one from 0 to 100, given the lowest and highest raw score of all feasible nodes.

A range is all that a normaliser may know of the other nodes, because ranges can be merged over shards.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flotilla.results import MAX_NODE_SCORE

Scores = NDArray[np.int64]


class ScoreOutOfRange(ValueError):
    """A plugin's score, after normalising, is not from 0 to 100."""

    def __init__(self, plugin: str, score: int) -> None:
        super().__init__(f"plugin {plugin!r} returns an invalid score {score}, it should be from 0 to {MAX_NODE_SCORE}")


class Normalizer(Protocol):
    def __call__(self, raw: Scores, low: int, high: int) -> Scores: ...


@dataclass(frozen=True, slots=True)
class ScaleToHighest:
    """The highest raw score becomes 100, and nought stays nought; `reversed`, they change places."""

    reversed: bool = False

    def __call__(self, raw: Scores, low: int, high: int) -> Scores:
        scaled = raw if high <= 0 else MAX_NODE_SCORE * raw // high
        return MAX_NODE_SCORE - scaled if self.reversed else scaled
