"""Clusters of one or more shards, and what a search for victims comes to on them."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from flotilla.results import Code
from services.cycle.preemption.candidate_search import CandidateSearch, Preemption, SearchCase
from services.cycle.round.assign import Unfit
from services.worker.preempting import findings
from shared.cluster.nodetable import NodeTable, shard_of
from shared.framework.evaluator import ShardEvaluator
from shared.framework.profile import Framework, merge
from shared.messages.evaluation import Summary, Ties
from shared.messages.preemption import Candidate, Candidates, Preempt
from shared.model.load import load_of
from shared.model.objects import (
    ClusterObject,
    Node,
    ObjectKind,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    dec_hook,
    encode_msgpack,
    object_from,
)
from testing.builders import NodeBuilder, PodBuilder
from testing.inprocess.batches import pod_info
from tests.plugins.cluster import framework

M = TypeVar("M", Preempt, Candidates)
BY_NAME = Ties(mode="name")
CLASS = "class"
PLAIN = framework("NodeAffinity", "NodePorts", "NodeResourcesFit", "DefaultPreemption")


class Cluster:
    def __init__(
        self,
        nodes: Iterable[NodeBuilder | Node],
        pods: Iterable[PodBuilder | Pod] = (),
        budgets: Iterable[PodDisruptionBudget] = (),
        *,
        groups: Iterable[PodGroup] = (),
        shards: int = 1,
        profile: Framework = PLAIN,
    ) -> None:
        """Pods without a node are those that are nominated to one."""
        self.profile = profile
        self.tables = [NodeTable(capacity=4) for _ in range(shards)]
        for node in nodes:
            built = node if isinstance(node, Node) else node.build()
            self._table(built.name).add_node(built)
        objects: list[ClusterObject] = [*budgets, *groups]
        for each in objects:
            for table in self.tables:
                table.objects.upsert(each)
        for pod in pods:
            self.add(pod if isinstance(pod, Pod) else pod.build())

    def add(self, pod: Pod) -> None:
        node, nominated = pod.spec.node_name, pod.status.nominated_node_name
        if node:
            self._table(node).add_pod(pod.uid, node, load_of(pod), pod.key, pod.started)
        elif nominated:
            self._table(nominated).nominate(pod.uid, nominated, load_of(pod), pod.key)

    def preempt(self, pod: PodBuilder | Pod) -> Preemption:
        """For a pod that no node has room for, or is taken to be such a one."""
        built = pod if isinstance(pod, Pod) else pod.build()
        evaluators = [ShardEvaluator(table, self.profile, BY_NAME) for table in self.tables]
        classes = [evaluator.prepare(CLASS, built) for evaluator in evaluators]
        rejection = classes[0].pre.rejection
        parts = [
            Summary(plugins={} if rejection is not None else evaluator.refresh_by(pod_class, {}))
            for evaluator, pod_class in zip(evaluators, classes, strict=True)
        ]
        helpless = rejection is not None and rejection.code is not Code.UNSCHEDULABLE
        potential = 0 if helpless else sum(table.node_count for table in self.tables)
        unfit = Unfit("", (), summaries=merge(self.profile, parts).plugins, potential=potential)
        search = CandidateSearch(1, [SearchCase(CLASS, [pod_info(built, CLASS)], unfit)])
        while True:
            ask = told(search.message(1, 0))
            for i, (evaluator, pod_class) in enumerate(zip(evaluators, classes, strict=True)):
                found = findings(evaluator, pod_class, ask.classes[0], ask.search)
                assert search.take(told(Candidates(f"worker-{i}", 1, ask.search, ask.ask, 0, [i], [found])))
            if search.gather({self.profile.name: self.profile}):
                return search.outcome(CLASS, self.profile, BY_NAME)

    def _table(self, node: str) -> NodeTable:
        return self.tables[shard_of(node, len(self.tables))]


def told(message: M) -> M:
    """As it comes out at the other end."""
    return msgspec.msgpack.decode(encode_msgpack(message), type=type(message), dec_hook=dec_hook)


def shown(candidates: Sequence[Candidate]) -> dict[str, list[str]]:
    """The victims' names by node, the most important first; an exclamation mark for each that a budget protects."""
    return {
        candidate.node: [victim.key.partition("/")[2] + "!" * victim.violates for victim in candidate.victims]
        for candidate in candidates
    }


def budget(name: str, allowed: int, labels: dict[str, str] | None, *disrupted: str) -> PodDisruptionBudget:
    spec = {} if labels is None else {"selector": {"matchLabels": labels}}
    status = {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z")}
    made = object_from(ObjectKind.POD_DISRUPTION_BUDGET, {"metadata": {"name": name}, "spec": spec, "status": status})
    assert isinstance(made, PodDisruptionBudget)
    return made
