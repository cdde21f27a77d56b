"""PodTopologySpread: reasons, signatures, and the cases that are easily got wrong."""

import msgspec
import numpy as np
import pytest

from flotilla.results import Code, Status
from shared.cluster.objects import ClusterObjects
from shared.cluster.view import Changes, TableView
from shared.config.args import PodTopologySpreadArgs
from shared.config.feature_gates import FeatureGates
from shared.model.load import load_of
from shared.model.objects import LabelSelector, ObjectMeta, Toleration, TopologySpreadConstraint
from shared.plugins.grouping import IGNORED
from shared.plugins.podtopologyspread import plugin as spreading
from shared.plugins.podtopologyspread.plugin import PodTopologySpread
from testing.builders import PodBuilder, node, pod, selector
from tests.plugins.cluster import rejected
from tests.plugins.podtopologyspread.reference import FITS, HOSTNAME, NO_LABEL, SKEWED, Host
from tests.plugins.podtopologyspread.worlds import Cluster

PLUGIN = PodTopologySpread(PodTopologySpreadArgs())
WEB = pod("new").label(app="web", rev="2")
MISMATCH = "node(s) didn't match pod topology spread constraints"


def constraint(**more: object) -> TopologySpreadConstraint:
    base = TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=selector(app="web")
    )
    return msgspec.structs.replace(base, **more)


def host(name: str, zone: str | None, *web: PodBuilder) -> Host:
    built = node(name).label({HOSTNAME: name})
    there = [each.uid(f"{name}/{i}").build() for i, each in enumerate(web)]
    return Host((built if zone is None else built.label(zone=zone)).build(), there)


def verdicts(built: PodBuilder, *found: Host, plugin: PodTopologySpread = PLUGIN) -> dict[str, str]:
    cluster = Cluster(plugin, found, built.build(), 2, ClusterObjects())
    cluster.summarize()
    return cluster.verdicts()


def test_why_nodes_are_rejected() -> None:
    assert Status(Code.UNSCHEDULABLE, (MISMATCH,)) == spreading.SKEWED
    assert Status(Code.UNRESOLVABLE, (f"{MISMATCH} (missing required label)",)) == spreading.LABEL_MISSING


def test_the_first_constraint_that_fails_decides_why() -> None:
    built = WEB.spread(constraint()).spread(constraint(topology_key="rack"))
    found = [host("a", "a", WEB), host("b", "b")]
    assert verdicts(built, *found) == {"a": NO_LABEL, "b": NO_LABEL}  # no node takes part: nothing is counted
    racks = [Host(msgspec.structs.replace(h.node, metadata=_with_rack(h)), h.pods) for h in found]
    bare = host("c", "a")
    assert verdicts(built, *racks, bare) == {"a": SKEWED, "b": FITS, "c": SKEWED}


def _with_rack(of: Host) -> ObjectMeta:
    metadata = of.node.metadata
    return msgspec.structs.replace(metadata, labels={**metadata.labels, "rack": of.node.name})


def test_too_few_domains_make_the_lowest_count_zero() -> None:
    found = [host("a", "a", WEB), host("b", "b", WEB)]
    assert verdicts(WEB.spread(constraint(min_domains=2)), *found) == {"a": FITS, "b": FITS}
    assert verdicts(WEB.spread(constraint(min_domains=3)), *found) == {"a": SKEWED, "b": SKEWED}


def test_an_empty_selector_counts_none_but_the_pod_itself() -> None:
    found = [host("a", "a", WEB, WEB, WEB), host("b", "b")]
    assert verdicts(WEB.spread(constraint(label_selector=LabelSelector())), *found) == {"a": FITS, "b": FITS}


@pytest.mark.parametrize("keys", [[], ["rev"]])
def test_no_selector_matches_nothing_with_any_label_keys(keys: list[str]) -> None:
    found = [host("a", "a", WEB, WEB, WEB), host("b", "b")]
    built = WEB.spread(constraint(label_selector=None, match_label_keys=keys))
    assert verdicts(built, *found) == {"a": FITS, "b": FITS}


