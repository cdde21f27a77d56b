"""The plugin over columns, in one or several shards, against the same rules applied slowly."""

from dataclasses import replace

import msgspec
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.cluster.objects import ClusterObjects
from shared.cluster.view import Both, Changes, Planned, TableView
from shared.config.args import PodTopologySpreadArgs
from shared.model.load import load_of
from shared.model.objects import Pod
from shared.plugins.podtopologyspread.plugin import PodTopologySpread
from tests.plugins.cluster import rejected
from tests.plugins.podtopologyspread import reference
from tests.plugins.podtopologyspread.reference import Host
from tests.plugins.podtopologyspread.worlds import (
    VERDICTS,
    Cluster,
    arrivals,
    clusters,
    of_kind,
    pods,
    replace_pods,
    with_pod,
)

RANDOM = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PLUGIN = PodTopologySpread(PodTopologySpreadArgs())


def cluster_of(found: list[Host], pending: Pod, shards: int) -> Cluster:
    return Cluster(PLUGIN, found, pending, shards, ClusterObjects())


def check(cluster: Cluster, found: list[Host], pending: Pod, full: set[str]) -> None:
    """Verdicts and scores are those of the reference; `full` nodes are rejected by another plugin."""
    cluster.summarize()
    hard = of_kind(pending, "DoNotSchedule")
    expected = {host.node.name: reference.verdict(pending, hard, found, host) for host in found}
    assert cluster.verdicts() == expected
    feasible = [host for host in found if expected[host.node.name] == reference.FITS and host.node.name not in full]
    names = [host.node.name for host in feasible]
    cluster.summarize_feasible(names)
    soft = of_kind(pending, "ScheduleAnyway")
    assert cluster.filters == bool(hard)
    assert cluster.scores == bool(soft)
    if soft:
        assert cluster.normalized(names) == reference.scores(pending, soft, found, feasible, every_key=True)


@RANDOM
@given(clusters(), arrivals(), st.integers(1, 3), st.sets(st.integers(0, 6)))
def test_verdicts_and_scores_are_those_of_the_slow_rules_for_any_number_of_shards(
    found: list[Host], pending: Pod, shards: int, full: set[int]
) -> None:
    check(cluster_of(found, pending, shards), found, pending, {f"n{i}" for i in full})


@RANDOM
@given(clusters(), arrivals(), st.integers(1, 2), st.data())
def test_they_stay_so_while_pods_come_and_go_and_nodes_change(
    found: list[Host], pending: Pod, shards: int, data: st.DataObject
) -> None:
    cluster = cluster_of(found, pending, shards)
    check(cluster, found, pending, set())
    for step in range(4):
        at = data.draw(st.integers(0, len(found) - 1))
        host, shard = found[at], cluster.shards[at % shards]
        what = data.draw(st.sampled_from(["come", "go", "change"]))
        if what == "come":
            coming = data.draw(pods(f"more-{step}"))
            cluster.place(coming, host.node.name)
            found = with_pod(found, coming, host.node.name)
        elif what == "go" and host.pods:
            shard.table.remove_pod(host.pods[0].uid)
            found = [*found[:at], replace_pods(host, host.pods[1:]), *found[at + 1 :]]
        else:
            changed = Host(found[data.draw(st.integers(0, len(found) - 1))].node, host.pods).node
            labels = {k: v for k, v in changed.metadata.labels.items() if k != reference.HOSTNAME}
            kept = {k: v for k, v in host.labels.items() if k == reference.HOSTNAME}
            moved = _relabelled(host, labels | kept)
            shard.table.upsert_node(moved.node)
            found = [*found[:at], moved, *found[at + 1 :]]
        check(cluster, found, pending, set())


@RANDOM
@given(clusters(), arrivals(), st.integers(1, 2), st.data())
def test_hypothetical_pods_count_for_the_domains_of_their_own_node(
    found: list[Host], pending: Pod, shards: int, data: st.DataObject
) -> None:
    cluster = cluster_of(found, pending, shards)
    if not cluster.filters:
        return
    cluster.summarize()
    hard = of_kind(pending, "DoNotSchedule")
    for at, host in enumerate(found):
        shard = cluster.shards[at % shards]
        added = data.draw(st.lists(pods(f"added-{at}"), max_size=2))
        removed = [each for each in host.pods if data.draw(st.booleans())]
        own = data.draw(st.integers(0, 2))
        changes = [*((each, 1) for each in added), *((each, -1) for each in removed)]
        hypothetical = Changes(
            nodes=1,
            at=np.zeros(len(changes), dtype=np.intp),
            which=np.arange(len(changes), dtype=np.intp),
            count=np.array([count for _, count in changes], dtype=np.int64),
            kinds=[shard.table.kind(load_of(each)) for each, _ in changes],
        )
        more = Planned(np.array([own]), [shard.table.kind(load_of(pending))], np.zeros(1, dtype=np.intp))
        rows = shard.rows([host.node.name])
        with_own = replace(host, pods=[*host.pods, *[pending] * own])
        for view, expected in (
            (TableView(shard.table, rows, hypothetical), replace(host, added=added, removed=removed)),
            (TableView(shard.table, rows, more), with_own),
            (TableView(shard.table, rows, Both(more, hypothetical)), replace(with_own, added=added, removed=removed)),
        ):
            hosts = [*found[:at], expected, *found[at + 1 :]]
            [verdict] = rejected(PLUGIN, shard.state, view)
            assert VERDICTS[verdict] == reference.verdict(pending, hard, hosts, expected)


@RANDOM
@given(clusters(), arrivals(), st.data())
def test_scores_look_ahead_at_pods_of_the_class_itself(found: list[Host], pending: Pod, data: st.DataObject) -> None:
    cluster = cluster_of(found, pending, 1)
    if not cluster.scores:
        return
    names = [host.node.name for host in found]
    cluster.summarize()
    late = cluster.summarize_feasible(names)
    [shard] = cluster.shards
    name = data.draw(st.sampled_from(names))
    own, rows = data.draw(st.integers(1, 3)), shard.rows([name])
    more = Planned(np.array([own]), [shard.table.kind(load_of(pending))], np.zeros(1, dtype=np.intp))
    ahead = PLUGIN.score(shard.state, TableView(shard.table, rows, more)).tolist()
    for number in range(own):
        found = with_pod(found, pending, name)
        shard.table.add_pod(f"own-{number}", name, load_of(pending))
    cluster.summarize()
    assert cluster.summarize_feasible(names) == late
    assert PLUGIN.score(shard.state, TableView(shard.table, rows)).tolist() == ahead


def _relabelled(host: Host, labels: dict[str, str]) -> Host:
    node = host.node
    metadata = msgspec.structs.replace(node.metadata, labels=labels)
    return Host(msgspec.structs.replace(node, metadata=metadata), host.pods)
