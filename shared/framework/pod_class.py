"""PodClass: pods that every plugin of a profile judges alike, and what a shard has computed about them.

The parts are owned by one object each, which alone writes them: Answers, Feasibility, Ranking.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flotilla.nodes import Mask
from flotilla.plugin import ClassState, Reads
from flotilla.results import Range, Status
from shared.cluster.columns import NOTHING_SEEN, ChangeLog, Rows
from shared.cluster.load_kind import LoadKind
from shared.cluster.nodetable import NodeTable
from shared.framework.narrow import NarrowLines, more_lines
from shared.framework.profile import PreFiltered
from shared.model.kinds import ObjectKind

Slots = NDArray[np.intp]


@dataclass(slots=True)
class ClassAnswers:
    """Where each plugin's answers for the class are in its ResultPool. Owned by Answers.

    `muted`: score plugins that score all nodes alike, according to the merged summary or to the pod's claims.
    """

    filter_slots: Slots
    score_slots: Slots
    muted: frozenset[int] = frozenset()


@dataclass(slots=True)
class UpTo:
    """`seen`, `node_seen`: up to which positions in the logs of loads and of node objects something was computed."""

    seen: int = NOTHING_SEEN
    node_seen: int = NOTHING_SEEN

    def forget(self, changed: set[Reads]) -> None:
        """Start over the next time: answers of plugins that read this have changed."""
        if changed:
            self.seen = NOTHING_SEEN
        if Reads.NODE in changed:
            self.node_seen = NOTHING_SEEN


@dataclass(slots=True)
class ClassFeasibility(UpTo):
    """Owned by Feasibility.

    `tallies`: for each normalized plugin that reads only node objects, how many feasible nodes have each raw score;
    so the range of raw scores is known without looking at all nodes.
    """

    count: int = 0
    tallies: dict[int, dict[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class ClassKeys(UpTo):
    """Owned by Ranking. `ranges`: those by which raw scores are normalized."""

    ranges: dict[str, Range] | None = None


@dataclass(slots=True, eq=False)
class PodClass:
    """`failure`: PreFilter failed. `score_failure`: PreScore failed, which matters with several feasible nodes only.

    `slot`: the line in the ClassRows. `objects`: the generations of the kinds of objects that plugins have read.
    `filters`, `scores`: the plugins whose Filter and Score run for it. `lasts`: as found out since it was evaluated,
    with `followed`, the index of the score plugin whose raw scores are followed in groups.
    """

    id: str
    state: ClassState
    pre: PreFiltered
    failure: Status | None
    score_failure: Status | None
    skipped_scores: frozenset[str]
    kind: LoadKind
    salt: np.uint64
    slot: int
    weights: list[int]
    objects: dict[ObjectKind, int]
    answers: ClassAnswers
    filters: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    feasibility: ClassFeasibility = field(default_factory=ClassFeasibility)
    keys: ClassKeys = field(default_factory=ClassKeys)
    lasts: bool = False
    followed: int | None = None


def by_missed(
    classes: Iterable[PodClass], position: Callable[[PodClass], int], log: ChangeLog
) -> Iterator[tuple[Rows | None, list[PodClass]]]:
    """The classes by the rows that changed since their position; one by one if that is all rows (None)."""
    groups: dict[int, list[PodClass]] = {}
    for pod_class in classes:
        groups.setdefault(position(pod_class), []).append(pod_class)
    for seen, group in groups.items():
        rows = log.since(seen)
        if rows is None:
            yield from ((None, [pod_class]) for pod_class in group)
        elif rows.size:
            yield rows, group


BLOCK = 128

Keys = NDArray[np.int64]
Item = TypeVar("Item", bound=np.generic)


class ClassRows:
    """What is known of each class about each row, a line a class.

    `settled` and `fixed` are the parts that only a changed node object can change: whether the plugins that read
    nothing else let the pod in, and their weighted scores. `feasible` and `keys` are the whole. The highest key of
    every block of rows is kept, so that the best rows are found without looking at all of them.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._free: list[int] = []
        self._used = 0
        self.keys: Keys
        self.fixed: NarrowLines
        self.feasible: Mask
        self.settled: Mask
        self._highest: Keys
        self._lay_out(4, table.capacity)

    def index(self, rows: Rows | None) -> Rows | slice:
        """How to address these rows, or all that are in use."""
        return slice(0, self._table.size) if rows is None else rows

    def acquire(self) -> int:
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._used
            self._used += 1
            if slot == self.keys.shape[0]:
                self.fixed.add_lines(slot)
                for name in ("keys", "feasible", "settled", "_highest"):
                    setattr(self, name, more_lines(getattr(self, name), slot))
        self.keys[slot] = -1
        self.feasible[slot] = False
        self._highest[slot] = -1
        return slot

    def release(self, slot: int) -> None:
        self._free.append(slot)

    def bytes_per_row_and_class(self) -> int:
        """Keys, the fixed part and two masks; what the block maxima take is little."""
        return self.keys.itemsize + self.fixed.bytes_per_number + self.feasible.itemsize + self.settled.itemsize

    def bytes_per_row(self) -> int:
        """Of all lines in use."""
        return (self._used - len(self._free)) * self.bytes_per_row_and_class()

    def fit(self, capacity: int) -> None:
        """The table grew: every line starts over."""
        if self.feasible.shape[1] != capacity:
            self._lay_out(self.keys.shape[0], capacity)

    def write(self, slots: list[int], rows: Rows | None, keys: Keys) -> None:
        """New keys for some rows, ascending (all when None), of some lines."""
        if rows is None:
            for slot, line in zip(slots, keys, strict=True):
                self.keys[slot, : self._table.size] = line
                self._highest[slot] = self._blocks[slot].max(axis=1)
            return
        blocks = rows // BLOCK
        if len(slots) == 1:
            slot = slots[0]
            self.keys[slot, rows] = keys[0]
            touched = blocks if len(blocks) == 1 else self._distinct(blocks)
            self._highest[slot, touched] = self._blocks[slot][touched].max(axis=1)
            return
        lines = np.array(slots, dtype=np.intp)[:, None]
        before = self.keys[lines, rows]
        self.keys[lines, rows] = keys
        first = np.flatnonzero(np.append(True, blocks[1:] != blocks[:-1]))
        touched = blocks[first]
        was, now = (np.maximum.reduceat(each, first, axis=1) for each in (before, keys))
        highest = self._highest[lines, touched]
        self._highest[lines, touched] = np.maximum(highest, now)
        fallen = np.nonzero((was == highest) & (now < highest))  # another row may be the highest of its block now
        slot_of, block_of = lines[fallen[0], 0], touched[fallen[1]]
        self._highest[slot_of, block_of] = self._blocks[slot_of, block_of].max(axis=1)

    def best(self, slot: int, wanted: int, among: Mask | None = None) -> tuple[Rows, Keys]:
        """The `wanted` rows of a line with the highest keys, in no order; fewer where fewer are feasible."""
        if not wanted:
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64)
        if among is not None:
            rows = np.flatnonzero(among)
            keys = self.keys[slot, rows]
        elif wanted == 1:
            start = int(self._highest[slot].argmax()) * BLOCK
            row = start + int(self.keys[slot, start : start + BLOCK].argmax())
            rows, keys = np.array([row], dtype=np.intp), self.keys[slot, row : row + 1]
        else:
            rows, keys = self._candidates(slot, wanted)
        if keys.size and keys.min() < 0:
            fits = keys >= 0  # first, as many equal keys make a partition slow
            rows, keys = rows[fits], keys[fits]
        if wanted < len(keys):
            chosen = np.argpartition(keys, len(keys) - wanted)[-wanted:]
            rows, keys = rows[chosen], keys[chosen]
        return rows, keys

    def runner_up(self, slot: int, row: int) -> tuple[int, int] | None:
        """Beside its best row, the row with the highest key of a line, and the key; None if no second one is feasible.

        Found by a few steps over the blocks, because it is only for people, and asked for with every answer.
        """
        line, highest = self.keys[slot], self._highest[slot]
        own = row // BLOCK
        block = line[own * BLOCK : (own + 1) * BLOCK]
        best, line[row] = line[row], -1
        found = int(block.argmax())
        key, line[row] = block.item(found), best
        whole, highest[own] = highest[own], key
        where = int(highest.argmax())
        highest[own] = whole
        if where != own:
            block = line[where * BLOCK : (where + 1) * BLOCK]
            found = int(block.argmax())
            key = block.item(found)
        return None if key < 0 else (where * BLOCK + found, key)

    def _candidates(self, slot: int, wanted: int) -> tuple[Rows, Keys]:
        """Rows among which the `wanted` best are: those of as many blocks with the highest keys."""
        highest = self._highest[slot]
        if wanted >= len(highest):
            return np.arange(self._table.size, dtype=np.intp), self.keys[slot, : self._table.size]
        blocks = np.argpartition(highest, len(highest) - wanted)[-wanted:]
        rows = (blocks[:, None] * BLOCK + _WITHIN_BLOCK).ravel()
        return rows, self._blocks[slot][blocks].ravel()

    def _distinct(self, blocks: Rows) -> Rows:
        """Faster than np.unique, as there are few blocks."""
        touched = np.zeros(self._highest.shape[1], dtype=np.bool_)
        touched[blocks] = True
        return np.flatnonzero(touched)

    @property
    def _blocks(self) -> Keys:
        blocks: Keys = self.keys.reshape(len(self.keys), -1, BLOCK)
        return blocks

    def _lay_out(self, slots: int, capacity: int) -> None:
        blocks = -(-capacity // BLOCK)
        self.keys = np.zeros((slots, blocks * BLOCK), dtype=np.int64)
        self.keys[: self._used] = -1
        self.fixed = NarrowLines(slots, capacity)
        self.feasible = np.zeros((slots, capacity), dtype=np.bool_)
        self.settled = np.zeros((slots, capacity), dtype=np.bool_)
        self._highest = np.full((slots, blocks), -1, dtype=np.int64)


_WITHIN_BLOCK = np.arange(BLOCK, dtype=np.intp)


def lines(matrix: NDArray[Item], slots: list[int], index: Rows | slice) -> NDArray[Item]:
    """Some lines of a matrix at some rows: always with an axis of classes."""
    if len(slots) == 1:
        return matrix[slots[0], index][None, :]
    lines = np.array(slots, dtype=np.intp)
    return matrix[lines, index] if isinstance(index, slice) else matrix[lines[:, None], index]
