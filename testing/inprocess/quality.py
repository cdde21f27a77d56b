"""The placement quality of larger rounds: the same pods scheduled one by one and in rounds, compared.

*Regret* is independent of the workload: at each decision, in order, the difference between the best node's total score
and that of the chosen node, as kube-scheduler would score them at that moment. The other figures describe the result:
how evenly apps and loads are spread, and how many preferences were satisfied.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from services.cycle.events import Decided
from shared.cluster.load_kind import CPU, MEMORY
from shared.cluster.nodetable import NodeTable
from shared.errors import InvariantBroken
from shared.framework.evaluator import Question, ShardEvaluator
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.model.load import load_of
from shared.model.objects import Node, ObjectKind, Pod, node_from, object_from, pod_from
from shared.model.selectors import node_selector_term_matches
from shared.model.wellknown import HOSTNAME, ZONE
from testing.inprocess.pipeline import Pipeline
from testing.inprocess.workloads import PREFERRED, Object, affinity, make_node, spread

SHARDS = 3
ZONES = 5
APPS = 20


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster and its pods; `config` as a KubeSchedulerConfiguration, or None for the defaults."""

    name: str
    nodes: Sequence[Object]
    pods: Sequence[Object]
    objects: Sequence[tuple[ObjectKind, Object]] = ()
    config: Object | None = None


@dataclass(frozen=True, slots=True)
class Quality:
    """`regret`: mean; `worst`: maximum. Skews: most minus fewest pods of an app per zone or node, mean over apps.

    `spread`: standard deviation of the nodes' used cpu; `imbalance`: mean difference of used cpu and memory; both in
    percent of allocatable. `preferred`: share of preferred node affinity satisfied, None if there is none.
    """

    placed: int
    rounds: int
    regret: float
    worst: int
    zone_skew: float
    node_skew: float
    spread: float
    imbalance: float
    preferred: float | None


def measure(scene: Scene, round_size: int) -> Quality:
    frameworks = load_frameworks(scene.config)
    pipeline = Pipeline(frameworks, shards=SHARDS, round_size=round_size)
    nodes, pods = [node_from(each) for each in scene.nodes], [pod_from(each) for each in scene.pods]
    pipeline.add_nodes(nodes)
    pipeline.add_objects(object_from(kind, obj) for kind, obj in scene.objects)
    pipeline.settle()
    pipeline.submit(pods)
    pipeline.settle()
    by_uid = {pod.uid: pod for pod in pods}
    decided = [(by_uid[uid], o.node) for uid, o in pipeline.outcomes.items() if isinstance(o, Decided)]
    table = NodeTable()
    for kind, obj in scene.objects:
        table.objects.upsert(object_from(kind, obj))
    for node in nodes:
        table.add_node(node)
    regrets = list(_regrets(table, frameworks, decided))
    used = table.used[[CPU, MEMORY], : table.size] / table.allocatable[[CPU, MEMORY], : table.size]
    by_name = {node.name: node for node in nodes}
    return Quality(
        placed=len(decided),
        rounds=pipeline.cycle.rounds.begun,
        regret=fmean(regrets) if regrets else 0.0,
        worst=max(regrets, default=0),
        zone_skew=_skew(decided, by_name, ZONE),
        node_skew=_skew(decided, by_name, HOSTNAME),
        spread=100 * pstdev(used[0].tolist()),
        imbalance=100 * float(np.abs(used[0] - used[1]).mean()),
        preferred=_preferred(decided, by_name),
    )


def _regrets(
    table: NodeTable, frameworks: Mapping[str, Framework], decided: Sequence[tuple[Pod, str]]
) -> Iterator[int]:
    """Replay the decisions in order on one table, evaluating every node before each."""
    evaluators = {name: ShardEvaluator(table, framework, Ties()) for name, framework in frameworks.items()}
    for number, (pod, where) in enumerate(decided):
        evaluator = evaluators[pod.spec.scheduler_name]
        pod_class = evaluator.prepare(str(number), pod)
        evaluator.evaluate([Question(pod_class)])
        taken = np.arange(table.size) == table.row_of(where)
        best, chosen = (evaluator.ladders.climb([pod_class], [1], [mask])[0].keys for mask in (None, taken))
        if not chosen.size:
            raise InvariantBroken(f"pod {pod.key} was placed on node {where}, which is infeasible")
        yield int(best[0] >> evaluator.tie_bits) - int(chosen[0] >> evaluator.tie_bits)
        evaluator.release(pod_class)
        table.add_pod(pod.uid, where, load_of(pod))


