"""A pod is bound to a node that admits it: now, or as it was a moment ago."""

import pytest

from shared.messages.watch import Kind
from testing.auditor.events import Lost, NodesListed, PodsListed, Resumed, Unreadable
from testing.auditor.violations import Invariant
from testing.builders import NodeBuilder, PodBuilder, expr, pod, term
from tests.auditor.support import LAG, Audit, invariants, renewed, small

PLAIN = small("a")
SSD = small("a").label(disk="ssd", size="7")
TAINTED = small("a").taint("team", "red")
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
    (POD.tolerate("team"), TAINTED),
    (POD.tolerate(), TAINTED),
    (POD, small("a").taint("team", effect="PreferNoSchedule")),
    (POD.tolerate("node.kubernetes.io/unschedulable", effect="NoSchedule"), PLAIN.unschedulable()),
]


@pytest.mark.parametrize(("made", "on", "why"), REFUSED)
def test_a_binding_to_a_node_that_does_not_admit_the_pod_is_reported(
    made: PodBuilder, on: NodeBuilder, why: str
) -> None:
    audit = Audit(on)
    audit.bind(made, "a")
    assert audit.broken == []
    violations = audit.settle()
    assert Invariant.CONSTRAINTS in invariants(violations)
    assert violations[0].what.startswith(why)


@pytest.mark.parametrize(("made", "on"), ADMITTED)
def test_a_binding_to_a_node_that_admits_the_pod_is_right(made: PodBuilder, on: NodeBuilder) -> None:
    audit = Audit(on)
    audit.bind(made, "a")
    assert audit.settle() == []


def test_a_node_may_change_just_before_the_binding_is_seen() -> None:
    audit = Audit(PLAIN)
    audit.see(POD)
    audit.see(TAINTED)
    audit.wait(LAG - 1)
    audit.see(POD.on("a"))
    assert audit.settle() == []


def test_or_be_heard_of_just_after() -> None:
    audit = Audit(TAINTED)
    audit.bind(POD, "a")
    audit.wait(LAG - 1)
    audit.see(PLAIN)
    assert audit.settle() == []


def test_or_be_made_or_go_meanwhile() -> None:
    audit = Audit(small("b"))
    audit.bind(POD, "a")
    audit.see(PLAIN)
    audit.see(pod("q"))
    audit.lose_node("b")
    audit.see(pod("q").on("b"))
    assert audit.settle() == []


def test_a_change_of_long_ago_must_have_been_seen() -> None:
    audit = Audit(PLAIN)
    audit.see(TAINTED)
    audit.wait(LAG + 1)
    audit.bind(POD, "a")
    assert invariants(audit.settle()) == [Invariant.CONSTRAINTS]


def test_a_node_that_went_long_ago_does_not_exist() -> None:
    audit = Audit(PLAIN)
    audit.lose_node("a")
    audit.wait(LAG + 1)
    audit.see(small("b"))
    audit.bind(POD, "a")
    assert Invariant.CONSTRAINTS in invariants(audit.settle())


def test_nobody_is_to_blame_for_what_was_made_with_a_node() -> None:
    audit = Audit(TAINTED)
    audit.see(POD.on("a"))
    assert audit.settle() == []


def test_while_the_watch_of_nodes_is_away_nothing_is_final() -> None:
    audit = Audit(renewed(TAINTED, 1))
    audit.tell(Lost(Kind.NODE))
    audit.bind(POD, "a")
    audit.wait(60)
    assert audit.broken == []
    audit.tell(NodesListed([renewed(TAINTED, 3).build()]))
    assert audit.settle() == [], "it may have been without the taint in between"


def test_a_node_that_a_listing_shows_unchanged_was_so_all_the_time() -> None:
    audit = Audit(renewed(TAINTED, 1))
    audit.tell(Lost(Kind.NODE))
    audit.bind(POD, "a")
    audit.tell(NodesListed([renewed(TAINTED, 1).build()]))
    assert audit.broken == []
    assert invariants(audit.settle()) == [Invariant.CONSTRAINTS]


def test_a_binding_that_happened_unseen_rests_on_the_node_of_then() -> None:
    audit = Audit(PLAIN)
    audit.see(POD)
    audit.tell(Lost(Kind.POD))
    audit.wait(30)
    audit.see(TAINTED)
    audit.wait(30)
    audit.tell(PodsListed([POD.on("a").build()]))
    assert audit.settle() == []


def test_so_it_does_when_the_watch_goes_on_where_it_had_ended() -> None:
    audit = Audit(PLAIN)
    audit.see(POD)
    audit.tell(Lost(Kind.POD))
    audit.wait(30)
    audit.see(TAINTED)
    audit.wait(30)
    audit.tell(Resumed(Kind.POD))
    audit.see(POD.on("a"))
    assert audit.settle() == []


def test_a_watch_that_comes_and_goes_is_away_since_it_first_went() -> None:
    audit = Audit(PLAIN)
    audit.see(POD)
    audit.tell(Lost(Kind.POD))
    audit.wait(30)
    audit.see(TAINTED)
    audit.wait(30)
    audit.tell(Resumed(Kind.POD))
    audit.tell(Lost(Kind.POD))
    audit.tell(Resumed(Kind.POD))
    audit.see(POD.on("a"))
    assert audit.settle() == []


def test_nothing_is_said_of_a_node_that_cannot_be_read() -> None:
    audit = Audit(TAINTED)
    audit.tell(Unreadable(Kind.NODE, "a"))
    audit.bind(POD, "a")
    assert audit.settle() == []
