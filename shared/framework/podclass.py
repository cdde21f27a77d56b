"""PodClass: pods that every plugin of a profile judges alike, and what a shard knows of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flotilla.results import Range, Status
from shared.cluster.changes import ChangeLog, Rows
from shared.cluster.nodetable import LoadKind
from shared.framework.cyclestate import CycleState
from shared.framework.profile import PreFiltered
from shared.framework.results import NOTHING_SEEN
from shared.model.kinds import ObjectKind


@dataclass(slots=True, eq=False)
class PodClass:
    """`failure`: PreFilter failed. `score_failure`: PreScore did, which matters only with several nodes to choose from.

    `filter_slots` and `score_slots` say where each plugin's answers for this class stand in its ResultPool.

    Positions in the table's logs tell what is known of changes: `seen` (loads) and `node_seen` (node objects) for
    feasibility, `keyed` and `node_keyed` for keys.
    `tallies` counts, for every normalised plugin that reads only node objects (by its place among the score plugins),
    the feasible nodes of each raw score, so that the range of raw scores is known without a look at all nodes.
    `mute` are the score plugins that have no say, by what is known of all nodes.
    `objects` are the generations of the kinds of objects that were looked at.
    """

    id: str
    state: CycleState
    pre: PreFiltered
    failure: Status | None
    score_failure: Status | None
    kind: LoadKind
    salt: np.uint64
    slot: int
    filter_slots: NDArray[np.intp]
    score_slots: NDArray[np.intp]
    weights: list[int]
    objects: dict[ObjectKind, int]
    mute: frozenset[int] = frozenset()
    seen: int = NOTHING_SEEN
    node_seen: int = NOTHING_SEEN
    keyed: int = NOTHING_SEEN
    node_keyed: int = NOTHING_SEEN
    feasible: int = 0
    ranges: dict[str, Range] | None = None
    tallies: dict[int, dict[int, int]] = field(default_factory=dict)


def by_missed(
    classes: Iterable[PodClass], position: Callable[[PodClass], int], log: ChangeLog
) -> Iterator[tuple[Rows | None, list[PodClass]]]:
    """The classes by the rows that changed since each was at `position`; singly where that is all rows."""
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
    """What changed after that position; None for all rows."""
    return None if seen == NOTHING_SEEN else log.since(seen)
