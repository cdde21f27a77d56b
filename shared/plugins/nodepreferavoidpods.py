"""NodePreferAvoidPods keeps the pods of a controller off nodes that say they would rather not have them.

A node says so by the annotation `scheduler.alpha.kubernetes.io/preferAvoidPods`, which names ReplicationControllers and
ReplicaSets by uid. Earlier versions of kube-scheduler had this plugin, with a weight of 10000 that hardly anything
outweighs. No profile has it unless it is named.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass

import msgspec
import numpy as np

from flotilla.results import MAX_NODE_SCORE
from shared.cluster.columns import NodeColumn
from shared.cluster.nodetable import NodeTable
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import Scores
from shared.framework.plugin import PodParts, Reads, ScorePlugin
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import Node, OwnerReference, Pod
from shared.model.wellknown import PREFER_AVOID_PODS

CONTROLLERS = frozenset({"ReplicationController", "ReplicaSet"})


class _Controller(msgspec.Struct, frozen=True):
    kind: str = ""
    uid: str = ""


class _Signature(msgspec.Struct, frozen=True):
    controller: _Controller | None = msgspec.field(default=None, name="podController")


class _Avoided(msgspec.Struct, frozen=True):
    signature: _Signature = msgspec.field(default=_Signature(), name="podSignature")


class _Annotation(msgspec.Struct, frozen=True):
    avoided: list[_Avoided] | None = msgspec.field(default=None, name="preferAvoidPods")


_ANNOTATION = msgspec.json.Decoder(_Annotation)


@dataclass(frozen=True, slots=True)
class AvoidsController(NodeColumn):
    """1 where the node's annotation names this controller."""

    kind: str
    uid: str

    def value(self, table: NodeTable, node: Node) -> int:
        return _Controller(self.kind, self.uid) in avoided_by(node)


def avoided_by(node: Node) -> list[_Controller | None]:
    """The controllers whose pods the node would rather not have; none if what it says cannot be read."""
    text = node.metadata.annotations.get(PREFER_AVOID_PODS)
    if not text:
        return []
    try:
        said = _ANNOTATION.decode(text)
    except msgspec.DecodeError:
        return []
    return [each.signature.controller for each in said.avoided or ()]


def controller_of(pod: Pod) -> OwnerReference | None:
    """The ReplicationController or ReplicaSet that manages the pod."""
    manager = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
    return manager if manager is not None and manager.kind in CONTROLLERS else None


class NodePreferAvoidPods(ScorePlugin):
    name = "NodePreferAvoidPods"
    reads_of_pod = PodParts.TEMPLATE
    score_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        controller = controller_of(pod)
        return None if controller is None else (controller.kind, controller.uid)

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def score(self, state: CycleState, view: NodeView) -> Scores:
        controller = controller_of(state.pod)
        if controller is None:
            return np.full(len(view), MAX_NODE_SCORE, dtype=np.int64)
        return np.where(view.of_nodes(AvoidsController(controller.kind, controller.uid)) == 1, 0, MAX_NODE_SCORE)
