"""Every ledger entry and every wait for a permit ends, and nothing is left over at the end."""

import pytest

from shared.messages.binding import BindingOutcome, BindingOutcomes
from shared.messages.watch import Kind
from testing.auditor.core import LedgerRead, Listed, WatchLost
from testing.auditor.violations import Invariant
from tests.auditor.support import LAG, PATIENCE, Audit, entry, invariants, small, web

# The ledger


@pytest.mark.parametrize("skew", [-60.0, 0.0, 60.0])
def test_an_entry_past_its_window_is_reported_regardless_of_the_owners_clock(skew: float) -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    late = entry(web("p"), "a", window=2 * LAG, clock=audit.now + skew)
    for _ in range(2):
        assert audit.ledger(late) == []
        audit.wait(LAG)
    audit.wait(LAG + 1)
    assert audit.ledger(late) == [], "it may be about to be looked up"
    audit.wait(PATIENCE)
    (violation,) = audit.ledger(late)
    assert (violation.invariant, violation.pod, violation.node) == (Invariant.LEDGER_ENDS, "default/p", "a")


@pytest.mark.parametrize("step", [-60.0, 0.0, 60.0])
def test_a_renewed_window_restarts_even_if_the_owners_clock_steps(step: float) -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    for round in range(10):
        audit.wait(PATIENCE)
        assert audit.ledger(entry(web("p"), "a", window=PATIENCE, clock=audit.now + step * (round % 2))) == []


def test_an_entry_that_holds_devices_of_an_ended_attempt_is_only_reported_at_the_end() -> None:
    audit = Audit(small("a"))
    held = entry(web("p"), "a", window=-1.0).hold()
    audit.ledger(held)
    audit.wait(PATIENCE)
    assert audit.ledger(held) == []
    assert invariants(audit.finish()) == [Invariant.LEDGER_ENDS]


def test_entries_are_not_reported_while_the_ledger_is_unavailable() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    late = entry(web("p"), "a", window=-1.0)
    audit.ledger(late)
    audit.tell(LedgerRead(None, audit.now))
    audit.wait(PATIENCE)
    assert audit.ledger(late) == []


def test_an_entry_of_a_bound_deleted_or_finished_pod_must_be_removed() -> None:
    audit = Audit(small("a"))
    bound, gone, finished = web("bound"), web("gone"), web("finished")
    audit.bind(bound, "a")
    audit.bind(finished, "a")
    audit.see(finished.on("a").phase("Succeeded"))
    entries = [entry(made, "a") for made in (bound, gone, finished)]
    assert audit.ledger(*entries) == []
    audit.wait(PATIENCE)
    whys = [violation.what.partition(",")[0] for violation in audit.ledger(*entries)]
    assert whys == ["the pod is bound to node a", "the pod does not exist", "the pod has finished"]


def test_another_attempt_is_another_entry() -> None:
    audit = Audit(small("a"))
    for attempt in range(5):
        assert audit.ledger(entry(web("gone"), "a", attempt=attempt)) == []
        audit.wait(PATIENCE)


# Permits


def reported(outcome: BindingOutcome) -> BindingOutcomes:
    return BindingOutcomes("binder-0", 1, 1, [outcome])


def waiting(seconds: float) -> BindingOutcomes:
    return reported(BindingOutcome("default/p", 1, wait=seconds))


def test_a_permit_wait_that_does_not_end_is_reported() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.tell(waiting(20))
    assert audit.wait(20 + PATIENCE) == []
    (violation,) = audit.wait(1)
    assert (violation.invariant, violation.pod) == (Invariant.PERMIT_ENDS, "default/p")
    assert audit.wait(60) == []


def test_a_permit_wait_may_be_extended() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    for _ in range(5):
        audit.tell(waiting(20))
        assert audit.wait(20) == []


def test_a_permit_wait_may_end_unseen_during_a_gap() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.tell(waiting(20))
    audit.tell(WatchLost(Kind.POD))
    audit.wait(60)
    audit.tell(Listed(Kind.POD, [web("p").on("a").build()]))
    assert audit.settle() == []


def test_a_permit_wait_ends_with_an_outcome_the_pod_or_its_entry() -> None:
    for ends in ("outcome", "bound", "gone", "entry"):
        audit = Audit(small("a"))
        audit.see(web("p"))
        audit.tell(waiting(20))
        audit.wait(1)
        match ends:
            case "outcome":
                audit.tell(reported(BindingOutcome("default/p", 1, reason="denied")))
            case "bound":
                audit.see(web("p").on("a"))
            case "gone":
                audit.lose(web("p"))
            case "entry":
                audit.ledger()
        audit.wait(60)
        assert audit.broken == [], ends


# The end


def test_a_run_without_fault_ends_without_violation() -> None:
    audit = Audit(small("a"))
    audit.bind(web("p"), "a")
    audit.queue()
    audit.ledger()
    assert audit.finish() == []


def test_a_pod_left_unbound_is_reported_unless_expected() -> None:
    audit = Audit(small("a"))
    audit.bind(web("p"), "a")
    audit.see(web("q", cpu="9"))
    audit.queue(unschedulable=[web("q")])
    assert invariants(audit.finish()) == [Invariant.ALL_BOUND]
    assert audit.finish(unbound=1) == []
    assert audit.finish(unbound=lambda record: record.key == "default/q") == []
    (violation,) = audit.finish(unbound=lambda record: False)
    assert violation.pod == "default/q"


def test_fewer_unbound_pods_than_expected_are_reported() -> None:
    audit = Audit(small("a"))
    assert invariants(audit.finish(unbound=1)) == [Invariant.ALL_BOUND]


def test_pods_still_in_progress_at_the_end_are_reported() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.tell(waiting(20))
    audit.ledger(entry(web("p"), "a"))
    audit.queue(in_flight=[web("p")])
    assert invariants(audit.finish(unbound=1)) == [
        Invariant.LEDGER_ENDS,
        Invariant.ALL_BOUND,
        Invariant.PERMIT_ENDS,
    ]


# What is counted


def test_pods_are_counted_and_timed() -> None:
    audit = Audit(small("a"), pods=[web("old").on("a")])
    audit.see(web("p"), web("q"), web("r").gate("later"))
    audit.wait(1)
    audit.see(web("p").on("a"))
    audit.wait(2)
    audit.see(web("q").on("a"), web("r"))
    audit.wait(0.5)
    audit.see(web("r").on("a"))
    counts = audit.core.counts()
    assert (counts.created, counts.bound, counts.waiting, counts.pods, counts.nodes) == (3, 3, 0, 4, 1)
    latencies = [audit.core.latency(quantile) for quantile in (0.0, 0.5, 1.0)]
    assert latencies == [0.5, 1.0, 3.0], "less the time with gates"


def test_gated_pods_are_counted() -> None:
    audit = Audit(small("a"))
    audit.see(web("p").gate("later"), web("q"))
    assert (audit.core.counts().waiting, audit.core.counts().gated) == (2, 1)


def test_the_latency_without_pods_is_zero() -> None:
    assert Audit().core.latency(0.99) == 0.0


def test_a_listing_after_a_gap_is_no_violation_and_counts_what_was_missed() -> None:
    audit = Audit(small("a"))
    audit.bind(web("p"), "a")
    audit.see(web("q"))
    audit.tell(Listed(Kind.POD, [web("p").on("a").build(), web("q").on("a").build(), web("r").on("a").build()]))
    assert audit.settle() == []
    assert (audit.core.counts().created, audit.core.counts().bound) == (3, 3)
