"""PodClass: pods that every plugin of a profile judges alike, and what a shard has computed about them.

The parts are owned by one object each, which alone writes them: Answers, Feasibility, Ranking.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flotilla.plugin import ClassState
from flotilla.results import Range, Status
from shared.cluster.changes import ChangeLog, Rows
from shared.cluster.nodetable import LoadKind
from shared.framework.profile import PreFiltered
from shared.framework.result_pool import NOTHING_SEEN
from shared.model.kinds import ObjectKind

Slots = NDArray[np.intp]


@dataclass(slots=True)
class ClassAnswers:
    """Where each plugin's answers for the class are in its ResultPool. Owned by Answers.

    `muted`: score plugins that score all nodes alike, according to the merged summary.
    """

    filter_slots: Slots
    score_slots: Slots
    muted: frozenset[int] = frozenset()


@dataclass(slots=True)
class ClassFeasibility:
    """Owned by Feasibility. `seen`, `node_seen`: the positions in the logs of loads and of node objects.

    `tallies`: for each normalized plugin that reads only node objects, how many feasible nodes have each raw score;
    so the range of raw scores is known without looking at all nodes.
    """

    seen: int = NOTHING_SEEN
    node_seen: int = NOTHING_SEEN
    count: int = 0
    tallies: dict[int, dict[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class ClassKeys:
    """Owned by Ranking. `ranges`: those by which raw scores are normalized."""

    seen: int = NOTHING_SEEN
    node_seen: int = NOTHING_SEEN
    ranges: dict[str, Range] | None = None


@dataclass(slots=True, eq=False)
class PodClass:
    """`failure`: PreFilter failed. `score_failure`: PreScore failed, which matters with several feasible nodes only.

    `slot`: the line in the KeyMatrix. `objects`: the generations of the kinds of objects that plugins have read.
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
    feasibility: ClassFeasibility = field(default_factory=ClassFeasibility)
    keys: ClassKeys = field(default_factory=ClassKeys)


def by_missed(
    classes: Iterable[PodClass], position: Callable[[PodClass], int], log: ChangeLog
) -> Iterator[tuple[Rows | None, list[PodClass]]]:
    """The classes by the rows that changed since their position; one by one if that is all rows (None)."""
    groups: dict[int, list[PodClass]] = {}
    for pod_class in classes:
        groups.setdefault(position(pod_class), []).append(pod_class)
    for seen, group in groups.items():
        rows = rows_since(log, seen)
        if rows is None:
            yield from ((None, [pod_class]) for pod_class in group)
        elif rows.size:
            yield rows, group


def rows_since(log: ChangeLog, seen: int) -> Rows | None:
    """The rows that changed after that position; None for all."""
    return None if seen == NOTHING_SEEN else log.since(seen)
