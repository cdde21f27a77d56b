"""A score over columns of nodes: one call for as many nodes as there are."""

from collections.abc import Collection, Hashable
from dataclasses import dataclass

import numpy as np

from shared.cluster.columns import ABSENT, NodeColumn
from shared.cluster.nodetable import NodeTable
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import ScaleToHighest, Scores
from shared.framework.plugin import PodParts, Reads, ScorePlugin
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import Node, Pod

LABEL = "example.com/rank"


@dataclass(frozen=True)
class Rank(NodeColumn):
    """What the node's label says, computed once for each version of a node."""

    def value(self, table: NodeTable, node: Node) -> int:
        text = node.metadata.labels.get(LABEL, "")
        return int(text) if text.isdecimal() and len(text) < 10 else ABSENT


class PreferredRank(ScorePlugin):
    """The higher a node's rank the better; the highest rank in the cluster is worth 100, none is worth nothing."""

    name = "PreferredRank"
    reads_of_pod = PodParts.TEMPLATE
    score_reads = Reads.NODE
    normalizer = ScaleToHighest()

    def signature(self, pod: Pod) -> Hashable:
        """It reads nothing of the pod: all pods are alike to it."""
        return None

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def score(self, state: CycleState, view: NodeView) -> Scores:
        return np.maximum(view.of_nodes(Rank()), 0)
