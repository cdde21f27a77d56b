"""Cycle: what a search has found is committed, and told once it stands."""

from typing import Any

import msgspec
import pytest

from flotilla.results import error, unschedulable
from services.cycle.commits import COMMIT_DEADLINE
from services.cycle.core import CycleCore
from services.cycle.events import Ask, Effect, Failed, Superseded, Tick, Unschedulable, Workers
from services.cycle.preemption.candidate_search import Preemption
from services.cycle.queue_client import outcome_of
from services.cycle.round.assign import Unfit
from shared.messages.evaluation import Rejections
from shared.messages.preemption import Candidate, Candidates, Preempt, ShardFindings, Victim
from shared.messages.queue import Outcome, Verdict
from shared.messages.rounds import ClassAnswer, Propose
from shared.messages.state import Commit, Committed, Conflict
from shared.model.load import load_of
from shared.model.objects import Pod
from tests.rounds.script import Script, asked, class_of, offer, placements, summary, written
from tests.rounds.support import BY_NAME, FRAMEWORKS, kinds, small_pod

P, Q, R = small_pod("p"), small_pod("q"), small_pod("r")
BIG = small_pod("big", cpu="3")
VICTIM = Victim("v", "default/v", -1)
GOING = msgspec.structs.replace(VICTIM, uid="g", terminating=True)
ROOM = Candidate("a", [VICTIM])
FULL = Rejections(unschedulable("Too many pods").by("NodeResourcesFit"), 1)


def nominated(of: Pod, node: str = "a") -> Pod:
    return msgspec.structs.replace(of, status=msgspec.structs.replace(of.status, nominated_node_name=node))


def script_with(*workers: str, round_size: int = 256) -> Script:
    script = Script(round_size=round_size)
    script.core = CycleCore(1, FRAMEWORKS, round_size=round_size, ties=BY_NAME)
    script.shards = {name: frozenset({i}) for i, name in enumerate(workers)}
    script.handle(Workers(script.shards, len(workers)))
    return script


def unfit(script: Script, asks: dict[str, Propose]) -> list[Effect]:
    """No node is feasible for any pod."""
    effects: list[Effect] = []
    while asks:
        for name, propose in asks.items():
            told = [ClassAnswer(ask.class_id, summary=summary(0), rejections=[FULL]) for ask in propose.classes]
            effects = script.answer(propose, name, *told)
        asks = asked(effects)
    return effects


def searched(effects: list[Effect]) -> Preempt:
    found = [effect.message for effect in effects if isinstance(effect, Ask) and isinstance(effect.message, Preempt)]
    return found[0]


def find(script: Script, preempt: Preempt, *candidates: Candidate, seq: int = 1, worker: str = "w0") -> list[Effect]:
    """One worker's findings: these, for every class."""
    found = [
        ShardFindings(ask.class_id, summary=summary(0), potential=1, candidates=list(candidates))
        for ask in preempt.classes
    ]
    held = sorted(script.shards[worker])
    return script.handle(Candidates(worker, 1, preempt.search, preempt.ask, seq, held, found))


def nomination(*pods: Pod, seq: int = 1, candidate: Candidate = ROOM) -> tuple[Script, Commit]:
    """These were found unfit, and candidates were found."""
    script = script_with("w0")
    preempt = searched(unfit(script, script.submit(*pods)))
    return script, written(find(script, preempt, candidate, seq=seq))


def test_a_nomination_is_committed_before_the_outcome() -> None:
    script, commit = nomination(P, seq=7)
    (wanted,) = commit.nominations
    assert (wanted.uid, wanted.assignment.namespace, wanted.assignment.name, wanted.node) == (
        P.uid,
        "default",
        "p",
        "a",
    )
    assert (wanted.seen, wanted.victims) == (7, [VICTIM])
    assert commit.loads[wanted.load] == load_of(P)
    assert (commit.decisions, commit.denominated) == ([], [])
    (told,) = script.committed(commit, seq=8)
    assert isinstance(told, Unschedulable)
    assert (told.uid, told.number) == (P.uid, 8)
    assert told.preemption is not None
    assert told.preemption.nominated == "a"
    assert script.core.pods_held == 0


def test_if_all_victims_terminate_already_no_eviction_is_awaited() -> None:
    script, commit = nomination(P, candidate=Candidate("a", [GOING]))
    (told,) = script.committed(commit, seq=8)
    assert isinstance(told, Unschedulable)
    assert told.number == 0


