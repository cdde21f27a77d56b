"""Answers questions on a state, by deciding on it as the pipeline would, one pod at a time in the queue's order.

Pods that are pending stay as they are: those that were rejected are tried again only if something may help them, gated
ones if their gate opens, all others at once, although they may back off now. New pods are behind them, in the queue's
order. The result is what the pipeline comes to if nothing else happens.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from services.queue.scheduling.queued_pod_info import PodState
from shared.config.document import ConfigSource
from shared.config.feature_gates import FeatureGates
from shared.config.points import ExtensionPoint
from shared.config.structs import ExtenderConfig, KubeSchedulerConfig
from shared.errors import ClusterError, UserError
from shared.extenders.talk import name_of
from shared.framework.loading import load_scheduler_config
from shared.messages.evaluation import Ties
from shared.messages.inspection import DescribedPod
from shared.model.objects import Node, Pod, key_of, kind_of, pod_from_msgpack
from tools.live_state import LiveState
from tools.whatif import manifests
from tools.whatif.answer import Answer, PodAnswer, Question, Verdict, Victim
from tools.whatif.claims import recreated
from tools.whatif.cores import Cores
from tools.whatif.extending import Converse, tells_all
from tools.whatif.manifests import Manifests, read
from tools.whatif.pods import Rejected

HOSTNAME = "kubernetes.io/hostname"
MIRROR = "kubernetes.io/config.mirror"
MAX_NODES = 10_000
"""Nodes that one question may add."""
MAX_ROUND_SIZE = 4096
"""As the setting of the cycle."""
PASSING_TAINTS = "node.kubernetes.io/"
"""Taints that a node has for its condition, which a new one like it would not have."""

PodsOn = Mapping[str, Sequence[Pod]]
"""The full pods of some nodes."""


class Asked(NamedTuple):
    """A pod that is decided, and where it comes from."""

    pod: Pod
    origin: str
    since: float
    rejected: Rejected | None = None
    """If it is one that waits for something since its last attempt."""


def deadline_check(seconds: float) -> Callable[[], None]:
    """Raises ClusterError once the time is over."""
    ends = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > ends:
            raise ClusterError(f"the answer takes longer than {seconds:g} s; ask about fewer pods, or allow more time")

    return check


class Engine:
    """One state, on which a question is asked. UserError if the question does not fit it."""

    def __init__(
        self,
        live: LiveState,
        question: Question,
        pods_on: PodsOn,
        check: Callable[[], None] = lambda: None,
        converse: Converse | None = None,
    ) -> None:
        """`converse`: how extenders are asked, if they are."""
        self.live = live
        self.question = question
        self.check = check
        self.notes: list[str] = []
        self.lost: list[str] = []
        self.nodes = {each.node.name: each.node for each in live.state.nodes}
        self.manifests = read("manifests", question.manifests) if question.manifests else Manifests()
        self.config = _config(live, question)
        self.ties = live.configuration.ties or Ties()
        self._pods_on = pods_on
        self._check_question()
        self.converse = converse
        self._extenders = self._asked_extenders()
        self.notes += binding_notes(self.config)
        self.added = [*self.manifests.nodes, *self.copies(question.like, question.add_nodes)]
        self.objects = [*self.manifests.objects]
        """That are created along with the pods."""
        self.recreated = self._recreate()

    def answer(self) -> Answer:
        """Where each pod goes."""
        cores = self.cores()
        asked = self.asked()
        self.decide(cores, asked)
        return self.told(cores, asked)

    # Parts of an answer

    def cores(self, round_size: int = 0) -> Cores:
        """The state, before anything changes. `round_size`: if not that of the question."""
        live, round_size = self.live, round_size or self.question.round_size
        cores = Cores(
            live.state,
            self.config,
            ties=self.ties,
            round_size=round_size,
            at=live.at,
            check=self.check,
            extenders=self._extenders,
            converse=self.converse,
        )
        for group in live.groups:
            cores.add_group(group)
        return cores

    def decide(self, cores: Cores, asked: Sequence[Asked]) -> None:
        """Makes the changes of the question, and decides these pods after them."""
        cores.submit_rejected([each.rejected for each in asked if each.rejected is not None])
        self.change(cores)
        cores.submit((each.pod, each.since) for each in asked if each.rejected is None)
        cores.settle()

    def change(self, cores: Cores) -> None:
        """Makes the changes of the question, except for pods."""
        question = self.question
        cores.add_nodes(self.added)
        cores.place(self._daemons(question.like, self.added[len(self.manifests.nodes) :]))
        cores.place(pod for pod in self.manifests.pods if pod.spec.node_name)
        for name in question.drain:
            node = self.nodes[name]
            cores.add_nodes([replace(node, spec=replace(node.spec, unschedulable=True))])
            cores.remove_pods(pod.uid for pod in self._pods_on.get(name, ()) if not stays(pod))
        for name in question.remove:
            cores.remove_node(name)
        cores.add_objects(self.objects)

    def asked(self) -> list[Asked]:
        """The pods to decide: those that are pending, those of nodes that go, and those of the question."""
        found: list[Asked] = []
        if not self.question.without_pending:
            found += [_pending(each, self.live.at) for each in self.live.pending if each.body]
        found += self.recreated
        found += (Asked(pod, "new", 0.0) for pod in self.manifests.pods if not pod.spec.node_name)
        return found

    def _recreate(self) -> list[Asked]:
        """The pods of nodes that go, as their owners would make them again, with the claims that are made for them."""
        claims = {(kind_of(each), key_of(each)): each for each in self.live.state.objects}
        found: list[Asked] = []
        for name in (*self.question.drain, *self.question.remove):
            for pod in self._pods_on.get(name, ()):
                if stays(pod):
                    continue
                if not any(owner.controller for owner in pod.metadata.owner_references):
                    self.lost.append(pod.key)
                    continue
                again, made = recreated(pod, f"{manifests.UID}-again-{len(found)}", claims)
                found.append(Asked(again, f"recreated from {name}", 0.0))
                self.objects += made
        return found

    def told(self, cores: Cores, asked: Sequence[Asked]) -> Answer:
        keys = {each.pod.uid: each.pod.key for each in asked}
        victims = [
            Victim(
                f"{victim.namespace}/{victim.name}",
                victim.uid,
                node,
                priority,
                keys.get(preemptor, preemptor),
                list(victim.violates),
            )
            for preemptor, victim, node, priority in cores.evicted
        ]
        pods = [self._pod(cores, each, victims) for each in asked]
        nodes = Counter(pod.node for pod in pods if pod.verdict == "scheduled")
        state = self.live.state
        return Answer(
            state.epoch,
            state.seq,
            self.live.at,
            pods,
            dict(sorted(nodes.items())),
            victims,
            self.lost,
            self.notes,
        )

    def _pod(self, cores: Cores, asked: Asked, victims: Sequence[Victim]) -> PodAnswer:
        pod = asked.pod
        verdict, message = _verdict(cores, pod)
        return PodAnswer(
            pod.namespace,
            pod.name,
            asked.origin,
            verdict,
            cores.node_of(pod.uid),
            message,
            pod.priority,
            "" if verdict == "scheduled" else cores.nominated_node(pod.uid),
            [victim for victim in victims if victim.preemptor == pod.key],
        )

    # Nodes

    def copies(self, like: str, count: int) -> list[Node]:
        """New nodes like this one of the state."""
        if count and not like:
            raise UserError("add_nodes: say which node they are like")
        if not 0 <= count <= MAX_NODES:
            raise UserError(f"add_nodes: takes 0 to {MAX_NODES}, not {count}")
        return [copy_of(self.nodes[like], f"{like}-new-{i + 1}") for i in range(count)] if count else []

    def _daemons(self, like: str, copies: Iterable[Node]) -> list[Pod]:
        """The pods that each new node gets at once, because the one that it is like has them for itself."""
        daemons = [pod for pod in self._pods_on.get(like, ()) if stays(pod)]
        return [on_copy(pod, node.name) for node in copies for pod in daemons]

    def daemons(self, like: str, node: Node) -> list[Pod]:
        return self._daemons(like, [node])

    def _asked_extenders(self) -> list[ExtenderConfig]:
        """Notes those that are not asked."""
        given = self.question.config is not None
        asked = [each for each in self.config.extenders if self.converse is not None and (given or tells_all(each))]
        names = ", ".join(name_of(each) for each in self.config.extenders if each not in asked)
        if names:
            why = "" if self.converse is None else "; --config with the whole configuration would ask them"
            self.notes.append(f"extenders are not asked, pods are decided without them: {names}{why}")
        return asked

    def _check_question(self) -> None:
        question = self.question
        if not 1 <= question.round_size <= MAX_ROUND_SIZE:
            raise UserError(f"round_size: takes 1 to {MAX_ROUND_SIZE}, not {question.round_size}")
        for field, names in (("remove", question.remove), ("drain", question.drain), ("like", [question.like])):
            for name in names:
                if name and name not in self.nodes:
                    raise UserError(f"{field}: there is no node {name}")
        for name in (*question.remove, *question.drain):
            if name not in self._pods_on and self._occupied(name):
                raise UserError(f"the pods of node {name} are not known in full: ask again, or make another dump")
        if question.like and question.add_nodes and question.like not in self._pods_on:
            self.notes.append(
                f"new nodes get no DaemonSet pods: the pods of node {question.like} are not known in full"
            )

    def _occupied(self, name: str) -> bool:
        return any(each.node.name == name and each.pods for each in self.live.state.nodes)


def _pending(described: DescribedPod, at: float) -> Asked:
    pod, since = pod_from_msgpack(described.body), described.queued_at - at
    waits = described.state == PodState.UNSCHEDULABLE
    rejected = Rejected(pod, since, described.plugins, described.message) if waits else None
    return Asked(pod, f"pending ({described.state})", since, rejected)


def copy_of(node: Node, name: str) -> Node:
    """A new node like this one: ready, empty, and with a name and hostname of its own."""
    labels = {**node.metadata.labels, HOSTNAME: name}
    taints = [taint for taint in node.spec.taints if not taint.key.startswith(PASSING_TAINTS)]
    return replace(
        node,
        metadata=replace(node.metadata, name=name, uid=f"whatif-{name}", labels=labels),
        spec=replace(node.spec, unschedulable=False, taints=taints),
    )


def stays(pod: Pod) -> bool:
    """Whether a pod belongs to its node: of a DaemonSet, or a static pod's mirror."""
    owned = any(owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
    return (
        owned
        or MIRROR in pod.metadata.annotations
        or any(owner.controller and owner.kind == "Node" for owner in pod.metadata.owner_references)
    )


def on_copy(pod: Pod, node: str) -> Pod:
    name = f"{pod.name}-{node}"
    return replace(
        pod,
        metadata=replace(pod.metadata, name=name, uid=f"whatif-{pod.namespace}/{name}"),
        spec=replace(pod.spec, node_name=node),
    )


def _config(live: LiveState, question: Question) -> KubeSchedulerConfig:
    gates = FeatureGates.parse(live.configuration.feature_gates)
    if question.config is not None:
        return load_scheduler_config(ConfigSource("config", json.dumps(question.config).encode()), gates)
    if live.configuration.config:
        return load_scheduler_config(ConfigSource("the pipeline's", live.configuration.config.encode()), gates)
    return load_scheduler_config(None, gates)


def binding_notes(config: KubeSchedulerConfig) -> Iterator[str]:
    """One for each profile with plugins at Permit or PreBind beyond those that are enabled by default."""
    (default,) = load_scheduler_config(None, config.feature_gates).profiles
    for profile in config.profiles:
        names = {
            plugin.name: None
            for point in (ExtensionPoint.PERMIT, ExtensionPoint.PRE_BIND)
            for plugin in profile.plugins.get(point, ())
            if plugin not in default.plugins.get(point, ())
        }
        if names:
            plugins = ", ".join(names)
            yield f"Permit and PreBind plugins do not run: profile {profile.scheduler_name} decides without {plugins}"


def _verdict(cores: Cores, pod: Pod) -> tuple[Verdict, str]:
    if cores.node_of(pod.uid):
        return "scheduled", ""
    info = cores.queued(pod.uid)
    if info is None:
        if pod.uid in cores.victims:
            return "preempted", "preempted by another pod of the question after it was scheduled"
        return "ignored", f"no profile has the scheduler name {pod.spec.scheduler_name}"
    if info.state is PodState.GATED:
        gate = f"gated by {info.gating_plugin}" if info.gating_plugin else "gated"
        return "gated", f"{gate}: {info.gate_reason}" if info.gate_reason else gate
    if info.state is PodState.ERROR_BACKOFF:
        return "failed", info.last_failure
    return "unschedulable", info.last_failure
