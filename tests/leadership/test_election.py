"""The election core: what is done about what is seen of a Lease, by a clock that the test turns."""

import pytest

from shared.config.structs import LeaderElection
from shared.kube.election import (
    HINT_PAUSE,
    JITTER,
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
    SaidReleased,
    Tick,
    Timings,
    Write,
    Written,
)
from shared.runtime.lease_keeper import timings_of
from shared.terms import TERMS_BEGIN

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


def test_a_missing_lease_is_created_with_the_minute_as_term() -> None:
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
def test_terms_rise_by_one_and_are_at_least_the_minute(found: int, wall: float, term: int) -> None:
    assert Script(wall=wall).leads(record("", found)) == term


@pytest.mark.parametrize("holder", ["", "me"])
def test_a_released_or_own_lease_is_taken_at_once(holder: str) -> None:
    assert Script().leads(record(holder)) == MINUTES


def test_without_election_the_lease_is_taken_from_any_holder() -> None:
    assert Script(Timings(elect=False)).leads(record("them")) == MINUTES


def test_a_standby_polls_and_names_the_leader() -> None:
    script = Script()
    script.handle(Tick())
    assert script.handle(Looked(record("them"))) == [Follow("them")]
    assert script.next == 3.2, f"the period and half of {JITTER} periods"
    assert script.handle(Tick(), 3.1) == []
    assert script.handle(Tick(), 3.2) == [Look(PATIENCE)]


def test_a_standby_looks_at_once_where_the_lease_is_said_to_be_released() -> None:
    candidate = Script()
    candidate.handle(Tick())
    candidate.handle(Looked(record("other")))
    assert candidate.next > HINT_PAUSE
    assert candidate.handle(SaidReleased(), at=0.01) == []
    assert candidate.next == HINT_PAUSE, "each read costs the API server, whatever is said how often"
    assert candidate.handle(Tick(), at=HINT_PAUSE) == [Look(5.0)]
    assert candidate.handle(Looked(record("other")), at=HINT_PAUSE) == [Follow("other")], "only the Lease proves it"
    assert candidate.handle(SaidReleased(), at=1.0) == []
    assert candidate.handle(Tick(), at=1.0) == [Look(5.0)]
    assert isinstance(candidate.handle(Looked(record("")), at=1.0)[0], Write)


def test_an_expired_lease_is_taken() -> None:
    script = Script()
    script.handle(Tick())
    script.handle(Looked(record("them")))
    script.handle(Tick(), 14.0)
    assert script.handle(Looked(record("them"))) == [Follow("them")]
    assert script.next == 15.0, "not a moment later than need be"
    script.handle(Tick(), 15.0)
    assert script.handle(Looked(record("them"))) == [Write(MINUTES, True, PATIENCE)]


def test_expiry_counts_from_when_the_change_was_seen() -> None:
    script = Script()
    for at in (0.0, 14.0):
        script.handle(Tick(), at)
        assert script.handle(Looked(record("them", renewed=f"{at}"))) == [Follow("them")]
    script.handle(Tick(), 28.9)
    assert script.handle(Looked(record("them", renewed="14.0"))) == [Follow("them")]
    script.handle(Tick(), 29.0)
    assert script.handle(Looked(record("them", renewed="14.0"))) == [Write(MINUTES, True, PATIENCE)]


def test_expiry_uses_the_duration_in_the_lease() -> None:
    script = Script()
    script.handle(Tick())
    script.handle(Looked(record("them", duration=60.0)))
    script.handle(Tick(), 59.0)
    assert script.handle(Looked(record("them", duration=60.0))) == [Follow("them")]


def test_the_slower_candidate_waits_again() -> None:
    script = Script()
    script.handle(Tick())
    script.handle(Looked(None))
    assert script.handle(Overtaken(), 0.1) == []
    assert script.next == 3.3
    assert script.handle(Tick(), 4.0) == [Look(PATIENCE)]
    assert script.handle(Looked(record("them", MINUTES))) == [Follow("them")]


