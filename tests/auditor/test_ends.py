"""Every assumption and every wait for a permit ends, and in the end nothing is left over."""

import pytest

from shared.messages.binding import BindingOutcome
from shared.messages.watch import Kind
from testing.auditor.events import BindingsHeard, LedgerSilent, Lost, PodsListed
from testing.auditor.violations import Invariant
from tests.auditor.support import LAG, PATIENCE, Audit, entry, invariants, small, web

# The ledger


@pytest.mark.parametrize("skew", [-60.0, 0.0, 60.0])
def test_an_entry_that_outlives_its_window_is_reported_whatever_the_owners_clock_says(skew: float) -> None:
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
    assert violation.numbers["overdue"] == LAG + 1 + PATIENCE


@pytest.mark.parametrize("step", [-60.0, 0.0, 60.0])
def test_a_window_that_begins_again_is_not_over_though_the_owners_clock_steps(step: float) -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    for round in range(10):
        audit.wait(PATIENCE)
        assert audit.ledger(entry(web("p"), "a", window=PATIENCE, clock=audit.now + step * (round % 2))) == []


def test_while_the_ledger_is_away_nobody_can_end_an_entry() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    late = entry(web("p"), "a", window=-1.0)
    audit.ledger(late)
    audit.tell(LedgerSilent())
    audit.wait(PATIENCE)
    assert audit.ledger(late) == []


def test_an_entry_of_a_pod_that_is_bound_or_gone_or_finished_has_to_go() -> None:
    audit = Audit(small("a"))
    bound, gone, finished = web("bound"), web("gone"), web("finished")
    audit.bind(bound, "a")
    audit.bind(finished, "a")
    audit.see(finished.on("a").phase("Succeeded"))
    entries = [entry(made, "a") for made in (bound, gone, finished)]
    assert audit.ledger(*entries) == []
    audit.wait(PATIENCE)
    whys = [violation.what.partition(",")[0] for violation in audit.ledger(*entries)]
    assert whys == ["the pod is bound to node a", "there is no such pod", "the pod is finished"]


def test_another_attempt_is_another_entry() -> None:
    audit = Audit(small("a"))
    for attempt in range(5):
        assert audit.ledger(entry(web("gone"), "a", attempt=attempt)) == []
        audit.wait(PATIENCE)


# Permits


def waiting(seconds: float) -> BindingsHeard:
    return BindingsHeard([BindingOutcome("default/p", 1, wait=seconds)])


def test_a_wait_that_does_not_end_is_reported() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.tell(waiting(20))
    assert audit.wait(20 + PATIENCE) == []
    (violation,) = audit.wait(1)
    assert (violation.invariant, violation.pod) == (Invariant.PERMIT_ENDS, "default/p")
    assert violation.numbers["overdue"] == PATIENCE + 1
    assert audit.wait(60) == []


def test_a_wait_may_be_put_off() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    for _ in range(5):
        audit.tell(waiting(20))
        assert audit.wait(20) == []


def test_a_wait_may_have_ended_unseen_while_the_watch_is_away() -> None:
    audit = Audit(small("a"))
    audit.see(web("p"))
    audit.tell(waiting(20))
    audit.tell(Lost(Kind.POD))
    audit.wait(60)
    audit.tell(PodsListed([web("p").on("a").build()]))
    assert audit.settle() == []


def test_a_wait_ends_with_an_outcome_or_the_pod_or_its_entry() -> None:
    for ends in ("outcome", "bound", "gone", "entry"):
        audit = Audit(small("a"))
        audit.see(web("p"))
        audit.tell(waiting(20))
        audit.wait(1)
        match ends:
            case "outcome":
                audit.tell(BindingsHeard([BindingOutcome("default/p", 1, reason="denied")]))
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


def test_a_pod_that_is_left_is_reported_unless_it_is_expected() -> None:
    audit = Audit(small("a"))
    audit.bind(web("p"), "a")
    audit.see(web("q", cpu="9"))
    audit.queue(unschedulable=[web("q")])
    assert invariants(audit.finish()) == [Invariant.ALL_BOUND]
    assert audit.finish(unbound=1) == []
    assert audit.finish(unbound=lambda record: record.key == "default/q") == []
    (violation,) = audit.finish(unbound=lambda record: False)
    assert violation.pod == "default/q"


def test_fewer_left_than_expected_is_not_as_expected() -> None:
    audit = Audit(small("a"))
    assert invariants(audit.finish(unbound=1)) == [Invariant.ALL_BOUND]


def test_what_is_still_on_its_way_is_reported() -> None:
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
    begin = audit.now
    audit.see(web("p"), web("q"), web("r").gate("later"))
    audit.wait(1)
    audit.see(web("p").on("a"))
    audit.wait(2)
    audit.see(web("q").on("a"), web("r"))
    audit.wait(0.5)
    assert audit.core.progress == 2 / 3
    audit.see(web("r").on("a"))
    counts = audit.core.counts()
    assert (counts.created, counts.bound, counts.waiting, counts.pods, counts.nodes) == (3, 3, 0, 4, 1)
    assert [audit.core.latency(quantile) for quantile in (0.0, 0.5, 1.0)] == [0.5, 1.0, 3.0], "less the time with gates"
    statistics = audit.core.statistics
    assert (statistics.first_created, statistics.first_bound, statistics.last_bound) == (begin, begin + 1, begin + 3.5)
    assert statistics.rate == 3 / 3.5
    assert audit.core.progress == 1.0


def test_gated_pods_are_counted_as_such() -> None:
    audit = Audit(small("a"))
    audit.see(web("p").gate("later"), web("q"))
    assert (audit.core.counts().waiting, audit.core.counts().gated) == (2, 1)


def test_without_pods_there_are_no_figures() -> None:
    audit = Audit()
    assert (audit.core.latency(0.99), audit.core.statistics.rate, audit.core.progress) == (0.0, 0.0, 0.0)


def test_a_listing_after_a_gap_is_no_violation_and_counts_what_was_missed() -> None:
    audit = Audit(small("a"))
    audit.bind(web("p"), "a")
    audit.see(web("q"))
    audit.tell(PodsListed([web("p").on("a").build(), web("q").on("a").build(), web("r").on("a").build()]))
    assert audit.settle() == []
    assert (audit.core.counts().created, audit.core.counts().bound) == (3, 3)
