"""Small plugins that judge each node by itself: NodeName, NodeUnschedulable, TaintToleration, NodeDeclaredFeatures,
NodePorts and NodePreferAvoidPods.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.nodes import Ints, Mask, NodeColumn, NodeView, PodColumn
from flotilla.objects import ClusterObjects, Node, Pod, PodLoad
from flotilla.plugin import (
    ClassState,
    FilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    Reads,
    ScaleToHighest,
    ScorePlugin,
    Scores,
    StateKey,
)
from flotilla.results import MAX_NODE_SCORE, SKIP, SUCCESS, PreFilterResult, Status, unresolvable, unschedulable
from shared.config.feature_gates import DEFAULT_GATES, Feature, FeatureGates
from shared.model.affinity import is_tolerated, repel
from shared.model.objects import OwnerReference, Taint, Toleration
from shared.model.resources import HostPort, host_ports
from shared.model.wellknown import PREFER_AVOID_PODS
from shared.plugins.base import InTreePlugin, after_own_update, is_placed

OTHER_NODE = unresolvable("node(s) didn't match the requested node name")
CORDONED = unresolvable("node(s) were unschedulable")
UNTOLERATED = unresolvable("node(s) had untolerated taint(s)")
LACKING = unresolvable("node(s) didn't match Pod's required features")
PORT_TAKEN = unschedulable("node(s) didn't have free ports for the requested pod ports")

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
RESTART_ALL = "RestartAllContainers"
ANY_ADDRESS = "0.0.0.0"
CONTROLLERS = frozenset({"ReplicationController", "ReplicaSet"})


class NodeName(InTreePlugin, FilterPlugin):
    """Keeps a pod that names a node in its spec off every other node."""

    name = "NodeName"
    filter_reads = Reads.NODE
    registrations = (Registration(Resource.NODE, Action.ADD),)

    def signature(self, pod: Pod) -> Hashable:
        return pod.spec.node_name

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        if state.pod.spec.node_name:
            nodes.reject(~nodes.named([state.pod.spec.node_name]), OTHER_NODE)


def after_cordon(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The node is schedulable and was not before."""
    return not now.spec.unschedulable and (before is None or before.spec.unschedulable)


def after_toleration(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """The pod itself tolerates cordons now."""
    return pod.uid == now.uid and is_tolerated(CORDON, now.spec.tolerations)


class NodeUnschedulable(InTreePlugin, FilterPlugin):
    """Keeps pods off cordoned nodes, unless they tolerate the taint that goes with a cordon."""

    name = "NodeUnschedulable"
    filter_reads = Reads.NODE
    registrations = (
        Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, after_cordon),
        Registration(Resource.POD, Action.UPDATE_POD_TOLERATION, after_toleration),
    )

    def signature(self, pod: Pod) -> Hashable:
        return is_tolerated(CORDON, pod.spec.tolerations)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        if not is_tolerated(CORDON, state.pod.spec.tolerations):
            nodes.reject(nodes.unschedulable, CORDONED)


# Taints. Nodes share few distinct sets of taints, so each set is judged once and nodes look their set's answer up.


@dataclass(slots=True)
class _Judged:
    """The answer for each set of taints, by its number."""

    sets: Sequence[tuple[Taint, ...]]
    answers: Ints


REPELLED = StateKey[_Judged]("the sets of taints that repel the pod")
DISLIKED = StateKey[_Judged]("the number of PreferNoSchedule taints in each set")
SOFT_TOLERATIONS = StateKey[list[Toleration]]("tolerations of PreferNoSchedule taints")


