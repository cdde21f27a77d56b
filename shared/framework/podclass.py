"""PodClass: pods that every plugin of a profile judges alike, and what a shard knows of them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shared.cluster.nodetable import LoadKind
from shared.framework.cyclestate import CycleState
from shared.framework.profile import PreFiltered
from shared.framework.results import NOTHING_SEEN
from shared.framework.status import Status
from shared.framework.summary import Range


@dataclass(slots=True, eq=False)
class PodClass:
    """`failure`: PreFilter failed. `score_failure`: PreScore did, which matters only with several nodes to choose from.

    `filter_slots` and `score_slots` say where each plugin's answers for this class stand in its ResultPool.

    Positions in the table's logs tell what is known of changes: `seen` (loads) and `node_seen` (node objects) for
    feasibility, `keyed` and `node_keyed` for keys.
    `tallies` counts, for every normalised plugin (by its place among the score plugins), the feasible nodes of each
    raw score, so that the range of raw scores is known without a look at all nodes.
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
    seen: int = NOTHING_SEEN
    node_seen: int = NOTHING_SEEN
    keyed: int = NOTHING_SEEN
    node_keyed: int = NOTHING_SEEN
    feasible: int = 0
    ranges: dict[str, Range] | None = None
    tallies: dict[int, dict[int, int]] = field(default_factory=dict)
