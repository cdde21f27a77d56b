"""A pod is bound to a node that admits it: now, or as the node was a moment ago."""

import pytest

from shared.messages.watch import Kind
from shared.model.objects import Toleration
from testing.auditor.core import Listed, Unreadable, WatchLost, WatchResumed
from testing.auditor.violations import Invariant
from testing.builders import NodeBuilder, PodBuilder, expr, pod, term
from tests.auditor.support import LAG, Audit, invariants, renewed, small

PLAIN = small("a")
SSD = small("a").label(disk="ssd", size="7")
TAINTED = small("a").taint("team", "red")
LOADED = small("a").taint("load", "7")
POD = pod("p")

REFUSED = [
    (POD.node_selector(disk="ssd"), PLAIN, "node selector disk=ssd is not matched, the label is None"),
    (POD.require_node(expr("disk", "In", "ssd")), PLAIN, "none of the 1 terms"),
    (POD.require_node(expr("disk", "NotIn", "ssd")), SSD, "none of the 1 terms"),
    (POD.require_node(expr("disk", "Exists")), PLAIN, "none of the 1 terms"),
    (POD.require_node(expr("disk", "DoesNotExist")), SSD, "none of the 1 terms"),
    (POD.require_node(expr("size", "Gt", "7")), SSD, "none of the 1 terms"),
    (POD.require_node(expr("size", "Lt", "7")), SSD, "none of the 1 terms"),
    (POD.require_node(expr("disk", "Gt", "7")), SSD, "none of the 1 terms"),
    (POD.require_node(term(name="b")), PLAIN, "none of the 1 terms"),
    (POD.require_node(term()), PLAIN, "none of the 1 terms"),
    (POD, TAINTED, "taint team=red:NoSchedule is not tolerated"),
    (POD.tolerate("team", "blue"), TAINTED, "taint team=red"),
    (POD.tolerate("team", "red", "NoExecute"), TAINTED, "taint team=red"),
    (POD.toleration(Toleration(key="load", operator="Gt", value="7")), LOADED, "taint load=7"),
    (POD.toleration(Toleration(key="load", operator="Lt", value="7")), LOADED, "taint load=7"),
    (POD.toleration(Toleration(key="team", operator="Lt", value="7")), TAINTED, "taint team=red"),
    (POD, small("a").taint("gone", effect="NoExecute"), "taint gone=:NoExecute"),
    (POD, PLAIN.unschedulable(), "the node is unschedulable"),
    (POD, small("b"), "no such node is known"),
]
ADMITTED = [
    (POD.node_selector(disk="ssd"), SSD),
    (POD.require_node(expr("disk", "In", "hdd"), expr("disk", "In", "ssd")), SSD),
    (POD.require_node(expr("disk", "NotIn", "ssd")), PLAIN),
    (POD.require_node(expr("size", "Gt", "6")), SSD),
    (POD.require_node(term(name="a")), PLAIN),
    (POD.prefer_node(1, expr("disk", "In", "ssd")), PLAIN),
    (POD.tolerate("team", "red"), TAINTED),
    (POD.toleration(Toleration(key="load", operator="Gt", value="6")), LOADED),
    (POD.toleration(Toleration(key="load", operator="Lt", value="8")), LOADED),
    (POD.tolerate("team"), TAINTED),
    (POD.tolerate(), TAINTED),
    (POD, small("a").taint("team", effect="PreferNoSchedule")),
    (POD.tolerate("node.kubernetes.io/unschedulable", effect="NoSchedule"), PLAIN.unschedulable()),
]


@pytest.mark.parametrize(("made", "on", "why"), REFUSED)
def test_a_binding_against_node_constraints_is_reported(made: PodBuilder, on: NodeBuilder, why: str) -> None:
    audit = Audit(on)
    audit.bind(made, "a")
    assert audit.broken == []
    violations = audit.settle()
    assert Invariant.CONSTRAINTS in invariants(violations)
    assert violations[0].what.startswith(why)


@pytest.mark.parametrize(("made", "on"), ADMITTED)
def test_a_binding_that_meets_node_constraints_is_correct(made: PodBuilder, on: NodeBuilder) -> None:
    audit = Audit(on)
    audit.bind(made, "a")
    assert audit.settle() == []


