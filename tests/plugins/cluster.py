"""Small clusters for plugin tests, and one plugin's answers about their nodes, by node name."""

from collections.abc import Iterable

import numpy as np

from flotilla.plugin import ClassState, FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin, SummaryPlugin
from flotilla.results import Status
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import Statuses, TableView
from shared.framework.answers import filtered
from shared.framework.evaluator import Explanation, Question, ShardEvaluator
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.model.load import load_of
from shared.model.objects import Node, Pod
from testing.builders import NodeBuilder, PodBuilder, class_state


def table_of(*nodes: NodeBuilder | Node, pods: Iterable[PodBuilder | Pod] = ()) -> NodeTable:
    """A table with these nodes; each of the pods says in its spec which one it is on."""
    table = NodeTable(capacity=4)
    for node in nodes:
        table.add_node(node if isinstance(node, Node) else node.build())
    for pod in pods:
        built = pod if isinstance(pod, Pod) else pod.build()
        table.add_pod(built.uid, built.spec.node_name, load_of(built))
    return table


def prepared(plugin: object, pod: PodBuilder | Pod, table: NodeTable) -> ClassState:
    """The state after PreFilter, PreScore and the summary, as far as the plugin has them."""
    state = class_state(pod if isinstance(pod, Pod) else pod.build())
    if isinstance(plugin, PreFilterPlugin):
        status = plugin.pre_filter(state).status
        assert status.ok or status.skipped, status
    if isinstance(plugin, PreScorePlugin):
        status = plugin.pre_score(state)
        assert status.ok or status.skipped, status
    if isinstance(plugin, SummaryPlugin):
        state.summaries[plugin.name] = plugin.summarize(state, TableView(table))
    return state


def rejected(
    plugin: FilterPlugin, state: ClassState, view: TableView, *, open_domains: bool = False
) -> list[Status | None]:
    """Why the plugin rejects each node of the view; None for those it admits."""
    found = Statuses()
    (verdicts,) = filtered(plugin, found, [state], None, view, open_domains=open_domains)
    assert verdicts.shape == (len(view),)
    return [found[verdict] if verdict else None for verdict in verdicts.tolist()]


def statuses(plugin: FilterPlugin, pod: PodBuilder | Pod, table: NodeTable) -> dict[str, Status]:
    """Why the plugin rejects nodes; a node that fits is not mentioned."""
    state = prepared(plugin, pod, table)
    found = rejected(plugin, state, TableView(table))
    return {table.names[row]: status for row, status in enumerate(found) if table.valid[row] and status is not None}


def scores(plugin: ScorePlugin, pod: PodBuilder | Pod, table: NodeTable) -> dict[str, int]:
    """The plugin's raw scores."""
    raw = plugin.score(prepared(plugin, pod, table), TableView(table))
    assert raw.dtype == np.int64
    assert raw.shape == (table.size,)
    return {table.names[row]: int(raw[row]) for row in range(table.size) if table.valid[row]}


def framework(*plugins: str, args: dict[str, object] | None = None, no_score: str = "") -> Framework:
    """Just these plugins (and what every profile must have), with weight 1. `no_score`: whose Score is disabled."""
    plugin_sets: dict[str, object] = {
        "multiPoint": {"enabled": [{"name": name, "weight": 1} for name in plugins], "disabled": [{"name": "*"}]},
        "queueSort": {"enabled": [{"name": "PrioritySort"}]},
        "bind": {"enabled": [{"name": "DefaultBinder"}]},
        "score": {"disabled": [{"name": no_score}] if no_score else []},
    }
    plugin_config = [{"name": name, "args": value} for name, value in (args or {}).items()]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": plugin_sets, "pluginConfig": plugin_config}],
    }
    return load_frameworks(config)["default-scheduler"]


def judge(profile: Framework, pod: PodBuilder | Pod, table: NodeTable) -> Explanation:
    """How a whole profile judges every node: rejections, and normalised scores of the nodes that fit."""
    evaluator = ShardEvaluator(table, profile, Ties(mode="name"))
    pod_class = evaluator.prepare("class", pod if isinstance(pod, Pod) else pod.build())
    assert pod_class.failure is None, pod_class.failure
    evaluator.evaluate([Question(pod_class)])
    return evaluator.explain(pod_class)
