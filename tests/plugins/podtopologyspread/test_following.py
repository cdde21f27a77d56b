"""Nodes of one group have one raw score, now and after each placement; and the summary is followed with it."""

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from shared.cluster.objects import ClusterObjects
from shared.cluster.view import TableView
from shared.config.args import PodTopologySpreadArgs
from shared.model.load import load_of
from shared.model.objects import Pod
from shared.model.wellknown import ZONE
from shared.plugins.grouping import Group
from shared.plugins.podtopologyspread.plugin import PodTopologySpread
from testing.builders import class_state, pod, selector
from tests.plugins.podtopologyspread.reference import HOSTNAME, Host
from tests.plugins.podtopologyspread.worlds import Cluster, Shard, arrivals, clusters, of_kind

RANDOM = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PLUGIN = PodTopologySpread(PodTopologySpreadArgs())


def groups_of(shard: Shard, feasible: list[str]) -> dict[str, Group] | None:
    rows = shard.rows(feasible)
    grouped = PLUGIN.group(shard.state, TableView(shard.table), rows)
    if grouped is None:
        return None
    names = [shard.table.names[row] for row in rows.tolist()]
    return {name: grouped.groups[at] for name, at in zip(names, grouped.of_rows.tolist(), strict=True)}


@RANDOM
@given(clusters(), arrivals(), st.integers(1, 2), st.data())
def test_groups_tell_the_raw_scores_of_their_nodes_while_pods_are_placed(
    found: list[Host], pending: Pod, shards: int, data: st.DataObject
) -> None:
    soft = of_kind(pending, "ScheduleAnyway")
    spec = msgspec.structs.replace(pending.spec, topology_spread_constraints=soft)
    pending = msgspec.structs.replace(pending, spec=spec)
    cluster = Cluster(PLUGIN, found, pending, shards, ClusterObjects())
    assume(soft and PLUGIN.can_follow(cluster.shards[0].state))
    feasible = data.draw(st.lists(st.sampled_from([host.node.name for host in found]), min_size=1, unique=True))
    summary, late = cluster.summarize(), cluster.summarize_feasible(feasible)
    own = [PLUGIN.summarize(shard.state, TableView(shard.table)) for shard in cluster.shards]
    groups = [groups_of(shard, feasible) for shard in cluster.shards]
    follower = PLUGIN.follower(pending, summary)
    assert follower is not None
    for step in range(4):
        for number, shard in enumerate(cluster.shards):
            here = groups[number]
            if here is None:  # pods on some of the nodes do not count
                return
            raw = cluster.raw_scores([name for name in feasible if name in shard.table])
            assert dict(zip(here, follower.raw_scores(summary, late, list(here.values())), strict=True)) == raw
            assert here == groups_of(shard, feasible)
        name = data.draw(st.sampled_from(feasible))
        number = next(i for i, shard in enumerate(cluster.shards) if name in shard.table)
        there = groups[number]
        assert there is not None
        metadata = msgspec.structs.replace(pending.metadata, uid=f"uid-{step}")
        cluster.place(msgspec.structs.replace(pending, metadata=metadata), name)
        summary, own[number] = follower.placed(summary, there[name]), follower.placed(own[number], there[name])
        there[name] = follower.after(there[name])
        shard = cluster.shards[number]
        assert own[number] == PLUGIN.summarize(shard.state, TableView(shard.table))
        assert summary == cluster.summarize()


def test_not_followed_are_hard_constraints_selectors_of_copied_labels_and_hostnames_twice() -> None:
    web = pod("web").label(app="web")
    by_zone = web.spread_soft(ZONE, selector(app="web"))
    for_others = by_zone.spread_soft(HOSTNAME, selector(app="web")).spread_soft(HOSTNAME, selector(tier="1"))
    hard, copied = by_zone.spread_hard("rack", selector(app="web")), web.spread_soft("rack", selector({ZONE: "a"}))
    states = [class_state(each.build()) for each in (by_zone, hard, copied, for_others, web)]
    for state in states:
        PLUGIN.pre_filter(state)
        PLUGIN.pre_score(state)
    assert [PLUGIN.can_follow(state) for state in states] == [True, False, False, False, False]


def test_only_pods_of_the_namespace_that_a_selector_selects_count() -> None:
    web = pod("web").label(app="web").spread_soft(ZONE, selector(app="web"))
    cluster = Cluster(PLUGIN, [], web.build(), 1, ClusterObjects())
    follower = PLUGIN.follower(web.build(), cluster.summarize())
    assert follower is not None
    others = pod("x").label(app="web"), pod("x").label(app="db"), pod("x", "other").label(app="web")
    assert [follower.counts(load_of(each.build())) for each in others] == [True, False, False]
