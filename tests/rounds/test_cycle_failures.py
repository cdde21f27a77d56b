"""Cycle: what is lost, late, doubled or wrong, and workers that come and go."""

from typing import Any

import msgspec
import pytest

from services.cycle.commits import COMMIT_DEADLINE
from services.cycle.events import Ask, Decided, Tick, WorkerFault, Workers
from services.cycle.round.runner import ASK_DEADLINE
from shared.messages.rounds import Proposals
from shared.messages.state import Committed, Conflict
from tests.rounds.script import Script, asked, class_of, offer, placements, summary, written
from tests.rounds.support import kinds, small_pod

P, Q, BIG = small_pod("p"), small_pod("q"), small_pod("big", cpu="3")
OFFER = offer(class_of(P), ("a", 5))


def test_without_workers_pods_wait() -> None:
    script = Script()
    assert script.submit(P) == {}
    assert script.core.next_deadline() is None
    assert set(asked(script.handle(Workers({"w0": frozenset({0})}, 1)))) == {"w0"}


def test_only_late_workers_are_asked_again_after_the_deadline() -> None:
    script = Script("w0", "w1")
    first = script.submit(P)
    script.answer(first["w0"], "w0", OFFER)
    script.now = ASK_DEADLINE - 0.01
    assert script.handle(Tick()) == []
    script.now = ASK_DEADLINE
    assert script.handle(Tick()) == [Ask("w1", first["w1"])]
    assert script.core.next_deadline() == 2 * ASK_DEADLINE


def test_an_answer_to_the_first_copy_of_an_ask_counts_though_it_was_asked_again() -> None:
    script = Script("w0")
    first = script.submit(P)
    script.now = ASK_DEADLINE
    script.handle(Tick())
    assert kinds(script.answer(first["w0"], "w0", OFFER)) == ["SendCommit"]
    assert script.answer(first["w0"], "w0", OFFER) == []


def test_a_doubled_answer_counts_once() -> None:
    script = Script("w0", "w1")
    script.committed(written(script.settle(script.submit(Q), w0=[("a", 4)], w1=[("b", 1)])))
    first = script.submit(P)
    assert script.answer(first["w0"], "w0", OFFER) == []
    assert script.answer(first["w0"], "w0", offer(class_of(P), ("c", 50))) == []
    assert placements(script.answer(first["w1"], "w1", offer(class_of(P), ("b", 1)))) == {"p": "a"}


@pytest.mark.parametrize("changed", [{"epoch": 2}, {"epoch": 0}, {"round": 2}, {"round": 0}, {"ask": 1}, {"ask": 3}])
def test_an_answer_to_another_ask_is_ignored(changed: dict[str, int]) -> None:
    script = Script("w0", "w1")
    first = script.submit(P)
    script.answer(first["w0"], "w0", OFFER)
    second = asked(script.answer(first["w1"], "w1", offer(class_of(P), ("b", 1))))
    right = Proposals("w0", 1, 1, second["w0"].ask, 1, [0], [OFFER])
    assert script.handle(msgspec.structs.replace(right, **changed)) == []
    script.answer(second["w1"], "w1", offer(class_of(P), ("b", 1)))
    assert kinds(script.handle(right)) == ["SendCommit"]


@pytest.mark.parametrize("shards", [[], [1], [0, 1]])
def test_an_answer_for_other_shards_is_refused(shards: list[int]) -> None:
    script = Script("w0")
    first = script.submit(P)
    assert script.answer(first["w0"], "w0", OFFER, shards=shards) == []
    assert [str(refusal) for refusal in script.core.refused] == ["w0 answers for shards that it does not hold"]
    assert kinds(script.answer(first["w0"], "w0", OFFER)) == ["SendCommit"]


def test_an_answer_of_an_unknown_worker_is_refused() -> None:
    script = Script("w0")
    first = script.submit(P)
    assert script.handle(Proposals("w9", 1, 1, first["w0"].ask, 1, [0], [OFFER])) == []
    assert len(script.core.refused) == 1


@pytest.mark.parametrize("answers", [(), (offer("other"),), (OFFER, offer("other"))])
def test_an_answer_about_other_classes_is_refused_and_asked_for_again(answers: tuple[Any, ...]) -> None:
    script = Script("w0")
    first = script.submit(P)
    effects = script.answer(first["w0"], "w0", *answers)
    assert effects[0] == WorkerFault("w0", "answer", "it answers for other classes than it was asked about")
    assert asked(effects) == first
    assert kinds(script.answer(first["w0"], "w0", OFFER)) == ["SendCommit"]


def test_a_commit_without_an_answer_is_sent_again() -> None:
    script = Script("w0")
    effects = script.settle(script.submit(P), w0=[("a", 4)])
    script.now = COMMIT_DEADLINE
    assert script.handle(Tick()) == effects
    assert script.core.next_deadline() == 2 * COMMIT_DEADLINE
    assert script.committed(written(effects)) == [Decided(P.uid, "a")]
    assert script.committed(written(effects)) == []
    assert script.core.next_deadline() is None


