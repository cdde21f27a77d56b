"""The queue holds every unbound pod, no bound one, and nothing else."""

import pytest

from shared.messages.watch import Kind
from testing.auditor.core import Listed, QueueRead, Unreadable, WatchLost
from testing.auditor.violations import Invariant
from testing.builders import PodBuilder
from tests.auditor.support import LAG, PATIENCE, Audit, invariants, small, web

PLACES = ["active", "backoff", "unschedulable", "gated", "in_flight"]


@pytest.mark.parametrize("place", PLACES)
def test_a_bound_pod_that_remains_queued_is_reported(place: str) -> None:
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


def test_a_pod_bound_between_two_polls_is_correct() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.queue(active=[web("p")])
    audit.wait(PATIENCE + 1)
    audit.see(web("p").on("a"))
    assert audit.queue(in_flight=[web("p")]) == []
    audit.wait(PATIENCE + 1)
    assert audit.queue() == []


def test_a_pod_may_be_binding_until_its_binding_is_seen() -> None:
    audit = Audit(small("a"))
    audit.bind(web("p"), "a")
    for _ in range(3):
        audit.wait(PATIENCE)
        assert audit.queue(binding=[web("p")]) == []


def test_a_pod_missing_from_the_queue_is_reported() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"), web("q"))
    assert audit.queue(active=[web("q")]) == []
    audit.wait(PATIENCE)
    (violation,) = audit.queue(active=[web("q")])
    assert (violation.invariant, violation.pod) == (Invariant.ACCOUNTED_FOR, "default/p")


@pytest.mark.parametrize("place", [*PLACES, "binding"])
def test_a_pod_anywhere_in_the_queue_is_accounted_for(place: str) -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    for _ in range(3):
        assert audit.queue(**{place: [web("p")]}) == []
        audit.wait(PATIENCE)


def test_a_gated_pod_must_be_in_the_queue() -> None:
    audit = Audit(small("a"))
    audit.see(web("p").gate("later"))
    audit.queue()
    audit.wait(PATIENCE)
    assert invariants(audit.queue()) == [Invariant.ACCOUNTED_FOR]


@pytest.mark.parametrize(
    "made", [web("p").scheduler("another"), web("p").phase("Failed"), web("p").terminating(), web("p").on("a")]
)
def test_pods_that_need_no_scheduling_need_not_be_queued(made: PodBuilder) -> None:
    audit = Audit(small("a"))
    audit.see(made)
    audit.queue()
    audit.wait(PATIENCE)
    assert audit.queue() == []


def test_a_queued_pod_that_does_not_exist_is_reported() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.lose(web("p"))
    assert audit.queue(backoff=[web("p")], binding=[web("never")]) == []
    audit.wait(PATIENCE)
    found = audit.queue(backoff=[web("p")], binding=[web("never")])
    assert invariants(found) == [Invariant.ACCOUNTED_FOR] * 2
    assert {violation.pod for violation in found} == {"default/p", "unknown"}


def test_an_unreadable_pod_exists() -> None:
    audit = Audit(small("a"))
    audit.tell(Unreadable(Kind.POD, "default/p"))
    for _ in range(3):
        assert audit.queue(unschedulable=[web("p")]) == []
        audit.wait(PATIENCE)


def test_a_failed_poll_restarts_the_confirmation() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.queue()
    audit.tell(QueueRead(None, audit.now))
    audit.wait(PATIENCE)
    assert audit.queue() == [], "the queue may have restarted"
    audit.wait(PATIENCE)
    assert invariants(audit.queue()) == [Invariant.ACCOUNTED_FOR]


def test_the_queue_is_not_compared_during_a_gap() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.tell(WatchLost(Kind.POD))
    for _ in range(3):
        assert audit.queue(active=[web("new")]) == []
        audit.wait(PATIENCE)
    audit.tell(Listed(Kind.POD, [web("new").build()]))
    audit.wait(LAG)
    assert audit.queue(active=[web("new")]) == []


def test_an_unneeded_relisting_does_not_delay_a_violation() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.queue()
    audit.wait(PATIENCE)
    audit.tell(Listed(Kind.POD, [web("p").build()]))
    assert invariants(audit.queue()) == [Invariant.ACCOUNTED_FOR]
