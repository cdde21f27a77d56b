"""The election core: what is done about what is seen of a Lease, by a clock that the test turns."""

import pytest

from shared.config.structs import LeaderElection
from shared.kube.election import (
    JITTER,
    TERMS_BEGIN,
    Effect,
    Election,
    Event,
    Failed,
    Follow,
    Lead,
    Look,
    Looked,
    Lose,
    Overtaken,
    Raise,
    Record,
    Tick,
    Timings,
    Write,
    Written,
)
from shared.runtime.lease_keeper import timings_of

TIMINGS = Timings(lease_duration=15.0, renew_deadline=10.0, retry_period=2.0)
PATIENCE = 5.0
MINUTES = 700
WALL = TERMS_BEGIN + 60.0 * MINUTES + 59.0


class Script:
    """One candidate, `me`, with all draws being one half."""

    def __init__(self, timings: Timings = TIMINGS, wall: float = WALL) -> None:
        self.election = Election("me", timings, lambda: 0.5)
        self.wall = wall
        self.now = 100.0

    def handle(self, event: Event, at: float | None = None) -> list[Effect]:
        self.now = self.now if at is None else 100.0 + at
        return self.election.handle(event, self.now, self.wall)

    def leads(self, record: Record | None = None) -> int:
        """Since the beginning."""
        self.handle(Tick())
        (write,) = self.handle(Looked(record))
        assert isinstance(write, Write)
        assert self.handle(Written()) == [Lead(write.term, 0 if record is None else record.term)]
        return write.term

    @property
    def next(self) -> float:
        return round(self.election.next_deadline() - 100.0, 6)


def record(holder: str, term: int = 3, renewed: str = "then", duration: float = 15.0) -> Record:
    return Record(holder, term, renewed, duration)


def test_where_there_is_no_lease_it_is_made_and_the_term_is_the_minute() -> None:
    script = Script()
    assert script.handle(Tick()) == [Look(PATIENCE)]
    assert script.handle(Tick()) == [], "one thing is asked at a time"
    assert script.handle(Looked(None)) == [Write(MINUTES, True, PATIENCE)]
    assert script.handle(Written(), 0.5) == [Lead(MINUTES, 0)]
    assert script.next == 2.0


@pytest.mark.parametrize(
    ("found", "wall", "term"),
    [
        (3, WALL, MINUTES),
        (MINUTES - 1, WALL, MINUTES),
        (MINUTES, WALL, MINUTES + 1),
        (9000, WALL, 9001),
        (3, 0.0, 4),
        (0, 0.0, 1),
    ],
)
def test_terms_rise_by_one_and_are_not_behind_the_minute(found: int, wall: float, term: int) -> None:
    assert Script(wall=wall).leads(record("", found)) == term


@pytest.mark.parametrize("holder", ["", "me"])
def test_a_lease_that_is_given_back_or_was_ours_is_taken_at_once(holder: str) -> None:
    assert Script().leads(record(holder)) == MINUTES


def test_without_election_it_is_taken_whoever_has_it() -> None:
    assert Script(Timings(elect=False)).leads(record("them")) == MINUTES


def test_who_waits_looks_again_after_a_while_and_says_who_leads() -> None:
    script = Script()
    script.handle(Tick())
    assert script.handle(Looked(record("them"))) == [Follow("them")]
    assert script.next == 3.2, f"the period and half of {JITTER} periods"
    assert script.handle(Tick(), 3.1) == []
    assert script.handle(Tick(), 3.2) == [Look(PATIENCE)]


def test_it_is_taken_once_it_was_not_seen_to_change_for_its_duration() -> None:
    script = Script()
    script.handle(Tick())
    script.handle(Looked(record("them")))
    script.handle(Tick(), 14.0)
    assert script.handle(Looked(record("them"))) == [Follow("them")]
    assert script.next == 15.0, "not a moment later than need be"
    script.handle(Tick(), 15.0)
    assert script.handle(Looked(record("them"))) == [Write(MINUTES, True, PATIENCE)]


def test_what_counts_is_when_the_change_was_seen_not_what_it_says() -> None:
    script = Script()
    for at in (0.0, 14.0):
        script.handle(Tick(), at)
        assert script.handle(Looked(record("them", renewed=f"{at}"))) == [Follow("them")]
    script.handle(Tick(), 28.9)
    assert script.handle(Looked(record("them", renewed="14.0"))) == [Follow("them")]
    script.handle(Tick(), 29.0)
    assert script.handle(Looked(record("them", renewed="14.0"))) == [Write(MINUTES, True, PATIENCE)]


def test_the_duration_is_that_which_the_leader_has_written() -> None:
    script = Script()
    script.handle(Tick())
    script.handle(Looked(record("them", duration=60.0)))
    script.handle(Tick(), 59.0)
    assert script.handle(Looked(record("them", duration=60.0))) == [Follow("them")]


def test_who_was_slower_waits_again() -> None:
    script = Script()
    script.handle(Tick())
    script.handle(Looked(None))
    assert script.handle(Overtaken(), 0.1) == []
    assert script.next == 3.3
    assert script.handle(Tick(), 4.0) == [Look(PATIENCE)]
    assert script.handle(Looked(record("them", MINUTES))) == [Follow("them")]


