"""What a tracker says of a round's decisions is what filter and summary say once they are placed."""

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flotilla.plugin import Tracker
from flotilla.results import NodeDomains
from shared.cluster.objects import ClusterObjects
from shared.cluster.view import TableView
from shared.config.args import PodTopologySpreadArgs
from shared.model.load import load_of
from shared.model.objects import Pod
from shared.plugins.podtopologyspread.plugin import PodTopologySpread
from testing.builders import node, pod, selector
from tests.plugins.podtopologyspread.reference import FITS, HOSTNAME, Host
from tests.plugins.podtopologyspread.worlds import Cluster, arrivals, clusters, of_kind, pods

RANDOM = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PLUGIN = PodTopologySpread(PodTopologySpreadArgs())


def place_of(host: Host, keys: tuple[str, ...]) -> NodeDomains:
    return NodeDomains(host.node.name, {key: host.labels[key] for key in keys if key in host.labels})


@RANDOM
@given(clusters(), arrivals(), st.integers(1, 2), st.data())
def test_what_it_admits_the_filter_lets_through(
    found: list[Host], pending: Pod, shards: int, data: st.DataObject
) -> None:
    cluster = Cluster(PLUGIN, found, pending, shards, ClusterObjects())
    summary = cluster.summarize()
    feasible = [name for name, verdict in cluster.verdicts().items() if verdict == FITS]
    late = cluster.summarize_feasible(feasible)
    [first, *_] = cluster.shards
    topology = PLUGIN.topology(first.state, TableView(first.table))
    tracker = PLUGIN.tracker(pending, summary, late, (0, 10))
    if topology is None or tracker is None:
        assert all(each.topology_key == HOSTNAME for each in of_kind(pending, "ScheduleAnyway"))
        assert not of_kind(pending, "DoNotSchedule")
        return
    hard = of_kind(pending, "DoNotSchedule")
    parts = summary["hard"]  # type: ignore[index]
    sure = all(part["every"] for part in parts) and all(each.topology_key != HOSTNAME for each in hard)
    untouched = {host.node.name: host for host in found if host.node.name in feasible}
    for step in range(6):
        own = data.draw(st.booleans())
        offered = [h for h in untouched.values() if tracker.admits(place_of(h, topology.keys))] if own else found
        if not offered:
            continue
        host = data.draw(st.sampled_from(offered))
        each = pending if own else data.draw(pods(f"other-{step}", alive=True))
        coming = msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, uid=f"uid-{step}"))
        tracker.placed("own" if own else f"class-{step}", load_of(coming), place_of(host, topology.keys))
        cluster.place(coming, host.node.name)
        untouched.pop(host.node.name, None)
        summary = cluster.summarize()
        now = cluster.verdicts()
        for name, candidate in untouched.items():
            admitted = tracker.admits(place_of(candidate, topology.keys))
            assert not admitted or now[name] == FITS
            assert not sure or admitted == (now[name] == FITS)
        if sure:
            assert tracker.summary()["hard"] == summary["hard"]  # type: ignore[index]


def three_zones(*pods_there: int) -> list[Host]:
    """Two nodes a zone, and this many web pods in each zone."""
    found = []
    for zone, there in zip("abc", pods_there, strict=True):
        for number in (0, 1):
            built = node(f"{zone}{number}").label({"zone": zone, HOSTNAME: f"{zone}{number}"}).build()
            web = [pod(f"{zone}-{i}").label(app="web").build() for i in range(there)] if number == 0 else []
            found.append(Host(built, web))
    return found


def follow(found: list[Host], pending: Pod, scores: tuple[int, int] | None = None) -> tuple[Tracker, Cluster]:
    cluster = Cluster(PLUGIN, found, pending, 2, ClusterObjects())
    summary = cluster.summarize()
    late = cluster.summarize_feasible([n for n, verdict in cluster.verdicts().items() if verdict == FITS])
    tracker = PLUGIN.tracker(pending, summary, late, scores)
    assert tracker is not None
    return tracker, cluster


WEB = pod("new").label(app="web")