def test_a_write_sent_too_long_ago_gives_no_leadership() -> None:
    script = Script()
    script.handle(Tick())
    script.handle(Looked(None))
    assert script.handle(Written(), 10.0) == []
    assert script.handle(Tick()) == [Look(PATIENCE)]
    assert script.handle(Looked(record("me", MINUTES))) == [Write(MINUTES + 1, True, PATIENCE)]


def test_a_write_with_an_unknown_outcome_uses_up_its_term() -> None:
    script = Script()
    script.handle(Tick())
    script.handle(Looked(None))
    assert script.handle(Failed(), 5.0) == []
    script.handle(Tick(), 20.0)
    assert script.handle(Looked(None)) == [Write(MINUTES + 1, True, PATIENCE)]


def test_renewals_need_no_read() -> None:
    script = Script()
    term = script.leads()
    assert script.handle(Tick(), 2.0) == [Write(term, False, PATIENCE)]
    assert script.handle(Written(), 2.1) == []
    assert script.next == 4.0


def test_failed_renewals_are_retried_until_the_deadline() -> None:
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


def test_a_leader_that_slept_past_the_deadline_has_lost() -> None:
    script = Script()
    script.leads()
    script.handle(Tick(), 2.0)
    assert script.handle(Written(), 60.0) == [Lose("it was not renewed within 10 s")]


def test_a_lease_changed_by_another_client_is_read_and_renewed() -> None:
    script = Script()
    term = script.leads()
    script.handle(Tick(), 2.0)
    assert script.handle(Overtaken()) == []
    assert script.handle(Tick(), 2.5) == [Look(PATIENCE)]
    assert script.handle(Looked(record("me", term))) == [Write(term, False, PATIENCE)]


@pytest.mark.parametrize("found", [None, record("me", 1)])
def test_a_deleted_or_restored_lease_is_written_again(found: Record | None) -> None:
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
def test_a_leader_that_reads_another_holder_has_lost(found: Record, who: str) -> None:
    script = Script()
    script.leads()
    script.handle(Tick(), 2.0)
    script.handle(Overtaken())
    script.handle(Tick(), 2.5)
    assert script.handle(Looked(found)) == [Lose(who)]


def test_the_leader_can_raise_its_term() -> None:
    script = Script()
    term = script.leads()
    assert script.handle(Raise(0), 1.0) == [Write(term + 1, True, PATIENCE)]
    assert script.handle(Written(), 1.1) == [Lead(term + 1, term)]
    assert script.next == 2.0, "with the other Leases of this process, which are renewed at every tick of the period"
    assert script.handle(Raise(9000), 1.5) == [Write(9001, True, PATIENCE)]
    assert script.handle(Failed(), 2.0) == []
    assert script.handle(Tick(), 3.5) == [Look(PATIENCE)]
    assert script.handle(Looked(record("me", 9001))) == [Write(9001, True, PATIENCE)], "it may have been done"
    assert script.handle(Written()) == [Lead(9001, term + 1)]


def test_raising_the_term_waits_for_a_renewal_in_progress() -> None:
    script = Script()
    term = script.leads()
    script.handle(Tick(), 2.0)
    assert script.handle(Raise(0)) == []
    assert script.handle(Written(), 2.1) == []
    assert script.handle(Tick()) == [Write(term + 1, True, PATIENCE)]


def test_without_election_inconsistent_durations_are_replaced() -> None:
    assert timings_of(LeaderElection(False, 15.0, 10.0, -1.0, "leases", "", "x")) == Timings(elect=False)
    assert timings_of(LeaderElection(True, 30.0, 20.0, 5.0, "leases", "", "x")) == Timings(
        lease_duration=30.0, renew_deadline=20.0, retry_period=5.0
    )


def test_a_term_that_cannot_have_been_reached_counts_as_none() -> None:
    """Followers refuse such terms, so a leader that went on from there would lead nobody."""
    script = Script()
    script.handle(Tick())
    (write,) = script.handle(Looked(Record("", (1 << 31) - 1000, "then", 15.0, settled=True)))
    assert isinstance(write, Write) and write.term == MINUTES
    assert script.handle(Written()) == [Lead(MINUTES, 0, settled=False)]