def test_a_nomination_names_the_oldest_state_of_the_answers() -> None:
    script = script_with("w0", "w1")
    preempt = searched(unfit(script, script.submit(P)))
    assert find(script, preempt, ROOM, seq=9) == []
    (wanted,) = written(find(script, preempt, seq=4, worker="w1")).nominations
    assert wanted.seen == 4


def test_only_the_first_pod_of_a_class_is_nominated() -> None:
    script, commit = nomination(P, Q, R)
    assert [each.uid for each in commit.nominations] == [P.uid]
    assert script.core.pods_held == 3
    effects = script.committed(commit, seq=8)
    assert kinds(effects) == ["Unschedulable", "Ask"]
    again = asked(effects)["w0"]
    assert (again.min_seq, [(ask.class_id, ask.count) for ask in again.classes]) == (8, [(class_of(Q, FRAMEWORKS), 2)])


def test_several_pods_of_a_class_are_nominated_if_only_nodes_matter_to_them() -> None:
    """The best node goes to the first, the next best to the second; the third is decided again."""
    script = script_with("w0")
    preempt = searched(unfit(script, script.submit(P, Q, R)))
    worse = Candidate("b", [msgspec.structs.replace(VICTIM, uid="w", priority=3)])
    commit = written(find(script, preempt, worse, ROOM))
    assert [(each.uid, each.node, [v.uid for v in each.victims]) for each in commit.nominations] == [
        (P.uid, "a", ["v"]),
        (Q.uid, "b", ["w"]),
    ]
    effects = script.handle(Committed(1, commit.number, 9, []))
    told = [effect.uid for effect in effects if isinstance(effect, Unschedulable)]
    assert told == [P.uid, Q.uid]
    assert {ask.class_id for propose in asked(effects).values() for ask in propose.classes} == {class_of(R, FRAMEWORKS)}
    assert script.core.pods_held == 1


def test_in_strict_mode_only_the_first_pod_of_a_class_is_nominated() -> None:
    script = script_with("w0", round_size=1)
    preempt = searched(unfit(script, script.submit(P, Q)))
    commit = written(find(script, preempt, ROOM, Candidate("b", [VICTIM])))
    assert [each.uid for each in commit.nominations] == [P.uid]


def test_after_a_conflict_the_whole_class_is_decided_again() -> None:
    script, commit = nomination(P, Q)
    effects = script.committed(commit, Conflict(P.uid, "node a has changed since it was judged"), seq=8)
    assert kinds(effects) == ["Ask"]
    assert [ask.count for ask in asked(effects)["w0"].classes] == [2]
    assert placements(script.settle(asked(effects), w0=[("a", 5), ("b", 4)])) == {"p": "a", "q": "b"}


def test_a_placed_pod_is_superseded_and_not_nominated() -> None:
    script, commit = nomination(P, Q)
    effects = script.committed(commit, Conflict(P.uid, "the pod is on node b already", placed=True), seq=8)
    assert effects[0] == Superseded(P.uid)
    assert kinds(effects) == ["Superseded", "Ask"]


def test_an_unanswered_nomination_is_sent_again_and_answered_once() -> None:
    script, commit = nomination(P)
    script.now = script.core.next_deadline() or 0.0
    assert script.now == COMMIT_DEADLINE
    assert written(script.handle(Tick())) == commit
    assert kinds(script.committed(commit, seq=8)) == ["Unschedulable"]
    assert script.committed(commit, seq=8) == []
    assert script.core.next_deadline() is None


def test_a_nomination_waits_for_the_commit_of_a_round() -> None:
    script = script_with("w0")
    preempt = searched(unfit(script, script.submit(P)))
    asks = script.submit(BIG)
    assert asks, "rounds go on during a search"
    first = written(script.settle(asks, until="SendCommit", w0=[("b", 5)]))
    assert find(script, preempt, ROOM) == []
    effects = script.committed(first, seq=8)
    second = written(effects)
    assert [each.uid for each in second.nominations] == [P.uid]
    assert second.number > first.number
    assert kinds(script.committed(second, seq=9)) == ["Unschedulable"]


