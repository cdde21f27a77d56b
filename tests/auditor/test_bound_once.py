"""A pod is bound to one node, once."""

from shared.messages.watch import Kind
from testing.auditor.core import Listed, WatchLost
from testing.auditor.violations import Invariant
from tests.auditor.support import Audit, invariants, small, versioned, web


def test_a_pod_that_moves_to_another_node_is_reported_with_its_story() -> None:
    audit = Audit(small("a"), small("b"))
    audit.bind(web("p"), "a")
    (violation,) = audit.see(web("p").on("b"))
    assert violation.invariant is Invariant.BOUND_ONCE
    assert (violation.pod, violation.what) == ("default/p", "was bound to node a and is now bound to node b")
    assert [line.partition(" ")[2] for line in violation.story] == ["seen", "bound to node a", "moved from node a to b"]
    assert "pod default/p" in str(violation)


def test_a_pod_that_is_no_longer_bound_is_reported() -> None:
    audit = Audit(small("a"))
    audit.bind(web("p"), "a")
    assert invariants(audit.see(web("p"))) == [Invariant.BOUND_ONCE]


def test_a_move_shown_by_a_listing_is_reported() -> None:
    audit = Audit(small("a"), small("b"))
    audit.bind(web("p"), "a")
    audit.tell(WatchLost(Kind.POD))
    assert invariants(audit.tell(Listed(Kind.POD, [web("p").on("b").build()]))) == [Invariant.BOUND_ONCE]


def test_a_pod_of_the_same_name_with_another_uid_is_another_pod() -> None:
    audit = Audit(small("a"), small("b"))
    audit.bind(web("p").uid("1"), "a")
    audit.lose(web("p").uid("1"))
    audit.bind(web("p").uid("2"), "b")
    assert audit.settle() == []


def test_a_recreated_pod_in_a_listing_is_another_pod() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p").uid("1"), "a")
    audit.tell(WatchLost(Kind.POD))
    audit.tell(Listed(Kind.POD, [web("p").uid("2").on("a").build()]))
    assert audit.settle() == []


def test_an_outdated_version_of_a_pod_is_ignored() -> None:
    audit = Audit(small("a"))
    audit.see(versioned(web("p"), 5), versioned(web("p").on("a"), 9), versioned(web("p"), 6))
    assert audit.settle() == []
    assert audit.core.counts().waiting == 0


def test_updates_of_a_bound_pod_are_not_bindings() -> None:
    audit = Audit(small("a", cpu="1"))
    audit.bind(web("p"), "a")
    audit.see(web("p").on("a").phase("Running"), web("p").on("a").condition("Ready"), web("p").on("a").terminating())
    assert audit.settle() == []
    assert audit.core.counts().bound == 1
