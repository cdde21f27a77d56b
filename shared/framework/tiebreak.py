"""Which of several equally good nodes is taken.

A total score and a tie key are packed into one integer, so that the best node is simply the largest key. By default
the tie key is a pseudo-random number drawn from the seed, the class of the pod, the node's name and the number of pods
on the node: every placement draws its node's number anew, and the draw is the same in whichever shard a node lives.
By name, for tests and golden data, the alphabetically first node wins.
"""

import numpy as np
from numpy.typing import NDArray

from shared.cluster.changes import Rows
from shared.cluster.nodetable import NodeTable, stable_hash
from shared.messages.evaluation import Ties

Keys = NDArray[np.int64]
Salts = NDArray[np.uint64]

KEY_BITS = 62
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def salt(ties: Ties, class_id: str) -> np.uint64:
    return np.uint64(stable_hash(f"{ties.seed}/{class_id}"))


def random_ties(name_hash: Salts, pods: NDArray[np.int64], salts: Salts | np.uint64, bits: int) -> Keys:
    """`bits` random bits for each node, given its name's hash and its number of pods; salts may have an axis more."""
    mixed = (name_hash + pods.view(np.uint64) * _GOLDEN) ^ salts
    mixed *= _MIX_1
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MIX_2
    ties: Keys = (mixed >> np.uint64(64 - bits)).view(np.int64)
    return ties


class NameRanks:
    """For every row, how many names come after its own: the alphabetically first node has the largest number."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._seen = -1
        self._ranks: Keys = np.zeros(0, dtype=np.int64)

    def of(self, rows: Rows | slice) -> Keys:
        table = self._table
        if self._seen != table.node_log.position:
            order = sorted(range(table.size), key=table.names.__getitem__, reverse=True)
            self._ranks = np.empty(table.size, dtype=np.int64)
            self._ranks[order] = np.arange(table.size)
            self._seen = table.node_log.position
        ranks: Keys = self._ranks[rows]
        return ranks
