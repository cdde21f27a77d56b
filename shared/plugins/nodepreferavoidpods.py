"""NodePreferAvoidPods scores nodes low that ask to avoid the pods of a controller.

A node asks by the annotation `scheduler.alpha.kubernetes.io/preferAvoidPods`, which names ReplicationControllers and
ReplicaSets by uid. Earlier versions of kube-scheduler had this plugin, with a weight of 10000. It is off by default.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import msgspec
import numpy as np

from flotilla.plugin import ClassState, NodeColumn, NodeView, PodParts, Reads, ScorePlugin, Scores
from flotilla.results import MAX_NODE_SCORE
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

    def value(self, node: Node) -> int:
        return _Controller(self.kind, self.uid) in avoided_by(node)


def avoided_by(node: Node) -> list[_Controller | None]:
    """The controllers whose pods the node asks to avoid; none if the annotation cannot be parsed."""
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

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        controller = controller_of(state.pod)
        if controller is None:
            return np.full(len(nodes), MAX_NODE_SCORE, dtype=np.int64)
        return np.where(nodes.of_nodes(AvoidsController(controller.kind, controller.uid)) == 1, 0, MAX_NODE_SCORE)