def test_the_next_round_is_decided_by_answers_that_have_seen_the_nomination() -> None:
    script = script_with("w0")
    preempt = searched(unfit(script, script.submit(P)))
    asks = script.submit(BIG)
    commit = written(find(script, preempt, ROOM))
    while asks:
        offers = [offer(ask.class_id, ("a", 5)) for ask in asks["w0"].classes]
        effects = script.answer(asks["w0"], "w0", *offers, seq=3)
        asks = asked(effects)
    assert effects == [], "judged, and not decided"
    effects = script.committed(commit, seq=8)
    assert kinds(effects) == ["Unschedulable", "Ask"]
    again = asked(effects)["w0"]
    assert again.min_seq == 8
    effects = script.settle({"w0": again}, until="SendCommit", w0=[("b", 5)])
    assert placements(effects) == {"big": "b"}


def test_in_strict_mode_no_round_begins_before_the_nomination_is_committed() -> None:
    script = script_with("w0", round_size=1)
    preempt = searched(unfit(script, script.submit(P)))
    assert script.submit(BIG) == {}
    commit = written(find(script, preempt, ROOM))
    effects = script.committed(commit, seq=8)
    assert kinds(effects) == ["Unschedulable", "Ask"]
    assert asked(effects)["w0"].min_seq == 8


# Who loses a nomination


def denominated(script: Script, effects: list[Effect]) -> list[str]:
    commit = written(effects)
    assert (commit.decisions, commit.nominations) == ([], [])
    script.handle(Committed(1, commit.number, 9, []))
    return commit.denominated


def test_a_preemption_that_cannot_help_ends_the_nomination() -> None:
    script = script_with("w0")
    preempt = searched(unfit(script, script.submit(nominated(P))))
    effects = find(script, preempt)
    assert kinds(effects) == ["Unschedulable", "SendCommit"]
    assert denominated(script, effects) == [P.uid]


def test_a_failed_attempt_ends_the_nomination() -> None:
    script = script_with("w0")
    asks = script.submit(nominated(P))
    (ask,) = asks["w0"].classes
    effects = script.answer(asks["w0"], "w0", ClassAnswer(ask.class_id, failure=error("broken")))
    assert kinds(effects) == ["Failed", "SendCommit"]
    assert denominated(script, effects) == [P.uid]


def test_a_pod_without_a_nomination_loses_none() -> None:
    script = script_with("w0")
    effects = find(script, searched(unfit(script, script.submit(P))))
    assert kinds(effects) == ["Unschedulable"]


def test_lost_nominations_go_with_the_next_commit() -> None:
    script = script_with("w0")
    effects: list[Effect] = []
    asks = script.submit(nominated(P), BIG)
    while asks:
        answers = [
            offer(ask.class_id, ("a", 5))
            if ask.class_id == class_of(BIG, FRAMEWORKS)
            else ClassAnswer(ask.class_id, failure=error())
            for ask in asks["w0"].classes
        ]
        effects = script.answer(asks["w0"], "w0", *answers)
        asks = asked(effects)
    commit = written(effects)
    assert ([each.assignment.name for each in commit.decisions], commit.denominated) == (["big"], [P.uid])


# What is sent to the queue

WHY = Unfit("no room", ("A",))


@pytest.mark.parametrize(
    ("effect", "had", "told"),
    [
        (Unschedulable("p", WHY, Preemption(nominated="a"), 7), False, {"nominated": "a", "preemption": 7}),
        (Unschedulable("p", WHY, Preemption(nominated="a")), True, {"nominated": "a"}),
        (Unschedulable("p", WHY, Preemption(nominated="")), True, {"nominated": ""}),
        (Unschedulable("p", WHY, Preemption(nominated="")), False, {}),
        (Unschedulable("p", WHY, Preemption()), True, {}),
        (Unschedulable("p", WHY, Preemption(deallocate=("n/c",))), True, {"deallocate": ("n/c",)}),
        (Unschedulable("p", WHY, Preemption(delete=("n/c",))), True, {"delete": ("n/c",)}),
        (Unschedulable("p", WHY), True, {"nominated": ""}),
        (Unschedulable("p", WHY), False, {}),
    ],
)
def test_an_outcome_names_the_nomination_and_the_claims_to_release(
    effect: Unschedulable, had: bool, told: dict[str, Any]
) -> None:
    assert outcome_of(effect, had) == Outcome("p", Verdict.UNSCHEDULABLE, message="no room", plugins=("A",), **told)


@pytest.mark.parametrize(("had", "nominated"), [(True, ""), (False, None)])
def test_the_outcome_of_a_failed_attempt_ends_the_nomination(had: bool, nominated: str | None) -> None:
    told = outcome_of(Failed("p", error("broken").by("A")), had)
    assert told == Outcome("p", Verdict.FAILED, message="broken", plugins=("A",), nominated=nominated)