def test_label_keys_are_matched_whether_they_were_merged_before_or_not() -> None:
    old = pod("old").label(app="web", rev="1")
    found = [host("a", "a", old, old), host("b", "b")]
    assert verdicts(WEB.spread(constraint()), *found) == {"a": SKEWED, "b": FITS}
    assert verdicts(WEB.spread(constraint(match_label_keys=["rev", "nowhere"])), *found) == {"a": FITS, "b": FITS}
    merged = constraint(match_label_keys=["rev"], label_selector=selector(app="web", rev="2"))
    assert verdicts(WEB.spread(merged), *found) == {"a": FITS, "b": FITS}


def test_without_its_gate_label_keys_are_not_matched() -> None:
    """Those that the API server has merged into the selector are, since they are part of it."""
    off = "MatchLabelKeysInPodTopologySpread=false,MatchLabelKeysInPodTopologySpreadSelectorMerge=false"
    plugin = PodTopologySpread(PodTopologySpreadArgs(), FeatureGates.parse(off))
    old = pod("old").label(app="web", rev="1")
    found = [host("a", "a", old, old), host("b", "b")]
    built = WEB.spread(constraint(match_label_keys=["rev"]))
    assert verdicts(built, *found, plugin=plugin) == {"a": SKEWED, "b": FITS}
    merged = WEB.spread(constraint(match_label_keys=["rev"], label_selector=selector(app="web", rev="2")))
    assert verdicts(merged, *found, plugin=plugin) == {"a": FITS, "b": FITS}


def test_tolerations_that_compare_numbers_let_nodes_take_part_with_their_gate() -> None:
    plugin = PodTopologySpread(PodTopologySpreadArgs(), FeatureGates.parse("TaintTolerationComparisonOperators=true"))
    tolerant = WEB.spread(constraint(node_taints_policy="Honor")).toleration(
        Toleration(key="sla", operator="Gt", value="1")
    )
    free = Host(node("b").label({HOSTNAME: "b", "zone": "b"}).taint("sla", "2").build(), [])
    found = [host("a", "a", WEB), free]
    assert verdicts(tolerant, *found, plugin=plugin)["a"] == SKEWED
    assert verdicts(tolerant, *found)["a"] == FITS


def test_terminating_pods_and_other_namespaces_do_not_count() -> None:
    found = [host("a", "a", WEB.terminating(), WEB.namespace("other")), host("b", "b")]
    assert verdicts(WEB.spread(constraint()), *found) == {"a": FITS, "b": FITS}


def test_hosts_that_share_a_name_are_one_domain() -> None:
    found = [host("a", "a", WEB), host("b", "b"), host("c", "c")]
    twins = [Host(node(h.node.name).label({HOSTNAME: "twin"}).build(), h.pods) for h in found[:2]]
    built = WEB.spread(constraint(topology_key=HOSTNAME))
    assert verdicts(built, *twins, found[2]) == {"a": SKEWED, "b": SKEWED, "c": FITS}


def test_signatures_name_what_is_read() -> None:
    base = WEB.spread(constraint())
    assert PLUGIN.signature(base.build()) == PLUGIN.signature(base.uid("another").build())
    others = [
        base.label(app="db"),
        base.namespace("other"),
        base.node_selector(disk="ssd"),
        base.tolerate("t"),
        WEB.spread(constraint(max_skew=2)),
        WEB,
        WEB.owner("ReplicaSet", "rs"),
    ]
    signatures = {PLUGIN.signature(each.build()) for each in (base, *others)}
    assert len(signatures) == len(others) + 1


def test_what_has_no_constraints_is_skipped_and_tells_nothing() -> None:
    cluster = Cluster(PLUGIN, [host("a", "a")], WEB.build(), 1, ClusterObjects())
    assert not cluster.filters
    assert not cluster.scores
    assert cluster.summarize() is None
    assert cluster.summarize_feasible(["a"]) is None
    assert cluster.verdicts() == {"a": FITS}


def test_scores_of_ignored_nodes_end_as_zero_and_stay_out_of_the_range() -> None:
    built = WEB.spread(constraint(when_unsatisfiable="ScheduleAnyway", max_skew=3))
    found = [host("a", "a", WEB), host("b", "b"), host("x", None)]
    cluster = Cluster(PLUGIN, found, built.build(), 2, ClusterObjects())
    cluster.summarize()
    cluster.summarize_feasible(["a", "b", "x"])
    assert cluster.raw_scores(["a", "b", "x"]) == {"a": 3, "b": 2, "x": IGNORED}
    assert cluster.normalized(["a", "b", "x"]) == {"a": 66, "b": 100, "x": 0}
    assert cluster.normalized(["x"]) == {"x": 0}


