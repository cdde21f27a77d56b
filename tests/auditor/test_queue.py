"""Every pod that is not bound is in the queue, none that is bound, and nothing else."""

import pytest

from shared.messages.watch import Kind
from testing.auditor.events import Lost, PodsListed, QueueSilent, Unreadable
from testing.auditor.violations import Invariant
from testing.builders import PodBuilder
from tests.auditor.support import LAG, PATIENCE, Audit, invariants, small, web

PLACES = ["active", "backoff", "unschedulable", "gated", "in_flight"]


@pytest.mark.parametrize("place", PLACES)
def test_a_bound_pod_that_stays_queued_is_reported(place: str) -> None:
    audit = Audit(small("a"))
    audit.bind(web("p"), "a")
    audit.wait(1)
    assert audit.queue(**{place: [web("p")]}) == [], "the queue may hear of it later"
    audit.wait(PATIENCE)
    (violation,) = audit.queue(**{place: [web("p")]})
    assert (violation.invariant, violation.pod) == (Invariant.QUEUED_AND_BOUND, "default/p")
    assert place in violation.what
    audit.wait(PATIENCE)
    assert audit.queue(**{place: [web("p")]}) == [], "once is enough"


def test_a_pod_that_is_bound_between_two_looks_is_right() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.queue(active=[web("p")])
    audit.wait(PATIENCE + 1)
    audit.see(web("p").on("a"))
    assert audit.queue(in_flight=[web("p")]) == []
    audit.wait(PATIENCE + 1)
    assert audit.queue() == []


def test_until_its_binding_is_seen_it_may_be_binding() -> None:
    audit = Audit(small("a"))
    audit.bind(web("p"), "a")
    for _ in range(3):
        audit.wait(PATIENCE)
        assert audit.queue(binding=[web("p")]) == []


def test_a_pod_that_nobody_has_is_reported() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"), web("q"))
    assert audit.queue(active=[web("q")]) == []
    audit.wait(PATIENCE)
    (violation,) = audit.queue(active=[web("q")])
    assert (violation.invariant, violation.pod) == (Invariant.ACCOUNTED_FOR, "default/p")


@pytest.mark.parametrize("place", [*PLACES, "binding"])
def test_a_pod_that_is_anywhere_in_the_queue_is_accounted_for(place: str) -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    for _ in range(3):
        assert audit.queue(**{place: [web("p")]}) == []
        audit.wait(PATIENCE)


def test_a_gated_pod_has_to_be_there_as_well() -> None:
    audit = Audit(small("a"))
    audit.see(web("p").gate("later"))
    audit.queue()
    audit.wait(PATIENCE)
    assert invariants(audit.queue()) == [Invariant.ACCOUNTED_FOR]


@pytest.mark.parametrize(
    "made", [web("p").scheduler("another"), web("p").phase("Failed"), web("p").terminating(), web("p").on("a")]
)
def test_who_need_not_be_scheduled_need_not_be_there(made: PodBuilder) -> None:
    audit = Audit(small("a"))
    audit.see(made)
    audit.queue()
    audit.wait(PATIENCE)
    assert audit.queue() == []


def test_a_pod_that_does_not_exist_is_reported() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.lose(web("p"))
    assert audit.queue(backoff=[web("p")], binding=[web("never")]) == []
    audit.wait(PATIENCE)
    found = audit.queue(backoff=[web("p")], binding=[web("never")])
    assert invariants(found) == [Invariant.ACCOUNTED_FOR] * 2
    assert {violation.pod for violation in found} == {"default/p", "unknown"}


def test_a_pod_that_cannot_be_read_exists() -> None:
    audit = Audit(small("a"))
    audit.tell(Unreadable(Kind.POD, "default/p"))
    for _ in range(3):
        assert audit.queue(unschedulable=[web("p")]) == []
        audit.wait(PATIENCE)


def test_two_looks_in_a_row_mean_none_that_failed_in_between() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.queue()
    audit.tell(QueueSilent())
    audit.wait(PATIENCE)
    assert audit.queue() == [], "the queue may have begun anew"
    audit.wait(PATIENCE)
    assert invariants(audit.queue()) == [Invariant.ACCOUNTED_FOR]


def test_what_is_known_is_not_held_against_the_queue_while_a_watch_is_away() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.tell(Lost(Kind.POD))
    for _ in range(3):
        assert audit.queue(active=[web("new")]) == []
        audit.wait(PATIENCE)
    audit.tell(PodsListed([web("new").build()]))
    audit.wait(LAG)
    assert audit.queue(active=[web("new")]) == []


def test_a_listing_without_need_does_not_put_off_the_judgement() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.queue()
    audit.wait(PATIENCE)
    audit.tell(PodsListed([web("p").build()]))
    assert invariants(audit.queue()) == [Invariant.ACCOUNTED_FOR]