class TaintToleration(InTreePlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Keeps pods off nodes whose taints they do not tolerate, and prefers nodes with fewer such taints."""

    name = "TaintToleration"
    filter_reads = Reads.NODE
    score_reads = Reads.NODE
    normalizer = ScaleToHighest(reversed=True)

    def __init__(self, gates: FeatureGates = DEFAULT_GATES) -> None:
        self._compares = gates.enabled(Feature.COMPARING_TOLERATIONS)
        self.registrations = (
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, self._after_taints),
            Registration(Resource.POD, Action.UPDATE_POD_TOLERATION, after_own_update),
        )

    def _after_taints(self, pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
        """The node admits the pod and did not before."""
        tolerations = pod.spec.tolerations
        if repel(now.spec.taints, tolerations, compares=self._compares):
            return False
        return before is None or repel(before.spec.taints, tolerations, compares=self._compares)

    def signature(self, pod: Pod) -> Hashable:
        return tuple((t.key, t.operator, t.value, t.effect) for t in pod.spec.tolerations)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        nodes.reject(repelled(state, nodes, compares=self._compares), UNTOLERATED)

    def pre_score(self, state: ClassState) -> Status:
        state[SOFT_TOLERATIONS] = [t for t in state.pod.spec.tolerations if t.effect in ("", "PreferNoSchedule")]
        return SUCCESS

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        soft = state.get(SOFT_TOLERATIONS) or []

        def dislikes(taints: Sequence[Taint]) -> int:
            return sum(
                t.effect == "PreferNoSchedule" and not is_tolerated(t, soft, compares=self._compares) for t in taints
            )

        return _by_set(state, nodes, DISLIKED, dislikes)


def repelled(state: ClassState, nodes: NodeView, *, compares: bool) -> Mask:
    """Which nodes have a taint that keeps the pod off. `compares`: tolerations may compare integers."""

    def judge(taints: Sequence[Taint]) -> int:
        return repel(taints, state.pod.spec.tolerations, compares=compares)

    return _by_set(state, nodes, REPELLED, judge) > 0


def _by_set(
    state: ClassState, nodes: NodeView, key: StateKey[_Judged], judge: Callable[[Sequence[Taint]], int]
) -> Ints:
    """Judge the sets of taints that are new since the last time, and look each node's up."""
    taints = nodes.taints
    judged = state.get(key)
    if judged is None or judged.sets is not taints.values:
        judged = state[key] = _Judged(taints.values, np.zeros(0, dtype=np.int64))
    known = len(judged.answers)
    if known < len(taints.values):
        fresh = np.array([judge(each) for each in taints.values[known:]], dtype=np.int64)
        judged.answers = np.concatenate([judged.answers, fresh])
    return judged.answers[taints.numbers]


# Declared features


def required_features(pod: Pod) -> tuple[str, ...]:
    """The features without which a node cannot run the pod, sorted.

    Of the features that nodes of v1.36 declare, two matter to new pods; the others only to pods that run.
    """
    spec, features = pod.spec, []
    containers = (*spec.containers, *spec.init_containers)
    if any(rule.action == RESTART_ALL for container in containers for rule in container.restart_policy_rules):
        features.append("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        features.append("UserNamespacesHostNetworkSupport")
    return tuple(features)


@dataclass(frozen=True, slots=True)
class DeclaresFeature(NodeColumn):
    feature: str

    def value(self, node: Node) -> int:
        return self.feature in node.status.declared_features


def after_features(pod: Pod, before: Node | None, now: Node, objects: ClusterObjects) -> bool:
    """The node declares other features now."""
    return before is None or before.status.declared_features != now.status.declared_features


def after_requirements(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """The pod itself requires other features now."""
    return pod.uid == now.uid and required_features(before) != required_features(now)


class NodeDeclaredFeatures(InTreePlugin, PreFilterPlugin, FilterPlugin):
    """Keeps a pod off nodes that do not declare the features it requires."""

    name = "NodeDeclaredFeatures"
    filter_reads = Reads.NODE
    registrations = (
        Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, after_features),
        Registration(Resource.POD, Action.UPDATE, after_requirements),
    )

    def signature(self, pod: Pod) -> Hashable:
        return required_features(pod)

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult() if required_features(state.pod) else PreFilterResult(SKIP)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        for feature in required_features(state.pod):
            nodes.reject(nodes.of_nodes(DeclaresFeature(feature)) != 1, LACKING)


# Host ports


def conflict(one: HostPort, other: HostPort) -> bool:
    """Two users of a port conflict unless both name an address, and not the same one."""
    return (
        one.port == other.port
        and one.protocol == other.protocol
        and (one.ip == other.ip or ANY_ADDRESS in (one.ip, other.ip))
    )


@dataclass(frozen=True, slots=True)
class PortUsers(PodColumn):
    """How many ports of pods on a node conflict with the wanted one."""

    wanted: HostPort

    def amount(self, pod: PodLoad) -> int:
        return sum(conflict(self.wanted, port) for port in pod.ports)


def after_freed_port(pod: Pod, before: Pod, now: None, objects: ClusterObjects) -> bool:
    """The deleted pod had one of the ports."""
    freed = host_ports(before) if is_placed(before) else ()
    return bool(freed) and any(conflict(wanted, port) for wanted in host_ports(pod) for port in freed)


class NodePorts(InTreePlugin, PreFilterPlugin, FilterPlugin):
    """Keeps a pod off nodes where another pod has a host port that it wants."""

    name = "NodePorts"
    registrations = (
        Registration(Resource.NODE, Action.ADD),
        Registration(Resource.POD, Action.DELETE, after_freed_port),
    )

    def signature(self, pod: Pod) -> Hashable:
        return tuple((port.ip, port.protocol, port.port) for port in host_ports(pod))

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        return PreFilterResult() if host_ports(state.pod) else PreFilterResult(SKIP)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        for port in host_ports(state.pod):
            nodes.reject(nodes.of_pods(PortUsers(port)) > 0, PORT_TAKEN)


# Nodes that ask to avoid the pods of a controller


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
    """1 where the node's annotation names this controller; 0 also if the annotation cannot be parsed."""

    kind: str
    uid: str

    def value(self, node: Node) -> int:
        try:
            annotation = _ANNOTATION.decode(node.metadata.annotations.get(PREFER_AVOID_PODS) or "{}")
        except msgspec.DecodeError:
            return 0
        return _Controller(self.kind, self.uid) in [each.signature.controller for each in annotation.avoided or ()]


class NodePreferAvoidPods(InTreePlugin, ScorePlugin):
    """Scores nodes low that ask to avoid the pods of a controller.

    A node asks by the annotation `scheduler.alpha.kubernetes.io/preferAvoidPods`, which names ReplicationControllers
    and ReplicaSets by uid. Earlier versions of kube-scheduler had this plugin, with a weight of 10000. It is off by
    default.
    """

    name = "NodePreferAvoidPods"
    score_reads = Reads.NODE

    def signature(self, pod: Pod) -> Hashable:
        controller = _avoidable_controller(pod)
        return None if controller is None else (controller.kind, controller.uid)

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        controller = _avoidable_controller(state.pod)
        if controller is None:
            return np.full(len(nodes), MAX_NODE_SCORE, dtype=np.int64)
        return np.where(nodes.of_nodes(AvoidsController(controller.kind, controller.uid)) == 1, 0, MAX_NODE_SCORE)


def _avoidable_controller(pod: Pod) -> OwnerReference | None:
    """The ReplicationController or ReplicaSet that manages the pod."""
    manager = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
    return manager if manager is not None and manager.kind in CONTROLLERS else None