@pytest.mark.parametrize("changed", [{"epoch": 2}, {"number": 2}, {"number": 0}])
def test_an_answer_to_another_commit_is_ignored(changed: dict[str, int]) -> None:
    script = Script("w0")
    commit = written(script.settle(script.submit(P), w0=[("a", 4)]))
    wrong = msgspec.structs.replace(Committed(commit.epoch, commit.number, 3, []), **changed)
    assert script.handle(wrong) == []
    assert script.core.pods_held == 1


def test_the_next_round_is_asked_about_while_one_is_committed() -> None:
    script = Script("w0", round_size=1)
    first = script.submit(P)
    assert script.submit(Q) == {}
    effects = script.answer(first["w0"], "w0", OFFER, seq=3)
    assert kinds(effects) == ["SendCommit", "Ask"]
    second = asked(effects)["w0"]
    assert (second.round, second.min_seq) == (2, 4), "what is being committed is to be seen first"
    assert script.submit(BIG) == {}
    assert script.answer(second, "w0", OFFER, seq=4) == [], "decided before the commit was answered"
    assert kinds(script.committed(written(effects), seq=4)) == ["Decided", "SendCommit", "Ask"]


def test_pods_of_one_class_in_a_row_are_one_round_in_strict_mode_too() -> None:
    script = Script("w0", round_size=1)
    known = script.settle(script.submit(small_pod("known")), w0=[("a", 9)])
    script.committed(written(known), seq=1)
    ask = script.submit(P, Q, BIG, small_pod("later"))["w0"]
    assert [(each.class_id, each.count) for each in ask.classes] == [(class_of(P), 2)]
    effects = script.answer(ask, "w0", offer(class_of(P), ("a", 5), ("b", 4)))
    assert placements(effects) == {"p": "a", "q": "b"}
    assert [each.class_id for each in asked(effects)["w0"].classes] == [class_of(BIG)]


def test_workers_that_judged_without_the_commit_are_asked_again() -> None:
    script = Script("w0", "w1", round_size=1)
    for known in (P, BIG):
        script.committed(written(script.settle(script.submit(known), w0=[("a", 5)], w1=[("b", 4)])), seq=1)
    later = small_pod("later", cpu="3")
    effects = script.settle(script.submit(Q, later), w0=[("a", 5)], w1=[("b", 4)], until="SendCommit")
    second = asked(effects)
    script.answer(second["w0"], "w0", offer(class_of(BIG), ("a", 5)), seq=7)
    script.answer(second["w1"], "w1", offer(class_of(BIG), ("b", 4)), seq=8)
    again = asked(script.committed(written(effects), seq=8))
    assert {name: (ask.round, ask.ask, ask.min_seq) for name, ask in again.items()} == {"w0": (4, second["w0"].ask, 8)}
    assert placements(script.answer(again["w0"], "w0", offer(class_of(BIG), ("a", 3)), seq=8)) == {"later": "b"}


def test_a_round_that_is_not_full_waits_for_the_commit() -> None:
    script = Script("w0", round_size=2)
    effects = script.answer(script.submit(P, Q, BIG)["w0"], "w0", offer(class_of(P), ("a", 5), ("b", 4)))
    assert kinds(effects) == ["SendCommit"]
    assert kinds(script.committed(written(effects))) == ["Decided", "Decided", "Ask"]


def test_workers_do_not_wait_for_a_number_that_was_not_used() -> None:
    script = Script("w0", round_size=1)
    effects = script.answer(script.submit(P, Q)["w0"], "w0", OFFER, seq=8)
    assert asked(effects)["w0"].min_seq == 9
    again = script.committed(written(effects), Conflict(P.uid, "there", placed=True), seq=8)
    assert kinds(again) == ["Superseded", "Ask"]
    assert asked(again)["w0"].min_seq == 8


def test_a_round_waits_behind_a_pod_that_lost_a_conflict() -> None:
    script = Script("w0", round_size=1)
    effects = script.answer(script.submit(P, Q)["w0"], "w0", OFFER)
    second = asked(effects)["w0"]
    again = asked(script.committed(written(effects), Conflict(P.uid, "changed"), seq=5))["w0"]
    assert (again.round, again.min_seq) == (3, 5)
    assert script.answer(second, "w0", OFFER) == []
    effects = script.answer(again, "w0", OFFER, seq=5)
    assert placements(effects) == {"p": "a"}


# Workers that come and go


