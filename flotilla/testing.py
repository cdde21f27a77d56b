"""Test a plugin without a cluster: a few nodes, a pod, and what the plugin says about it.

    cluster = Cluster(node("a"), node("b", labels={"example.com/rank": "7"}))
    assert cluster.scores(PreferredRank(), pod("web")) == {"a": 0, "b": 100}

The plugin runs in the engine that workers run, so declarations, caching and normalizing count. With `shards`, the nodes
are split as over several workers, and the answers must not depend on that.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from flotilla.objects import ClusterObjects, Node, Pod
from flotilla.plugin import Plugin, Status
from shared.cluster.nodetable import NodeTable
from shared.cluster.objects import ClusterObjects as KnownObjects
from shared.config.points import ExtensionPoint, PluginRef
from shared.config.structs import ProfileConfig
from shared.framework.evaluator import Explanation, Question, ShardEvaluator
from shared.framework.loading import POINTS
from shared.framework.profile import MAX_ASKS, Framework, merge
from shared.messages.evaluation import Summary, Ties
from shared.model.load import load_of
from shared.model.objects import ClusterObject, node_from, pod_from
from shared.plugins.queueandbind import PrioritySort


def node(
    name: str,
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    **fields: Any,
) -> Node:
    """`fields`: the node's spec and status as in a manifest, if more is needed."""
    status = {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110", **(allocatable or {})}}
    metadata = {"name": name, "labels": dict(labels or {})}
    return node_from(
        {"metadata": metadata, "spec": fields.get("spec", {}), "status": status | fields.get("status", {})}
    )


def pod(
    name: str,
    labels: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    namespace: str = "default",
    **fields: Any,
) -> Pod:
    """`fields`: the pod's metadata, spec and status as in a manifest, if more is needed."""
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "labels": dict(labels or {})}
    container = {"name": "main", "resources": {"requests": dict(requests or {})}}
    return pod_from(
        {
            "metadata": metadata | fields.get("metadata", {}),
            "spec": {"containers": [container]} | fields.get("spec", {}),
            "status": fields.get("status", {}),
        }
    )


def objects(*known: ClusterObject) -> ClusterObjects:
    """For calling a queueing hint."""
    made = KnownObjects()
    for each in known:
        made.upsert(each)
    return made


class Cluster:
    def __init__(self, *nodes: Node, objects: Iterable[ClusterObject] = (), shards: int = 1) -> None:
        known = KnownObjects()
        for each in objects:
            known.upsert(each)
        self._tables = [NodeTable(objects=known) for _ in range(shards)]
        for number, each_node in enumerate(nodes):
            self._tables[number % shards].add_node(each_node)

    def place(self, placed: Pod, on: str) -> None:
        """A pod that is on a node already."""
        table = next(table for table in self._tables if on in table)
        table.add_pod(placed.uid, on, load_of(placed), placed.key)

    def remove(self, placed: Pod) -> None:
        for table in self._tables:
            if table.node_of(placed.uid) is not None:
                table.remove_pod(placed.uid)

    def rejections(self, plugin: Plugin, wanted: Pod) -> dict[str, str]:
        """Why the plugin rejects nodes for this pod, by node; feasible nodes are left out."""
        return {name: status.message for name, status in self.statuses(plugin, wanted).items()}

    def statuses(self, plugin: Plugin, wanted: Pod) -> dict[str, Status]:
        """As rejections, with the whole status. A rejection by PreFilter counts for every node."""
        found: dict[str, Status] = {}
        for explained in self._explained(plugin, wanted):
            found |= explained.rejected
        return found

    def scores(self, plugin: Plugin, wanted: Pod) -> dict[str, int]:
        """The plugin's score of each feasible node, 0 to 100."""
        return {
            name: of_node.get(plugin.name, 0)
            for explained in self._explained(plugin, wanted)
            for name, of_node in explained.scores.items()
        }

    def _explained(self, plugin: Plugin, wanted: Pod) -> list[Explanation]:
        framework = _framework(plugin)
        evaluators = [ShardEvaluator(table, framework, Ties("name")) for table in self._tables]
        classes = [evaluator.prepare("tested", wanted) for evaluator in evaluators]
        rejection = classes[0].failure or classes[0].pre.rejection or classes[0].score_failure
        if rejection is not None:
            names = [each.name for table in self._tables for _, each in table.nodes()]
            return [Explanation(rejected=dict.fromkeys(names, rejection))]
        guess: Summary | None = None
        for _ in range(MAX_ASKS):
            parts = [
                evaluator.evaluate([Question(pod_class, guess)])[0].summary
                for evaluator, pod_class in zip(evaluators, classes, strict=True)
            ]
            merged = merge(framework, parts)
            if merged.agrees_with(guess):
                break
            guess = merged
        return [evaluator.explain(pod_class) for evaluator, pod_class in zip(evaluators, classes, strict=True)]


def _framework(plugin: Plugin) -> Framework:
    points: dict[ExtensionPoint, tuple[PluginRef, ...]] = {
        point: (PluginRef(plugin.name, 1),) for point, kind in POINTS.items() if isinstance(plugin, kind)
    }
    points.setdefault(ExtensionPoint.QUEUE_SORT, (PluginRef(PrioritySort.name, 1),))
    made = {PrioritySort.name: lambda _: PrioritySort(), plugin.name: lambda _: plugin}
    return Framework(ProfileConfig("test", None, points, {}), made)
