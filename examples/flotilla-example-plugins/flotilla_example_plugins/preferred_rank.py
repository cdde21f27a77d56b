"""A score over columns of nodes: one call for as many nodes as there are."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from flotilla.plugin import (
    ABSENT,
    ClassState,
    Node,
    NodeColumn,
    NodeView,
    Pod,
    PodParts,
    Reads,
    ScaleToHighest,
    ScorePlugin,
    Scores,
)

LABEL = "example.com/rank"


@dataclass(frozen=True)
class Rank(NodeColumn):
    """The node's label as a number, computed once for each version of a node."""

    def value(self, node: Node) -> int:
        text = node.metadata.labels.get(LABEL, "")
        return int(text) if text.isdecimal() and len(text) < 10 else ABSENT


class PreferredRank(ScorePlugin):
    """The higher a node's rank the better: the highest rank in the cluster scores 100, none scores 0."""

    name = "PreferredRank"
    reads_of_pod = PodParts.TEMPLATE
    score_reads = Reads.NODE
    normalizer = ScaleToHighest()

    def signature(self, pod: Pod) -> Hashable:
        """It reads nothing of the pod, so all pods share one answer."""
        return None

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        return np.maximum(nodes.of_nodes(Rank()), 0)