def test_a_domain_closes_and_opens_again() -> None:
    pending = WEB.spread_hard("zone", selector(app="web")).build()
    tracker, _ = follow(three_zones(0, 0, 0), pending)
    a, b, c = (NodeDomains(f"{zone}1", {"zone": zone}) for zone in "abc")
    assert tracker.admits(a)
    tracker.placed("web", load_of(pending), a)
    assert tracker.touched
    assert not tracker.admits(a)
    tracker.placed("web", load_of(pending), b)
    assert not tracker.admits(a)
    tracker.placed("web", load_of(pending), c)
    assert tracker.admits(a)


def test_pods_of_no_concern_touch_nothing() -> None:
    pending = WEB.spread_hard("zone", selector(app="web")).build()
    tracker, _ = follow(three_zones(0, 0, 0), pending)
    a = NodeDomains("a1", {"zone": "a"})
    tracker.placed("db", load_of(pod("db").label(app="db").build()), a)
    tracker.placed("elsewhere", load_of(pod("web", "other").label(app="web").build()), a)
    assert not tracker.touched
    assert tracker.admits(a)


def test_a_node_that_may_not_take_part_does_not_raise_the_lowest_count() -> None:
    found = three_zones(0, 0, 0)
    tainted = [Host(node("t").label(zone="b").taint("t").build())]
    pending = WEB.spread(
        msgspec.structs.replace(
            WEB.spread_hard("zone", selector(app="web")).build().spec.topology_spread_constraints[0],
            node_taints_policy="Honor",
        )
    ).build()
    tracker, _ = follow(found + tainted, pending)
    for zone in "abc":
        tracker.placed("other", load_of(pending), NodeDomains("t" if zone == "b" else f"{zone}0", {"zone": zone}))
    assert not tracker.admits(NodeDomains("a1", {"zone": "a"}))
    for zone in "abc":
        tracker, _ = follow(found + tainted, pending)
        place = NodeDomains(f"{zone}0", {"zone": zone})
        assert tracker.admits(place)


def test_nor_does_it_if_the_class_itself_goes_there() -> None:
    tainted = [Host(node("t").label(zone="c").taint("t").build())]
    spread = WEB.spread_hard("zone", selector(app="web")).build().spec.topology_spread_constraints[0]
    pending = WEB.spread(msgspec.structs.replace(spread, node_taints_policy="Honor")).build()
    tracker, cluster = follow(three_zones(1, 1, 0) + tainted, pending)
    there = NodeDomains("t", {"zone": "c"})
    assert tracker.admits(there)
    tracker.placed("own", load_of(pending), there)
    cluster.place(pending, "t")
    cluster.summarize()
    assert cluster.verdicts()["a1"] != FITS
    assert not tracker.admits(NodeDomains("a1", {"zone": "a"}))


def test_scores_shift_with_the_share_of_the_domain() -> None:
    pending = WEB.spread_soft("zone", selector(app="web")).build()
    found = three_zones(2, 1, 0)
    tracker, cluster = follow(found, pending, (0, 3))
    names = [host.node.name for host in found]
    raw = cluster.raw_scores(names)
    tracker, _ = follow(found, pending, (min(raw.values()), max(raw.values())))
    a, b, c = (NodeDomains(f"{zone}1", {"zone": zone}) for zone in "abc")
    assert [tracker.shift(place, 0) for place in (a, b, c)] == [0, 0, 0]
    tracker.placed("web", load_of(pending), c)
    assert tracker.shift(a, 0) == tracker.shift(b, 0) == 0
    assert -60 <= tracker.shift(c, 0) <= -45
    assert tracker.shift(c, 1) == 0
    assert not tracker.touched


def test_scores_shift_from_nothing_at_all() -> None:
    pending = WEB.spread_soft("zone", selector(app="web")).build()
    tracker, _ = follow(three_zones(0, 0, 0), pending, (0, 0))
    a, b, _ = (NodeDomains(f"{zone}1", {"zone": zone}) for zone in "abc")
    tracker.placed("web", load_of(pending), a)
    assert tracker.shift(a, 0) == -100
    assert tracker.shift(b, 0) == 0


def test_a_pod_without_constraints_is_not_followed() -> None:
    assert PLUGIN.tracker(pod("plain").build(), None, None, None) is None
    soft = WEB.spread_soft(HOSTNAME, selector(app="web")).build()
    cluster = Cluster(PLUGIN, three_zones(1, 0, 0), soft, 1, ClusterObjects())
    assert PLUGIN.tracker(soft, cluster.summarize(), None, None) is None