def _skew(decided: Sequence[tuple[Pod, str]], nodes: Mapping[str, Node], key: str) -> float:
    domains = {node.metadata.labels[key] for node in nodes.values()}
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pod, where in decided:
        counts[pod.metadata.labels["app"]][nodes[where].metadata.labels[key]] += 1
    skews = [max(of.values()) - min(of[domain] for domain in domains) for of in counts.values()]
    return fmean(skews) if skews else 0.0


def _preferred(decided: Sequence[tuple[Pod, str]], nodes: Mapping[str, Node]) -> float | None:
    met = wanted = 0
    for pod, where in decided:
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        for term in affinity.preferred if affinity else ():
            wanted += term.weight
            if node_selector_term_matches(term.preference, nodes[where].metadata.labels, where):
                met += term.weight
    return met / wanted if wanted else None


# The scenes


def scenes(nodes: int, pods: int) -> list[Scene]:
    """Pods of twenty apps in turn, in five zones; together they request about half of the cluster."""
    plain = [_node(i) for i in range(nodes)]
    mixed = [_node(i, cpus=(4, 8, 16)[i % 3]) for i in range(nodes)]
    some = range(pods)
    most_allocated = _scored_by("MostAllocated")
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    ratio = _scored_by("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": shape})
    replica_sets = []
    for app in range(APPS):
        metadata = {"name": _app(app), "namespace": "default", "uid": _app(app)}
        spec = {"selector": {"matchLabels": _labels(app)}}
        replica_sets.append((ObjectKind.REPLICA_SET, {"metadata": metadata, "spec": spec}))
    return [
        Scene("equal pods", plain, [_pod(i, apps=1) for i in some]),
        Scene("twenty apps", plain, [_pod(i) for i in some]),
        Scene("nodes of three sizes", mixed, [_pod(i) for i in some]),
        Scene("small and large pods", mixed, [_pod(i, cpu=(50, 1500)[i % 7 == 0]) for i in some]),
        Scene("packed (MostAllocated)", mixed, [_pod(i) for i in some], config=most_allocated),
        Scene("packed (RequestedToCapacityRatio)", mixed, [_pod(i) for i in some], config=ratio),
        Scene("of ReplicaSets (system defaults)", plain, [_pod(i, owned=True) for i in some], replica_sets),
        *(
            Scene(name, plain, [_pod(i, **rule(i)) for i in some])
            for name, rule in (
                ("soft spread over zones", lambda i: spread(_labels(i), ZONE, "ScheduleAnyway", 1)),
                ("soft spread over nodes", lambda i: spread(_labels(i), HOSTNAME, "ScheduleAnyway", 1)),
                ("hard spread over zones", lambda i: spread(_labels(i), ZONE, "DoNotSchedule", 1)),
                (
                    "rather apart (preferred anti-affinity)",
                    lambda i: affinity("podAntiAffinity", _labels(i), HOSTNAME, 100),
                ),
                ("rather together, by zone", lambda i: affinity("podAffinity", _labels(i), ZONE, 100)),
                ("preferred zones (node affinity)", _prefers),
            )
        ),
        Scene(
            "some nodes with soft taints", [_node(i, taint=i % 4 == 0) for i in range(nodes)], [_pod(i) for i in some]
        ),
    ]


def _scored_by(strategy: str, **parameters: Object) -> Object:
    """A configuration with this scoring strategy of NodeResourcesFit."""
    weights = [{"name": name, "weight": 1} for name in ("cpu", "memory")]
    fit = {"scoringStrategy": {"type": strategy, "resources": weights, **parameters}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": fit}]}],
    }


def _node(i: int, *, cpus: int = 8, taint: bool = False) -> Object:
    taints = [{"key": "spot", "effect": "PreferNoSchedule"}] if taint else []
    return make_node(f"node-{i:04}", str(cpus), f"{4 * cpus}Gi", {ZONE: f"zone-{i % ZONES}"}, taints)


def _app(i: int, apps: int = APPS) -> str:
    return f"app-{i % apps:02}"


def _labels(i: int) -> dict[str, str]:
    return {"app": _app(i)}


def _pod(i: int, *, apps: int = APPS, cpu: int | None = None, owned: bool = False, **spec: Any) -> Object:
    kind = i % apps
    requests = {"cpu": f"{cpu or 200 + 20 * kind}m", "memory": f"{500 + 150 * (kind % 7)}Mi"}
    metadata: Object = {"name": f"pod-{i:05}", "namespace": "default", "labels": {"app": _app(i, apps)}}
    if owned:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": _app(i), "uid": _app(i), "controller": True}
        metadata["ownerReferences"] = [owner]
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], **spec}}


def _prefers(i: int) -> Object:
    zone = {"key": ZONE, "operator": "In", "values": [f"zone-{i % APPS % ZONES}"]}
    preferred = [{"weight": 50, "preference": {"matchExpressions": [zone]}}]
    return {"affinity": {"nodeAffinity": {PREFERRED: preferred}}}
