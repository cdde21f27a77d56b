"""Plugins are tested without a cluster: some nodes, a pod, and what the plugin says."""

import pytest
from flotilla_example_plugins.approval import Approval
from flotilla_example_plugins.preferred_rank import PreferredRank
from flotilla_example_plugins.same_app_limit import SameAppLimit

from flotilla.plugin import BindingState, Code, UserError
from flotilla.testing import Cluster, node, objects, pod

WEB, DB = {"app": "web"}, {"app": "db"}


@pytest.mark.parametrize("shards", [1, 2])
def test_an_app_has_so_many_pods_a_node(shards: int) -> None:
    cluster = Cluster(node("full"), node("free"), shards=shards)
    for i in range(2):
        cluster.place(pod(f"web-{i}", WEB), on="full")
    plugin = SameAppLimit({"most": 2})
    assert cluster.rejections(plugin, pod("web", WEB)) == {"full": "node(s) had 2 pods of app web"}
    assert cluster.rejections(plugin, pod("db", DB)) == {}
    assert cluster.rejections(plugin, pod("plain")) == {}


def test_a_pod_of_the_app_that_goes_makes_room() -> None:
    web, same, other = pod("web-1", WEB), pod("web-2", WEB), pod("db", DB)
    helps, cluster = SameAppLimit({}).makes_room, objects()
    assert helps(web, same, None, cluster)
    assert helps(web, same, pod("web-2", DB), cluster)
    assert not helps(web, other, None, cluster)
    assert not helps(web, same, pod("web-2", {**WEB, "tier": "front"}), cluster)
    assert helps(web, other, web, cluster)


def test_pods_that_are_judged_apart_have_other_signatures() -> None:
    plugin = SameAppLimit({})
    assert plugin.signature(pod("p", WEB)) == plugin.signature(pod("q", {**WEB, "tier": "front"}))
    assert plugin.signature(pod("p", WEB)) != plugin.signature(pod("p", DB))


def test_arguments_are_checked() -> None:
    with pytest.raises(UserError, match="most: must be a number of pods"):
        SameAppLimit({"most": "many"})


@pytest.mark.parametrize("shards", [1, 3])
def test_the_highest_rank_is_preferred(shards: int) -> None:
    ranks = {"a": "1", "b": "10", "c": "", "d": "high"}
    cluster = Cluster(*(node(name, {"example.com/rank": rank}) for name, rank in ranks.items()), shards=shards)
    assert cluster.scores(PreferredRank(), pod("web")) == {"a": 10, "b": 100, "c": 0, "d": 0}


def test_only_some_pods_need_approval() -> None:
    plugin = Approval({"seconds": 5})
    assert plugin.permit(BindingState(pod("p")), "a").status.ok
    permission = plugin.permit(BindingState(pod("p", {"example.com/needs-approval": "true"})), "a")
    assert (permission.status.code, permission.timeout) == (Code.WAIT, 5.0)
