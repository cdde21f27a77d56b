"""Questions for explanations: one at a time, each answered in time, by the merged summary, whatever workers do."""

from collections.abc import Iterable

import msgspec

from flotilla.results import error, unschedulable
from services.cycle.events import Answered, Ask, Effect, ExplanationAsked
from services.cycle.explanation.questions import (
    ASK_DEADLINE,
    BUSY,
    EXTENDER_PATIENCE,
    LATE,
    MAX_WAITING,
    NO_WORKERS,
    PATIENCE,
    SILENT,
    Questions,
)
from services.cycle.extenders import AskForExplanation, Extenders, ExtendersExplained
from shared.config.structs import ExtenderConfig, ManagedResource
from shared.extenders.talk import PLUGIN, Judgement
from shared.framework.loading import load_frameworks
from shared.messages.evaluation import Summary
from shared.messages.explaining import (
    ExplainNodes,
    ExplainPod,
    ExtendersSaid,
    NodeFindings,
    ScoredNode,
    ShardExplained,
)
from shared.model.objects import encode_msgpack
from testing.builders import pod

EPOCH, SEQ = 3, 100
WORKERS = {"a": frozenset({0}), "b": frozenset({1})}
EXTENDER = ExtenderConfig("http://x", filter_verb="filter")
REQUEST = ExplainPod("default", "p", body=encode_msgpack(pod("p").build()))


def questions(*extenders: ExtenderConfig) -> Questions:
    return Questions(EPOCH, load_frameworks(None), Extenders(extenders))


def asks(effects: Iterable[Effect]) -> dict[str, ExplainNodes]:
    return {e.worker: e.message for e in effects if isinstance(e, Ask) and isinstance(e.message, ExplainNodes)}


def answers(effects: Iterable[Effect]) -> list[Answered]:
    return [effect for effect in effects if isinstance(effect, Answered)]


def reply(ask: ExplainNodes, worker: str, feasible: int, seq: int = SEQ) -> ShardExplained:
    """Judged by the guess, if there is one."""
    shards = sorted(WORKERS[worker])
    summary = Summary(nodes=5, feasible=feasible)
    found = NodeFindings(nodes=5, feasible=feasible)
    return ShardExplained(worker, ask.epoch, ask.number, ask.ask, seq, shards, found, summary, ask.guess is None)


def test_workers_are_asked_again_by_the_merged_summary_and_only_then_for_details() -> None:
    asked = questions()
    first = asks(asked.on_asked(ExplanationAsked(1, REQUEST), WORKERS, SEQ, 0.0))
    assert {worker: (ask.guess, ask.details, ask.min_seq) for worker, ask in first.items()} == {
        "a": (None, False, SEQ),
        "b": (None, False, SEQ),
    }
    assert not asked.on_explained(reply(first["a"], "a", 1), WORKERS, 0.0)
    second = asks(asked.on_explained(reply(first["b"], "b", 2), WORKERS, 0.0))
    assert [(ask.guess, ask.details) for ask in second.values()] == [(Summary(10, 3), True)] * 2
    assert not asked.on_explained(reply(second["a"], "a", 1), WORKERS, 0.0)
    (answered,) = answers(asked.on_explained(reply(second["b"], "b", 2), WORKERS, 0.0))
    assert answered.findings is not None
    assert (answered.number, answered.findings.nodes, answered.findings.feasible, answered.seq) == (1, 10, 3, SEQ)
    assert asked.next_deadline() is None


def test_one_at_a_time_and_no_more_than_may_wait() -> None:
    asked = questions()
    assert asks(asked.on_asked(ExplanationAsked(0, REQUEST), WORKERS, SEQ, 0.0))
    for number in range(1, MAX_WAITING + 1):
        assert not asked.on_asked(ExplanationAsked(number, REQUEST), WORKERS, SEQ, 0.0)
    (refused,) = answers(asked.on_asked(ExplanationAsked(99, REQUEST), WORKERS, SEQ, 0.0))
    assert (refused.number, refused.problem) == (99, BUSY)


def test_late_workers_are_asked_again_and_the_question_is_answered_in_time() -> None:
    asked = questions()
    first = asks(asked.on_asked(ExplanationAsked(1, REQUEST), WORKERS, SEQ, 0.0))
    asked.on_asked(ExplanationAsked(2, REQUEST), WORKERS, SEQ, 0.5)
    asked.on_explained(reply(first["a"], "a", 0), WORKERS, 0.1)
    assert asked.next_deadline() == ASK_DEADLINE
    assert asks(asked.on_tick(WORKERS, ASK_DEADLINE)) == {"b": first["b"]}
    (late,) = answers(asked.on_tick(WORKERS, PATIENCE))
    assert (late.number, late.findings, late.problem) == (1, None, LATE)
    assert asks(asked.begin(WORKERS, SEQ, PATIENCE)).keys() == WORKERS.keys()
    assert [each.number for each in answers(asked.on_tick(WORKERS, PATIENCE + 0.5))] == [2]


