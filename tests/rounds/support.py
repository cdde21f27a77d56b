"""What the tests of rounds share: frameworks, tables as plain data, cores fed by hand."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from flotilla.plugin import ClassState, NodeInfo, PerNodeFilter
from flotilla.results import SUCCESS, Status, unschedulable
from services.snapshot.core import SnapshotCore
from services.snapshot.events import BindingReport, NodeSeen, Reply
from services.snapshot.events import Effect as SnapshotEffect
from services.worker.core import WorkerCore
from services.worker.events import Answer
from services.worker.events import Effect as WorkerEffect
from shared.cluster.nodetable import NodeTable
from shared.config.points import ExtensionPoint, PluginRef
from shared.config.reading import load_config
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.messages.binding import BindingOutcome
from shared.messages.evaluation import Summary, Ties
from shared.messages.rounds import ClassAnswer, ClassAsk, Proposals, Propose
from shared.messages.state import (
    EPOCH_SHIFT,
    Assigned,
    Assignment,
    Change,
    Commit,
    Committed,
    Decision,
    Delta,
    NodeRemoved,
    NodeState,
    NodeUpserted,
    PodGone,
    PodOnNode,
    PodPlaced,
    State,
)
from shared.model.load import PodLoad, load_of
from shared.model.objects import DEFAULT_SCHEDULER, Node, Pod
from shared.plugins.registry import in_tree
from shared.store.schema import Persist
from testing.builders import node, pod

BY_NAME = Ties(mode="name")
FRAMEWORKS = load_frameworks(None)
DEFAULT = FRAMEWORKS[DEFAULT_SCHEDULER]
NO_POST_FILTER = {"profiles": [{"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}]}
QUIET = load_frameworks(
    {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **NO_POST_FILTER},
)
"""As the default, but nothing is searched for when no node is feasible."""
BASE = 1 << EPOCH_SHIFT
"""Where the sequence numbers of the leader of epoch 1 begin."""

Plain = dict[str, Any]
A = TypeVar("A", bound=Assigned)


def small_node(name: str, cpu: int = 4) -> Node:
    return node(name).capacity(cpu=cpu, memory="8Gi").build()


def small_pod(name: str, cpu: str = "1", **labels: str) -> Pod:
    return pod(name).label(labels).request(cpu=cpu, memory="1Gi").build()


def uid(name: str) -> str:
    return f"default/{name}"


# Tables as plain data


def plain_table(table: NodeTable) -> dict[str, Plain]:
    """Every node of a table with what it has, what is used and which pods are there: equal data, equal tables."""
    placed: dict[str, dict[str, PodLoad]] = {}
    for pod_uid, name, load in table.placed():
        placed.setdefault(name, {})[pod_uid] = load
    shown: dict[str, Plain] = {}
    for row, node_object in table.nodes():
        name = table.names[row]
        resources = table.resources.items
        shown[name] = {
            "object": node_object,
            "allocatable": {r: int(table.allocatable[i, row]) for i, r in enumerate(resources)},
            "used": {r: int(table.used[i, row]) for i, r in enumerate(resources)},
            "non-zero": table.non_zero[:, row].tolist(),
            "cordoned": bool(table.unschedulable[row]),
            "taints": table.taint_sets.items[int(table.taint_set[row])],
            "valid": bool(table.valid[row]),
            "pods": placed.get(name, {}),
        }
        for amounts in (shown[name]["allocatable"], shown[name]["used"]):
            for resource in [r for r, amount in amounts.items() if not amount]:
                del amounts[resource]
    return shown


Replica = tuple[dict[str, Node], dict[str, tuple[str, PodLoad]]]


def replayed(deltas: Iterable[Delta]) -> Replica:
    """Nodes and placed pods after these deltas, in the plainest way."""
    nodes: dict[str, Node] = {}
    pods: dict[str, tuple[str, PodLoad]] = {}
    for delta in deltas:
        for change in delta.changes:
            apply_change(nodes, pods, change, delta.loads)
    return nodes, pods


def apply_change(
    nodes: dict[str, Node], pods: dict[str, tuple[str, PodLoad]], change: Change, loads: Sequence[PodLoad]
) -> None:
    match change:
        case NodeUpserted(node=node_object):
            nodes[node_object.name] = node_object
        case NodeRemoved(name=name):
            del nodes[name]
            for gone in [u for u, (where, _) in pods.items() if where == name]:
                del pods[gone]
        case PodPlaced(uid=pod_uid, node=where, load=load):
            pods[pod_uid] = (where, loads[load])
        case PodGone(uid=pod_uid):
            pods.pop(pod_uid, None)


def held(state: State) -> Replica:
    nodes = {held.node.name: held.node for held in state.nodes}
    pods = {u: (held.node.name, state.loads[pod.load]) for held in state.nodes for u, pod in held.pods.items()}
    assert len(pods) == sum(len(held.pods) for held in state.nodes), "a pod in two places"
    return nodes, pods


# Snapshot


class SnapshotLog:
    """A snapshot core that keeps the deltas it published and is validated after every event.

    By default in epoch 0, so sequence numbers begin at 0.
    """

    def __init__(self, *nodes: Node, epoch: int = 0) -> None:
        self.core = SnapshotCore(epoch)
        self.deltas: list[Delta] = []
        self._persisted: set[int] = set()
        for node_object in nodes:
            self.handle(NodeSeen(node_object))

    def handle(self, event: Any, now: float = 0.0) -> list[SnapshotEffect]:
        effects = self.core.handle(event, now)
        self.core.validate()
        for effect in effects:
            if isinstance(effect, Persist) and effect.delta is not None:
                self._persisted.add(effect.delta.seq)
            elif isinstance(effect, Delta):
                assert effect.seq in self._persisted, "published before it was safe"
                self.deltas.append(effect)
        return effects

    def pods(self) -> dict[str, str]:
        return {pod_uid: name for pod_uid, (name, _) in held(self.core.state())[1].items()}

    def attempt(self, of: Pod) -> int:
        """The attempt at binding this pod that is under way."""
        return self.core.ledger[of.uid].attempt


def kinds(effects: Iterable[object]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def decision(of: Pod, where: str, seen: int, load: int = 0) -> Decision:
    return Decision(Assignment(of.uid, of.namespace, of.name, DEFAULT_SCHEDULER, where), load, seen)


def finished(pod_uid: str, attempt: int) -> BindingReport:
    """A binder reports that the pod is bound."""
    return BindingReport(BindingOutcome(pod_uid, attempt))


def failed(
    pod_uid: str,
    attempt: int,
    reason: str = "no",
    plugin: str = "",
    rejected: bool = False,
    *,
    version: str = "",
    sure: bool = True,
    sole: bool = True,
) -> BindingReport:
    return BindingReport(BindingOutcome(pod_uid, attempt, reason, plugin, rejected, version=version), sure, sole)


def waits(pod_uid: str, attempt: int, wait: float) -> BindingReport:
    return BindingReport(BindingOutcome(pod_uid, attempt, wait=wait))


def stale(pod_uid: str, attempt: int, version: str, found: str) -> BindingReport:
    """The pod is unbound, and has another version than the order."""
    return BindingReport(BindingOutcome(pod_uid, attempt, version=version, found=found))


def reassigned(of: A, **fields: Any) -> A:
    """With other fields in its assignment."""
    return msgspec.structs.replace(of, assignment=msgspec.structs.replace(of.assignment, **fields))


def commit(number: int, *placements: tuple[Pod, str, int], epoch: int = 1) -> Commit:
    """A commit of one load a pod: pod, node, what its evaluation had seen."""
    loads = [load_of(placed) for placed, _, _ in placements]
    return Commit(epoch, number, loads, [decision(p, n, seen, i) for i, (p, n, seen) in enumerate(placements)])


def reply(effects: Iterable[SnapshotEffect]) -> Committed:
    """The one answer to a commit among the effects."""
    (answer,) = [effect.message for effect in effects if isinstance(effect, Reply)]
    assert isinstance(answer, Committed)
    return answer


def changes(effects: Iterable[SnapshotEffect]) -> list[Change]:
    return [change for effect in effects if isinstance(effect, Delta) for change in effect.changes]


def refusals(effects: Iterable[SnapshotEffect]) -> dict[str, tuple[str, bool]]:
    return {conflict.uid: (conflict.reason, conflict.placed) for conflict in reply(effects).conflicts}


# Workers


def worker(
    frameworks: Mapping[str, Framework] = FRAMEWORKS,
    *,
    shards: Iterable[int] = (0,),
    count: int = 1,
    first_evaluations: int | None = None,
    judged_at_once: int | None = None,
) -> WorkerCore:
    return WorkerCore(
        "w",
        frozenset(shards),
        count,
        frameworks,
        first_evaluations=first_evaluations,
        judged_at_once=judged_at_once,
    )


def state(seq: int, *nodes: Node, epoch: int = 1, pods: Sequence[tuple[Pod, str]] = ()) -> State:
    on: dict[str, dict[str, PodOnNode]] = {node_object.name: {} for node_object in nodes}
    for i, (p, name) in enumerate(pods):
        on[name][p.uid] = PodOnNode(i, p.key, p.started)
    return State(epoch, seq, [NodeState(n, on[n.name]) for n in nodes], [load_of(p) for p, _ in pods])


def delta(seq: int, *changes: Change, epoch: int = 1, loads: Sequence[PodLoad] = ()) -> Delta:
    return Delta(epoch, seq, list(changes), list(loads))


def placed(seq: int, what: Pod, where: str, epoch: int = 1) -> Delta:
    return delta(seq, PodPlaced(what.uid, where, 0), epoch=epoch, loads=[load_of(what)])


def propose(
    *asks: ClassAsk, round_: int = 1, ask: int = 1, min_seq: int = 0, epoch: int = 1, ties: Ties = BY_NAME
) -> Propose:
    return Propose(epoch, round_, ask, min_seq, ties, list(asks))


def ask_for(what: Pod, class_id: str = "", count: int = 1, guess: Summary | None = None) -> ClassAsk:
    return ClassAsk(class_id or what.name, what.spec.scheduler_name, count, what, guess)


def proposals(effects: Sequence[WorkerEffect]) -> Proposals:
    """The one answer among the effects."""
    (answer,) = effects
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, Proposals)
    return answer.message


def answers(effects: Sequence[WorkerEffect]) -> dict[str, ClassAnswer]:
    return {answer.class_id: answer for answer in proposals(effects).answers}


# Plugins


class Moody(PerNodeFilter):
    """Raises for pods labelled mood=bad, on nodes that have a pod if `mood-when` says loaded."""

    name = "Moody"

    def signature(self, pod: Pod) -> str:
        return pod.metadata.labels.get("mood", "")

    def filter_node(self, state: ClassState, node: NodeInfo) -> Status:
        mood = self.signature(state.pod)
        if mood == "bad" or (mood == "bad-when-loaded" and node.pods):
            raise ZeroDivisionError("it is one of those days")
        return SUCCESS if mood != "picky" else unschedulable("picky")


def framework_with(plugin: type[Any], *points: ExtensionPoint) -> dict[str, Framework]:
    """The default profile and one more plugin at these points."""
    (profile,) = load_config(None).profiles
    plugins = dict(profile.plugins)
    for point in points:
        plugins[point] = (*plugins.get(point, ()), PluginRef(plugin.name, 1 if point is ExtensionPoint.SCORE else 0))
    changed = type(profile)(profile.scheduler_name, profile.percentage_of_nodes_to_score, plugins, profile.args)
    return {DEFAULT_SCHEDULER: Framework(changed, {**in_tree(), plugin.name: lambda args: plugin()})}


def relabelled(node_object: Node, **labels: str) -> Node:
    metadata = msgspec.structs.replace(node_object.metadata, labels={**node_object.metadata.labels, **labels})
    return msgspec.structs.replace(node_object, metadata=metadata)
