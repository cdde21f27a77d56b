"""Plugins are tested without a cluster: a table of nodes, a pod, and what the plugin says."""

import pytest
from flotilla_example_plugins.approval import Approval
from flotilla_example_plugins.preferred_rank import PreferredRank
from flotilla_example_plugins.same_app_limit import SameAppLimit

from flotilla.results import Code
from shared.cluster.nodetable import NodeTable
from shared.cluster.objects import ClusterObjects
from shared.errors import UserError
from shared.framework.cyclestate import CycleState
from shared.framework.view import NodeView
from shared.model.load import load_of
from shared.model.objects import Node, Pod, node_from, pod_from


def a_pod(name: str = "p", **labels: str) -> Pod:
    return pod_from({"metadata": {"name": name, "labels": {key.replace("_", "-"): v for key, v in labels.items()}}})


def a_node(name: str, rank: str = "") -> Node:
    labels = {"example.com/rank": rank} if rank else {}
    return node_from({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"pods": "110"}}})


def test_an_app_has_so_many_pods_a_node() -> None:
    table = NodeTable()
    for name in ("full", "free"):
        table.add_node(a_node(name))
    for i in range(2):
        table.add_pod(f"u{i}", "full", load_of(a_pod(f"p{i}", app="web")))
    plugin, view = SameAppLimit({"most": 2}), NodeView(table)
    state = CycleState(a_pod(app="web"))
    verdicts = dict(zip(table.names, plugin.filter(state, view).tolist(), strict=False))
    assert verdicts["free"] == 0
    assert plugin.explain(state, verdicts["full"]).message == "node(s) had 2 pods of app web"
    assert not plugin.filter(CycleState(a_pod(app="db")), view).any()
    assert not plugin.filter(CycleState(a_pod()), view).any()


def test_a_pod_of_the_app_that_goes_makes_room() -> None:
    web, alike, other = (
        pod_from({"metadata": {"name": name, "uid": name, "labels": {"app": app}}})
        for name, app in (("web-1", "web"), ("web-2", "web"), ("db", "db"))
    )
    helps, cluster = SameAppLimit({}).makes_room, ClusterObjects()
    assert helps(web, alike, None, cluster)
    assert helps(web, alike, a_pod("web-2", app="db"), cluster)
    assert not helps(web, other, None, cluster)
    assert not helps(web, alike, a_pod("web-2", app="web", tier="front"), cluster)
    assert helps(web, other, web, cluster)


def test_pods_that_are_judged_apart_have_other_signatures() -> None:
    plugin = SameAppLimit({})
    assert plugin.signature(a_pod("p", app="web")) == plugin.signature(a_pod("q", app="web", tier="front"))
    assert plugin.signature(a_pod("p", app="web")) != plugin.signature(a_pod("p", app="db"))


def test_arguments_are_checked() -> None:
    with pytest.raises(UserError, match="most: must be a number of pods"):
        SameAppLimit({"most": "many"})


def test_the_highest_rank_is_preferred() -> None:
    table = NodeTable()
    ranks = {"a": "1", "b": "10", "c": "", "d": "high"}
    for name, rank in ranks.items():
        table.add_node(a_node(name, rank))
    plugin = PreferredRank()
    raw = plugin.score(CycleState(a_pod()), NodeView(table))
    scores = plugin.normalizer(raw, int(raw.min()), int(raw.max()))
    assert dict(zip(table.names, scores.tolist(), strict=False)) == {"a": 10, "b": 100, "c": 0, "d": 0}


def test_only_some_pods_need_approval() -> None:
    plugin = Approval({"seconds": 5})
    assert plugin.permit(CycleState(a_pod()), "a").status.ok
    needing = pod_from({"metadata": {"name": "p", "labels": {"example.com/needs-approval": "true"}}})
    permission = plugin.permit(CycleState(needing), "a")
    assert (permission.status.code, permission.timeout) == (Code.WAIT, 5.0)