def test_a_node_may_change_shortly_before_the_binding_is_seen() -> None:
    audit = Audit(PLAIN)
    audit.see(POD)
    audit.see(TAINTED)
    audit.wait(LAG - 1)
    audit.see(POD.on("a"))
    assert audit.settle() == []


def test_a_node_change_may_be_seen_shortly_after_the_binding() -> None:
    audit = Audit(TAINTED)
    audit.bind(POD, "a")
    audit.wait(LAG - 1)
    audit.see(PLAIN)
    assert audit.settle() == []


def test_a_node_may_be_created_or_deleted_around_the_binding() -> None:
    audit = Audit(small("b"))
    audit.bind(POD, "a")
    audit.see(PLAIN)
    audit.see(pod("q"))
    audit.lose_node("b")
    audit.see(pod("q").on("b"))
    assert audit.settle() == []


def test_a_binding_may_not_rest_on_an_old_version_of_a_node() -> None:
    audit = Audit(PLAIN)
    audit.see(TAINTED)
    audit.wait(LAG + 1)
    audit.bind(POD, "a")
    assert invariants(audit.settle()) == [Invariant.CONSTRAINTS]


def test_a_binding_to_a_node_deleted_long_ago_is_reported() -> None:
    audit = Audit(PLAIN)
    audit.lose_node("a")
    audit.wait(LAG + 1)
    audit.see(small("b"))
    audit.bind(POD, "a")
    assert Invariant.CONSTRAINTS in invariants(audit.settle())


def test_a_pod_created_with_a_node_is_not_checked() -> None:
    audit = Audit(TAINTED)
    audit.see(POD.on("a"))
    assert audit.settle() == []


def test_violations_stay_pending_while_the_node_watch_is_interrupted() -> None:
    audit = Audit(renewed(TAINTED, 1))
    audit.tell(WatchLost(Kind.NODE))
    audit.bind(POD, "a")
    audit.wait(60)
    assert audit.broken == []
    audit.tell(Listed(Kind.NODE, [renewed(TAINTED, 3).build()]))
    assert audit.settle() == [], "it may have been without the taint in between"


def test_a_node_unchanged_in_a_listing_did_not_change_during_the_gap() -> None:
    audit = Audit(renewed(TAINTED, 1))
    audit.tell(WatchLost(Kind.NODE))
    audit.bind(POD, "a")
    audit.tell(Listed(Kind.NODE, [renewed(TAINTED, 1).build()]))
    assert audit.broken == []
    assert invariants(audit.settle()) == [Invariant.CONSTRAINTS]


def test_a_binding_during_a_gap_is_checked_against_the_node_before_it() -> None:
    audit = Audit(PLAIN)
    audit.see(POD)
    audit.tell(WatchLost(Kind.POD))
    audit.wait(30)
    audit.see(TAINTED)
    audit.wait(30)
    audit.tell(Listed(Kind.POD, [POD.on("a").build()]))
    assert audit.settle() == []


def test_a_binding_seen_after_a_resumed_watch_is_checked_against_the_node_before_it() -> None:
    audit = Audit(PLAIN)
    audit.see(POD)
    audit.tell(WatchLost(Kind.POD))
    audit.wait(30)
    audit.see(TAINTED)
    audit.wait(30)
    audit.tell(WatchResumed(Kind.POD))
    audit.see(POD.on("a"))
    assert audit.settle() == []


def test_repeated_interruptions_count_as_one_gap() -> None:
    audit = Audit(PLAIN)
    audit.see(POD)
    audit.tell(WatchLost(Kind.POD))
    audit.wait(30)
    audit.see(TAINTED)
    audit.wait(30)
    audit.tell(WatchResumed(Kind.POD))
    audit.tell(WatchLost(Kind.POD))
    audit.tell(WatchResumed(Kind.POD))
    audit.see(POD.on("a"))
    assert audit.settle() == []


def test_bindings_to_an_unreadable_node_are_not_reported() -> None:
    audit = Audit(TAINTED)
    audit.tell(Unreadable(Kind.NODE, "a"))
    audit.bind(POD, "a")
    assert audit.settle() == []