def judging(asked: Questions, *, brief: bool = False) -> list[Effect]:
    """One worker leaves the nodes a, b and c of 5."""
    request = msgspec.structs.replace(REQUEST, brief=brief)
    workers = {"a": frozenset({0})}
    (ask,) = asks(asked.on_asked(ExplanationAsked(1, request), workers, SEQ, 0.0)).values()
    offers = (("a", 9), ("b", 8), ("c", 7)) if ask.offers else ()
    found = NodeFindings(nodes=5, feasible=3, offers=offers, best=(ScoredNode("a", 9),))
    summary = Summary(nodes=5, feasible=3)
    return asked.on_explained(
        ShardExplained("a", EPOCH, ask.number, ask.ask, SEQ, [0], found, summary, True), workers, 0.0
    )


def test_extenders_are_asked_about_the_nodes_that_plugins_leave() -> None:
    asked = questions(EXTENDER)
    (ask,) = judging(asked)
    assert isinstance(ask, AskForExplanation)
    assert ask.question.nodes == ("a", "b", "c")
    said = Judgement({"b": 0, "c": 5}, {"a": unschedulable("banned").by(PLUGIN)}, troubles=("late",))
    assert not asked.on_extenders(ExtendersExplained(ask.number, ask.ask + 1, said))
    (answered,) = answers(asked.on_extenders(ExtendersExplained(ask.number, ask.ask, said)))
    found = answered.findings
    assert found is not None
    assert (found.feasible, found.extenders) == (2, ExtendersSaid(3, 2, "", ("late",)))
    assert [(each.status.message, each.examples) for each in found.rejected] == [("banned", ("a",))]
    assert [(each.node, each.total) for each in found.best] == [("c", 12), ("b", 8)]
    assert found.offers == ()
    assert asked.next_deadline() is None
    assert not asked.on_extenders(ExtendersExplained(ask.number, ask.ask, said))


def test_extenders_that_fail_or_stay_silent_are_named_as_such() -> None:
    asked = questions(EXTENDER)
    (ask,) = judging(asked)
    assert isinstance(ask, AskForExplanation)
    failed = ExtendersExplained(ask.number, ask.ask, Judgement(failure=error("on fire")))
    (answered,) = answers(asked.on_extenders(failed))
    assert answered.findings is not None
    assert answered.findings.extenders == ExtendersSaid(3, 0, "on fire")
    judging(asked)
    assert asked.next_deadline() == EXTENDER_PATIENCE
    (silent,) = answers(asked.on_tick(WORKERS, EXTENDER_PATIENCE))
    assert silent.findings is not None
    assert silent.findings.extenders == ExtendersSaid(3, 0, SILENT)


def test_extenders_are_not_asked_about_changes_or_pods_that_do_not_concern_them() -> None:
    (answered,) = answers(judging(questions(EXTENDER), brief=True))
    assert answered.findings is not None
    assert answered.findings.extenders is None
    other = ExtenderConfig("http://x", filter_verb="f", managed_resources=(ManagedResource("example.com/gpu"),))
    (answered,) = answers(judging(questions(other)))
    assert answered.findings is not None
    assert answered.findings.extenders is None


def test_without_workers_a_question_waits_and_is_answered_in_the_end() -> None:
    asked = questions()
    assert not asked.on_asked(ExplanationAsked(1, REQUEST), {}, SEQ, 0.0)
    assert asked.next_deadline() == PATIENCE
    (late,) = answers(asked.on_tick({}, PATIENCE))
    assert late.problem == NO_WORKERS


def test_when_shards_move_all_workers_are_asked_again() -> None:
    asked = questions()
    first = asks(asked.on_asked(ExplanationAsked(1, REQUEST), WORKERS, SEQ, 0.0))
    asked.on_explained(reply(first["a"], "a", 0), WORKERS, 0.1)
    again = asks(asked.on_workers(WORKERS, 0.2))
    assert again.keys() == WORKERS.keys()
    assert not asked.awaits(reply(first["b"], "b", 0))
    assert asked.awaits(reply(again["b"], "b", 0))


def test_answers_that_are_old_doubled_early_or_of_no_use_are_not_taken() -> None:
    asked = questions()
    first = asks(asked.on_asked(ExplanationAsked(1, REQUEST), WORKERS, SEQ, 0.0))
    good = reply(first["a"], "a", 0)
    assert asked.awaits(good)
    assert not asked.awaits(reply(first["a"], "a", 0, seq=SEQ - 1))
    for wrong in ({"epoch": EPOCH - 1}, {"number": 9}, {"ask": 7}):
        fields = {name: getattr(good, name) for name in good.__struct_fields__} | wrong
        assert not asked.awaits(ShardExplained(**fields))
    asked.on_explained(good, WORKERS, 0.0)
    assert not asked.awaits(good)


def test_what_needs_no_worker_is_answered_at_once() -> None:
    asked = questions()
    for request, problem in (
        (ExplainPod("default", "p"), ""),
        (ExplainPod(body=encode_msgpack(pod("p").scheduler("other").build())), ""),
        (ExplainPod(body=b"\xc1"), "cannot be read"),
        (ExplainPod(body=REQUEST.body, nodes=tuple(map(str, range(9)))), "at most"),
    ):
        (answered,) = asked.on_asked(ExplanationAsked(1, request), WORKERS, SEQ, 0.0)
        assert isinstance(answered, Answered)
        assert answered.findings is None
        assert problem in answered.problem