def test_a_worker_that_is_lost_in_the_middle_of_a_round_is_not_waited_for() -> None:
    script = Script("w0", "w1")
    first = script.submit(P)
    script.answer(first["w0"], "w0", OFFER)
    script.shards = {"w0": frozenset({0, 1})}
    again = asked(script.handle(Workers(script.shards, 2)))
    assert set(again) == {"w0"}
    assert again["w0"].ask > first["w0"].ask
    assert script.answer(first["w1"], "w1", OFFER, shards=[1]) == []
    assert script.answer(first["w0"], "w0", OFFER, shards=[0]) == []
    assert kinds(script.answer(again["w0"], "w0", OFFER)) == ["SendCommit"]


def test_a_worker_that_comes_in_the_middle_of_a_round_is_asked_everything() -> None:
    script = Script("w0")
    script.committed(written(script.settle(script.submit(BIG), w0=[("a", 4)])))
    script.submit(P, small_pod("big2", cpu="3"))
    script.shards = {"w0": frozenset({0}), "w1": frozenset({1})}
    again = asked(script.handle(Workers(script.shards, 2)))
    assert set(again) == {"w0", "w1"}
    assert [ask.pod is None for ask in again["w0"].classes] == [False, True]
    assert [ask.pod is None for ask in again["w1"].classes] == [False, False]


def test_classes_settled_before_the_shards_moved_are_settled_again() -> None:
    """1. One class is settled, another is asked about again. 2. A worker leaves. 3. What it said must not count."""
    script = Script("w0", "w1")
    small, big = class_of(P), class_of(BIG)
    script.committed(written(script.settle(script.submit(P), w0=[("a", 4)], w1=[("b", 5)])))
    first, other = script.submit(Q, BIG), summary(2)
    script.answer(first["w0"], "w0", offer(small, ("a", 4)), offer(big, ("a", 4), of=other))
    offers = offer(small, ("b", 9)), offer(big, ("b", 9), of=summary(2, taints=(1, 3)))
    second = asked(script.answer(first["w1"], "w1", *offers))
    assert [ask.class_id for ask in second["w0"].classes] == [big]
    script.shards = {"w0": frozenset({0, 1})}
    third = asked(script.handle(Workers(script.shards, 2)))
    assert [ask.class_id for ask in third["w0"].classes] == [small, big]
    effects = script.settle(third, w0=[("a", 4), ("c", 4)])
    assert "b" not in placements(effects).values()


def test_when_all_workers_are_gone_the_round_waits_for_new_ones() -> None:
    script = Script("w0")
    script.submit(P)
    script.shards = {}
    assert script.handle(Workers({}, 1)) == []
    script.now = 60.0
    assert script.handle(Tick()) == []
    script.shards = {"w1": frozenset({0})}
    again = asked(script.handle(Workers(script.shards, 1)))
    assert kinds(script.answer(again["w1"], "w1", OFFER)) == ["SendCommit"]


def test_workers_may_change_while_a_commit_is_under_way() -> None:
    script = Script("w0")
    effects = script.settle(script.submit(P), w0=[("a", 4)])
    assert script.handle(Workers({"w1": frozenset({0})}, 1)) == []
    assert script.committed(written(effects)) == [Decided(P.uid, "a")]


INCOMPLETE: list[dict[str, frozenset[int]]] = [
    {"w0": frozenset({0})},
    {"w0": frozenset({0, 1}), "w1": frozenset({1})},
    {"w0": frozenset({0}), "w1": frozenset({2})},
    {"w0": frozenset({0, 1}), "w1": frozenset({2})},
]


@pytest.mark.parametrize("shards", INCOMPLETE)
def test_while_a_shard_is_missing_or_doubled_no_worker_is_asked(shards: dict[str, frozenset[int]]) -> None:
    script = Script()
    assert script.handle(Workers(shards, 2)) == []
    assert script.submit(P) == {}
    assert script.core.next_deadline() is None
    assert set(asked(script.handle(Workers({"w0": frozenset({0, 1})}, 2)))) == {"w0"}


@pytest.mark.parametrize("shards", INCOMPLETE)
def test_a_round_in_flight_goes_on_when_every_shard_is_held_again(shards: dict[str, frozenset[int]]) -> None:
    script = Script("w0", "w1")
    whole = script.shards
    first = script.submit(P)
    script.answer(first["w0"], "w0", OFFER)
    assert script.handle(Workers(shards, 2)) == []
    for name in sorted(shards):
        held = sorted(shards[name])
        assert script.answer(first["w1"], name, offer(class_of(P), ("c", 9)), shards=held) == []
    script.now = 60.0
    assert script.handle(Tick()) == []
    assert script.core.pods_held == 1
    effects = script.settle(asked(script.handle(Workers(whole, 2))), w0=[("a", 4)], w1=[("b", 5)])
    assert placements(effects) == {"p": "b"}


def test_a_tick_with_nothing_to_do_does_nothing() -> None:
    script = Script("w0")
    script.now = 100.0
    assert script.handle(Tick()) == []
    assert script.core.next_deadline() is None
