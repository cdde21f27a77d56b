"""A worker that is at fault too often gets no shards until it has started again; one that relapses has to wait."""

from services.cycle.membership import FIRST_PAUSE, FORGIVEN, MAX_FAULTS, SETTLING, Membership, WorkerTrust
from shared.messages.workers import Assign, WorkerBeat

SHARDS = 8
WHY = "capacity: node a has no room for it"


def settled(*names: str) -> Membership:
    membership = Membership(1, SHARDS)
    for name in names:
        membership.beat(WorkerBeat(name, "first", signs=True), 0.0)
    membership.tick(SETTLING)
    membership.workers()
    return membership


def blame(membership: Membership, name: str, now: float = 1.0) -> dict[str, Assign]:
    sends: list[tuple[str, Assign]] = []
    for _ in range(MAX_FAULTS):
        assert sends == []
        sends = membership.fault(name, WHY, now)
    return dict(sends)


def held(membership: Membership) -> dict[str, int]:
    return {name: len(shards) for name, shards in membership.workers().shards.items()}


def test_after_some_faults_its_shards_go_to_others_and_it_is_told_to_restart() -> None:
    membership = settled("liar", "honest")
    sends = blame(membership, "liar")
    assert held(membership) == {"honest": SHARDS}
    assert sends["honest"].shards == list(range(SHARDS))
    assert (sends["liar"].shards, sends["liar"].incarnation) == ([], "first")
    assert WHY in sends["liar"].refused


def test_a_distrusted_process_gets_no_shards_however_long_it_waits() -> None:
    membership = settled("liar", "honest")
    blame(membership, "liar")
    (told,) = membership.beat(WorkerBeat("liar", "first"), 100_000.0)
    assert told[1].incarnation == "first"
    assert held(membership) == {"honest": SHARDS}
    assert membership.distrusted(2.0) == ["liar"]


def test_once_it_has_started_again_it_is_believed() -> None:
    membership = settled("liar", "honest")
    blame(membership, "liar")
    membership.beat(WorkerBeat("liar", "second"), 2.0)
    assert held(membership) == {"honest": 4, "liar": 4}


def test_one_that_relapses_has_to_wait_longer_each_time() -> None:
    membership = settled("liar", "honest")
    now, waited = 1.0, []
    for time in range(4):
        blame(membership, "liar", now)
        fresh, began = WorkerBeat("liar", f"process {time}"), now
        while "liar" not in held(membership):
            told = dict(membership.beat(fresh, now))
            membership.beat(WorkerBeat("honest", "first", 1, 1, [], SHARDS), now)
            assert "liar" in held(membership) or told["liar"].incarnation == "", "it need not end again"
            now += 1.0
        waited.append(now - began)
    assert waited == [1.0, FIRST_PAUSE + 1, 2 * FIRST_PAUSE + 1, 4 * FIRST_PAUSE + 1]


def test_with_the_only_worker_none_is_left() -> None:
    membership = settled("liar")
    blame(membership, "liar")
    assert not membership.workers().complete
    assert membership.distrusted(2.0) == ["liar"]


def test_faults_that_are_long_past_do_not_count() -> None:
    trust = WorkerTrust()
    for number in range(3 * MAX_FAULTS):
        assert not trust.fault("w", "first", WHY, number * (FORGIVEN + 1))
    assert trust.refusal("w", "first", 1e6) == ""


def test_who_is_not_a_member_cannot_be_at_fault() -> None:
    membership = settled("honest")
    for _ in range(MAX_FAULTS):
        assert membership.fault("somebody", WHY, 1.0) == []


def test_only_workers_whose_answers_name_their_process_are_held_to_it() -> None:
    membership = settled("new")
    membership.beat(WorkerBeat("old", "o"), 1.0)
    assert membership.workers().incarnations == {"new": "first"}
