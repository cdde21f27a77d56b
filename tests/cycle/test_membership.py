"""Which worker holds which shards, as workers come, go and restart."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cycle.membership import (
    LOADING_PATIENCE,
    MAX_SETTLING,
    MAX_STEP,
    REPEAT,
    SETTLING,
    WORKER_PATIENCE,
    Membership,
)
from shared.messages.workers import Assign, WorkerBeat

SHARDS = 8


def beat(name: str, incarnation: str = "first", assign: Assign | None = None) -> WorkerBeat:
    if assign is None:
        return WorkerBeat(name, incarnation)
    return WorkerBeat(name, incarnation, assign.epoch, assign.number, assign.shards, assign.shard_count)


def settled(*names: str, shards: int = SHARDS) -> tuple[Membership, dict[str, Assign]]:
    membership = Membership(1, shards)
    for name in names:
        assert membership.beat(beat(name), 0.0) == []
    return membership, dict(membership.tick(SETTLING))


def held(membership: Membership) -> dict[str, int]:
    return {name: len(shards) for name, shards in membership.workers().shards.items()}


def test_workers_that_start_together_get_their_shards_once() -> None:
    membership, assigned = settled("a", "b", "c")
    assert sorted(len(assign.shards) for assign in assigned.values()) == [2, 3, 3]
    assert membership.changed
    assert membership.workers().complete
    assert not membership.changed
    assert membership.tick(SETTLING) == []


# The term


def test_no_shards_are_assigned_before_the_snapshot_has_confirmed_the_term() -> None:
    membership = Membership(1, SHARDS, confirmed=False)
    assert membership.beat(beat("a"), 0.0) == []
    assert membership.tick(SETTLING) == []
    faults, sends = membership.on_confirmed(1.0)
    assert faults == []
    assert dict(sends)["a"].shards == list(range(SHARDS))


def test_a_beat_that_names_the_assignment_of_a_later_cycle_has_the_snapshot_asked() -> None:
    """A worker in wrong hands can send it again and again: it ends no term, and the beat does not count."""
    membership, claim = Membership(2, SHARDS), Assign(3, 1, [0], SHARDS)
    for attempt in range(3):
        assert membership.beat(beat("a", assign=claim), float(attempt)) == []
        assert membership.wants_confirmation()
        assert not membership.wants_confirmation()
        faults, sends = membership.on_confirmed(float(attempt))
        assert [(fault.worker, fault.kind) for fault in faults] == [("a", "epoch")]
        assert sends == [("a", Assign(2, 0, [], SHARDS))], "it leaves the other cycle if it hears nothing else"
    assert membership.workers().shards == {}


def reaches(membership: Membership, claim: Assign, beats: int) -> int | None:
    """After how many beats of worker a, which obeys only numbers above its own, it has been assigned shards."""
    for attempt in range(beats):
        sends = membership.beat(beat("a", assign=claim), attempt / 2)
        if membership.wants_confirmation():
            _, confirmed = membership.on_confirmed(attempt / 2)
            sends += confirmed
        sends += membership.tick(attempt / 2)
        if any(worker == "a" and assign.number > claim.number for worker, assign in sends):
            return attempt
    return None


@pytest.mark.parametrize("number", [1, 5, 3 * MAX_STEP])
def test_a_worker_with_a_later_assignment_of_another_cycle_of_the_same_term_gets_a_later_one(number: int) -> None:
    """Lease and Redis were lost, and the term was used before. The worker refuses assignments of lower numbers."""
    assert reaches(Membership(2, SHARDS), Assign(2, number, [0], SHARDS), 10) is not None


def test_nothing_is_assigned_above_a_claim_before_the_snapshot_has_confirmed_the_term() -> None:
    membership, claim = Membership(2, SHARDS), beat("a", assign=Assign(2, 5, [0], SHARDS))
    for now in (0.0, 0.5, 1.0):
        assert membership.beat(claim, now) + membership.tick(now) == []


def test_a_worker_with_other_shards_of_the_same_assignment_gets_a_later_one() -> None:
    """The other cycle of the term gave assignment 1 to this worker as well."""
    membership = Membership(2, SHARDS)
    claim = Assign(2, 1, [0], SHARDS)
    membership.beat(beat("b"), 0.0)
    assert dict(membership.tick(SETTLING))["b"].number == 1
    sends = dict(membership.beat(beat("b", assign=claim), 1.0))
    assert (sends["b"].number, sends["b"].shards) == (2, list(range(SHARDS)))


def test_absurd_claims_in_a_workers_name_cost_neither_it_nor_others_their_shards() -> None:
    """Numbers rise by a bounded step each time that the snapshot is asked, so they do not run out."""
    membership, assigned = settled("a", "b")
    forged = beat("a", assign=Assign(1, (1 << 63) - 1, [], SHARDS))
    for attempt in range(1, 100):
        now = attempt / 2
        assert membership.beat(forged, now) == []
        assert membership.wants_confirmation()
        membership.on_confirmed(now)
        for name in "ab":
            for _, assign in membership.beat(beat(name, assign=assigned[name]), now):
                assigned[name] = assign
        assert membership.tick(now) == []
    assert held(membership) == {"a": SHARDS // 2, "b": SHARDS // 2}
    assert dict(membership.beat(beat("c"), 50.0))["c"].number <= 101 * MAX_STEP


def test_a_beat_is_only_wrong_if_the_snapshot_was_asked_after_it() -> None:
    """1. It is asked because of a. 2. A later cycle is accepted, and assigns shards to b. 3. The answer arrives."""
    membership = Membership(2, SHARDS)
    membership.beat(beat("a", assign=Assign(3, 1, [0], SHARDS)), 0.0)
    assert membership.wants_confirmation()
    membership.beat(beat("b", assign=Assign(4, 1, [0], SHARDS)), 0.1)
    assert not membership.wants_confirmation()
    faults, _ = membership.on_confirmed(0.2)
    assert [fault.worker for fault in faults] == ["a"]
    assert membership.wants_confirmation()


def test_a_beat_that_names_an_assignment_of_this_cycle_or_an_earlier_one_is_believed() -> None:
    membership = Membership(2, SHARDS)
    membership.beat(beat("a", assign=Assign(1, 9, [0], SHARDS)), 0.0)
    given = dict(membership.tick(SETTLING))["a"]
    membership.beat(beat("a", assign=given), 1.0)
    assert not membership.wants_confirmation()
    assert held(membership) == {"a": SHARDS}


def test_shards_are_assigned_once_all_expected_workers_beat() -> None:
    membership = Membership(1, SHARDS, expected=2)
    assert membership.beat(beat("a"), 0.0) == []
    assert membership.tick(0.1) == []
    assert {name: len(assign.shards) for name, assign in membership.beat(beat("b"), 0.1)} == {"a": 4, "b": 4}


def test_a_leaving_worker_is_not_one_of_the_expected() -> None:
    membership = Membership(1, SHARDS, expected=2)
    membership.beat(beat("a"), 0.0)
    assert membership.beat(leaving(beat("b")), 0.1) == []
    assert {name: len(assign.shards) for name, assign in membership.beat(beat("c"), 0.2)} == {"a": 4, "b": 0, "c": 4}


def test_fewer_workers_than_expected_get_all_shards_after_a_while() -> None:
    membership = Membership(1, SHARDS, expected=3)
    membership.beat(beat("a"), 0.0)
    membership.beat(beat("b"), 0.1)
    assert membership.tick(0.1 + SETTLING - 0.01) == []
    membership.tick(0.1 + SETTLING)
    assert held(membership) == {"a": 4, "b": 4}


def test_an_assignment_is_sent_again_until_a_beat_shows_it() -> None:
    membership, assigned = settled("a")
    assert membership.beat(beat("a"), 0.6) == [("a", assigned["a"])]
    assert membership.beat(beat("a", assign=assigned["a"]), 0.7) == []


def test_an_assignment_is_repeated_so_that_a_worker_knows_that_a_cycle_leads() -> None:
    membership, assigned = settled("a")
    knows = beat("a", assign=assigned["a"])
    assert assigned["a"].repeats
    assert membership.beat(knows, SETTLING + REPEAT - 0.1) == []
    assert membership.beat(knows, SETTLING + REPEAT) == [("a", assigned["a"])]
    assert membership.beat(knows, SETTLING + REPEAT + 0.5) == []
    assert membership.beat(knows, SETTLING + 2 * REPEAT) == [("a", assigned["a"])]


def test_a_new_worker_gets_its_share_and_no_other_shard_moves() -> None:
    membership, assigned = settled("a", "b")
    sends = dict(membership.beat(beat("c"), 1.0))
    assert held(membership) == {"a": 3, "b": 3, "c": 2}
    assert set(sends["a"].shards) < set(assigned["a"].shards)
    assert set(sends) == {"a", "b", "c"}


def test_the_shards_of_a_lost_worker_go_to_others() -> None:
    membership, assigned = settled("a", "b")
    membership.workers()
    membership.beat(beat("a", assign=assigned["a"]), 2.0)
    sends = dict(membership.tick(0.1 + WORKER_PATIENCE))
    assert membership.changed
    assert sends["a"].shards == list(range(SHARDS))
    assert sends["a"].number > assigned["a"].number
    assert held(membership) == {"a": SHARDS}


def test_a_restarted_worker_gets_its_shards_again() -> None:
    membership, assigned = settled("a", "b")
    membership.workers()
    assert membership.beat(beat("a", "second"), 2.0) == [("a", assigned["a"])]
    assert membership.changed, "what it was asked is lost"


def test_shards_do_not_move_between_two_of_one_name() -> None:
    membership, assigned = settled("a", "b")
    membership.workers()
    for number in range(int((REPEAT - SETTLING) / 0.5)):
        at = SETTLING + 0.5 * number
        assert membership.beat(beat("a", assign=assigned["a"]), at) == []
        assert membership.beat(beat("b", assign=assigned["b"]), at) == []
        assert membership.beat(beat("a", "second"), at + 0.2) == []
        assert membership.tick(at + 0.3) == []
    assert not membership.changed
    assert {(taken.name, taken.incarnation, taken.holder) for taken in membership.refused} == {("a", "second", "first")}


def test_without_workers_the_shards_are_not_complete() -> None:
    membership, _ = settled("a")
    membership.tick(10.0)
    assert not membership.workers().complete


def test_a_new_cycle_leaves_shards_where_they_are_and_waits_for_no_worker_once_they_are_all_held() -> None:
    _, assigned = settled("a", "b", "c")
    later = Membership(2, SHARDS)
    assert later.beat(beat("a", assign=assigned["a"]), 0.0) == []
    assert later.beat(beat("b", assign=assigned["b"]), 0.1) == []
    again = dict(later.beat(beat("c", assign=assigned["c"]), 0.2))
    assert {name: assign.shards for name, assign in again.items()} == {n: a.shards for n, a in assigned.items()}


def test_two_claims_of_one_shard_are_settled() -> None:
    later = Membership(2, SHARDS)
    both = Assign(1, 3, [0, 1, 2], SHARDS)
    later.beat(beat("a", assign=both), 0.0)
    later.beat(beat("b", assign=both), 0.0)
    later.tick(SETTLING)
    assert later.workers().complete


def test_shards_of_another_shard_count_are_no_claim() -> None:
    later = Membership(2, SHARDS)
    later.beat(beat("a", assign=Assign(1, 1, [70], 100)), 0.0)
    later.tick(SETTLING)
    assert held(later) == {"a": SHARDS}


@given(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from(["first", "second"]), st.floats(0.0, 3.0))))
def test_every_shard_is_held_once_and_fairly_after_any_events(steps: list[tuple[str, str, float]]) -> None:
    membership, now = Membership(1, SHARDS), 0.0
    for name, incarnation, wait in steps:
        now += wait
        membership.tick(now)
        membership.beat(beat(name, incarnation), now)
    now += SETTLING
    membership.tick(now)
    shares = held(membership)
    assert membership.workers().complete == bool(shares)
    if shares:
        fewest = min(shares.values()) if len(membership._members) <= SHARDS else 0
        assert max(shares.values()) - fewest <= 1


def leaving(told: WorkerBeat) -> WorkerBeat:
    return msgspec.structs.replace(told, leaving=True)


def test_the_shards_of_a_worker_that_leaves_go_to_others_at_once() -> None:
    membership, assigned = settled("a", "b")
    membership.workers()
    said = leaving(beat("a", assign=assigned["a"]))
    sends = dict(membership.beat(said, 1.0))
    assert (sends["a"].shards, sends["b"].shards) == ([], list(range(SHARDS)))
    assert membership.changed and held(membership) == {"b": SHARDS}
    assert membership.beat(said, 1.1) == [("a", sends["a"])], "until it shows that it has heard"
    assert membership.beat(leaving(beat("a", assign=sends["a"])), 1.2) == []
    membership.beat(beat("b", assign=sends["b"]), 5.0)
    assert membership.tick(1.3 + WORKER_PATIENCE) == [], "it is gone, and nothing changes"


def test_a_worker_that_has_left_and_comes_again_gets_its_share() -> None:
    membership, assigned = settled("a", "b")
    membership.beat(leaving(beat("a", assign=assigned["a"])), 1.0)
    membership.beat(beat("a", "second"), 2.0)
    assert held(membership) == {"a": SHARDS // 2, "b": SHARDS // 2}


def test_if_all_workers_leave_no_shard_is_held() -> None:
    membership, assigned = settled("a")
    assert membership.beat(leaving(beat("a", assign=assigned["a"])), 1.0)[0][1].shards == []
    assert not membership.workers().complete


def test_a_new_cycle_assigns_nothing_to_a_leaving_worker() -> None:
    membership = Membership(2, SHARDS)
    membership.beat(leaving(beat("a", assign=Assign(1, 7, [0, 1], SHARDS))), 0.0)
    membership.beat(beat("b"), 0.0)
    assert dict(membership.tick(SETTLING))["b"].shards == list(range(SHARDS))


def test_a_fleet_that_comes_one_by_one_gets_its_shards_once_it_is_complete() -> None:
    membership = Membership(1, SHARDS)
    for number in range(4):
        assert membership.beat(beat(f"w{number}"), 0.4 * number) == []
        assert membership.tick(0.4 * number + 0.3) == []
    assert {name for name, _ in membership.tick(1.3 + SETTLING)} == {"w0", "w1", "w2", "w3"}


def test_workers_that_keep_coming_are_waited_for_a_limited_time() -> None:
    membership = Membership(1, SHARDS)
    at = 0.0
    while not (sent := membership.tick(at)):
        assert at < MAX_SETTLING + 1
        membership.beat(beat(f"w{int(100 * at)}"), at)
        at += 0.25
    assert len(sent) > 1


def loading(name: str, assign: Assign, seq: int = 0) -> WorkerBeat:
    return msgspec.structs.replace(beat(name, assign=assign), seq=seq)


def test_a_worker_that_cannot_load_what_others_can_is_excluded_for_a_while() -> None:
    membership, assigned = settled("a", "b")
    at = SETTLING
    while held(membership) != {"a": SHARDS}:
        at += 1.0
        assert at < 2 * LOADING_PATIENCE
        membership.beat(loading("a", assigned["a"], seq=1), at)
        membership.beat(loading("b", assigned["b"]), at)
        membership.tick(at)
    assert at > LOADING_PATIENCE
    assert membership.beat(loading("b", assigned["b"]), at + 1.0) == [], "it is on the bench"


def test_no_worker_is_late_while_none_can_load() -> None:
    """1. A large cluster is being listed: there is no state yet. 2. It is there, and one has it a moment earlier."""
    membership, assigned = settled("a", "b")
    at = SETTLING
    for _ in range(4 * int(LOADING_PATIENCE)):
        at += 1.0
        for name in ("a", "b"):
            membership.beat(loading(name, assigned[name]), at)
        assert membership.tick(at) == []
    membership.beat(loading("a", assigned["a"], seq=1), at)
    assert membership.tick(at + 0.5) == []
    membership.beat(loading("b", assigned["b"], seq=1), at + 1.0)
    assert membership.tick(at + 1.5) == []
    assert held(membership) == {"a": SHARDS // 2, "b": SHARDS // 2}