def test_what_was_written_too_long_ago_is_no_ground_to_lead_by() -> None:
    script = Script()
    script.handle(Tick())
    script.handle(Looked(None))
    assert script.handle(Written(), 10.0) == []
    assert script.handle(Tick()) == [Look(PATIENCE)]
    assert script.handle(Looked(record("me", MINUTES))) == [Write(MINUTES + 1, True, PATIENCE)]


def test_a_write_with_an_unknown_outcome_uses_its_term_up() -> None:
    script = Script()
    script.handle(Tick())
    script.handle(Looked(None))
    assert script.handle(Failed(), 5.0) == []
    script.handle(Tick(), 20.0)
    assert script.handle(Looked(None)) == [Write(MINUTES + 1, True, PATIENCE)]


def test_it_is_renewed_every_period_without_looking() -> None:
    script = Script()
    term = script.leads()
    assert script.handle(Tick(), 2.0) == [Write(term, False, PATIENCE)]
    assert script.handle(Written(), 2.1) == []
    assert script.next == 4.0


def test_a_renewal_may_fail_until_the_deadline_which_counts_from_the_last_ask() -> None:
    script = Script()
    term = script.leads()
    script.handle(Tick(), 2.0)
    script.handle(Written(), 4.0)
    assert script.handle(Tick(), 4.0) == [Write(term, False, PATIENCE)]
    assert script.handle(Failed(), 9.0) == []
    assert script.handle(Tick()) == [Look(3.0)], "no longer than it may lead"
    assert script.handle(Failed(), 9.5) == []
    assert script.next == 11.0
    assert script.handle(Tick(), 11.0) == [Look(1.0)]
    assert script.next == 12.0
    assert script.handle(Tick(), 12.0) == [Lose("it was not renewed within 10 s")]
    assert script.election.over and script.handle(Written(), 12.0) == [] and script.handle(Tick(), 99.0) == []


def test_who_slept_too_long_has_lost_whatever_the_answer_is() -> None:
    script = Script()
    script.leads()
    script.handle(Tick(), 2.0)
    assert script.handle(Written(), 60.0) == [Lose("it was not renewed within 10 s")]


def test_a_lease_that_somebody_has_touched_is_looked_at_and_renewed() -> None:
    script = Script()
    term = script.leads()
    script.handle(Tick(), 2.0)
    assert script.handle(Overtaken()) == []
    assert script.handle(Tick(), 2.5) == [Look(PATIENCE)]
    assert script.handle(Looked(record("me", term))) == [Write(term, False, PATIENCE)]


@pytest.mark.parametrize("found", [None, record("me", 1)])
def test_a_lease_that_is_deleted_or_an_older_one_is_written_anew(found: Record | None) -> None:
    script = Script()
    term = script.leads()
    script.handle(Tick(), 2.0)
    script.handle(Overtaken())
    script.handle(Tick(), 2.5)
    assert script.handle(Looked(found)) == [Write(term, False, PATIENCE)]


@pytest.mark.parametrize(
    ("found", "who"),
    [
        (record("them", 9000), "them has it, in term 9000"),
        (record("them", 1), "them has it, in term 1"),
        (record("", 9000), "nobody has it, in term 9000"),
        (record("me", 9000), "me has it, in term 9000"),
    ],
)
def test_who_finds_another_there_has_lost(found: Record, who: str) -> None:
    script = Script()
    script.leads()
    script.handle(Tick(), 2.0)
    script.handle(Overtaken())
    script.handle(Tick(), 2.5)
    assert script.handle(Looked(found)) == [Lose(who)]


def test_the_leader_may_begin_another_term() -> None:
    script = Script()
    term = script.leads()
    assert script.handle(Raise(0), 1.0) == [Write(term + 1, True, PATIENCE)]
    assert script.handle(Written(), 1.1) == [Lead(term + 1, term)]
    assert script.next == 3.0
    assert script.handle(Raise(9000), 1.5) == [Write(9001, True, PATIENCE)]
    assert script.handle(Failed(), 2.0) == []
    assert script.handle(Tick(), 3.5) == [Look(PATIENCE)]
    assert script.handle(Looked(record("me", 9001))) == [Write(9001, True, PATIENCE)], "it may have been done"
    assert script.handle(Written()) == [Lead(9001, term + 1)]


def test_a_raise_while_a_renewal_is_under_way_comes_after_it() -> None:
    script = Script()
    term = script.leads()
    script.handle(Tick(), 2.0)
    assert script.handle(Raise(0)) == []
    assert script.handle(Written(), 2.1) == []
    assert script.handle(Tick()) == [Write(term + 1, True, PATIENCE)]


def test_durations_that_cannot_be_count_as_none_where_nobody_is_elected() -> None:
    assert timings_of(LeaderElection(False, 15.0, 10.0, -1.0, "leases", "", "x")) == Timings(elect=False)
    assert timings_of(LeaderElection(True, 30.0, 20.0, 5.0, "leases", "", "x")) == Timings(
        lease_duration=30.0, renew_deadline=20.0, retry_period=5.0
    )