def test_without_anything_to_count_all_nodes_are_alike() -> None:
    built = WEB.spread(constraint(when_unsatisfiable="ScheduleAnyway"))
    found = [host("a", "a"), host("b", "b")]
    cluster = Cluster(PLUGIN, found, built.build(), 1, ClusterObjects())
    cluster.summarize()
    assert cluster.raw_scores(["a", "b"]) == {"a": 0, "b": 0}  # before it is known what is feasible
    cluster.summarize_feasible(["a", "b"])
    assert cluster.normalized(["a", "b"]) == {"a": 100, "b": 100}


def test_shards_that_disagree_on_the_constraints_settle_for_one_of_them() -> None:
    built = WEB.spread(constraint()).build()
    cluster = Cluster(PLUGIN, [host("a", "a", WEB), host("b", "b")], built, 1, ClusterObjects())
    mine = cluster.summarize()
    assert PLUGIN.merge(mine, None) == PLUGIN.merge(None, mine) == mine
    other: dict[str, object] = {"fellows": None, "hard": [], "soft": []}
    assert PLUGIN.merge(mine, other) == PLUGIN.merge(other, mine)
    cluster.shards[0].state.summaries = {PLUGIN.name: other}
    assert cluster.verdicts() == {"a": SKEWED, "b": FITS}


def test_pods_on_a_node_that_takes_no_part_never_count() -> None:
    tainted = Host(node("t").label({HOSTNAME: "t", "zone": "a"}).taint("t").build())
    built = WEB.spread(constraint(node_taints_policy="Honor")).build()
    cluster = Cluster(PLUGIN, [host("a", "a"), host("b", "b"), tainted], built, 1, ClusterObjects())
    cluster.summarize()
    cluster.place(WEB.uid("more").build(), "t")
    cluster.summarize()
    assert cluster.verdicts() == {"a": FITS, "b": FITS, "t": FITS}


@pytest.mark.parametrize("labels", [selector(app="web"), LabelSelector()])
def test_taking_a_pod_away_counts_even_if_it_was_not_counted(labels: LabelSelector) -> None:
    built = WEB.spread(constraint(label_selector=labels, max_skew=1)).build()
    found = [host("a", "a", WEB, WEB.terminating()), host("b", "b")]
    cluster = Cluster(PLUGIN, found, built, 1, ClusterObjects())
    cluster.summarize()
    [shard] = cluster.shards
    leaving = shard.table.kind(load_of(found[0].pods[1]))
    one, none = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.intp)
    gone = Changes(1, none, none, -one, [leaving])
    added = Changes(1, none, none, one, [leaving])
    rows = shard.rows(["a"])
    counted = labels == selector(app="web")
    assert rejected(PLUGIN, shard.state, TableView(shard.table, rows)) == [spreading.SKEWED if counted else None]
    assert rejected(PLUGIN, shard.state, TableView(shard.table, rows, gone)) == [None]
    assert rejected(PLUGIN, shard.state, TableView(shard.table, rows, added)) == [spreading.SKEWED]


def test_what_may_open_before_a_round_is_over() -> None:
    built = WEB.spread(constraint()).spread(constraint(topology_key=HOSTNAME)).build()
    found = [host("a", "a", WEB), host("a2", "a"), host("b", "b"), host("x", None)]
    cluster = Cluster(PLUGIN, found, built, 1, ClusterObjects())
    cluster.summarize()
    assert cluster.verdicts() == {"a": SKEWED, "a2": SKEWED, "b": FITS, "x": NO_LABEL}
    assert cluster.open_verdicts() == {"a": SKEWED, "a2": FITS, "b": FITS, "x": NO_LABEL}


def test_a_node_that_takes_no_part_does_not_open() -> None:
    tainted = Host(node("t").label({HOSTNAME: "t", "zone": "a"}).taint("t").build())
    built = WEB.spread(constraint(node_taints_policy="Honor")).build()
    cluster = Cluster(PLUGIN, [host("a", "a", WEB), host("b", "b"), tainted], built, 1, ClusterObjects())
    cluster.summarize()
    assert cluster.verdicts() == {"a": SKEWED, "b": FITS, "t": SKEWED}
    assert cluster.open_verdicts() == {"a": FITS, "b": FITS, "t": SKEWED}
