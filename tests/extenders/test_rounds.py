"""Rounds in which extenders have a say: workers, snapshot and extenders are played by hand."""

from typing import TypeVar

from msgspec.structs import replace

from flotilla.results import error, unschedulable
from services.cycle.core import CycleCore
from services.cycle.events import (
    Ask,
    ConfirmTerm,
    Decided,
    Effect,
    Failed,
    SendCommit,
    TermConfirmed,
    Tick,
    Unschedulable,
    Workers,
)
from services.cycle.extenders import (
    AskAboutVictims,
    AskExtenders,
    Extenders,
    ExtendersAnswered,
    VictimsAnswered,
    plain_class,
)
from shared.config.structs import ExtenderConfig
from shared.extenders.talk import Judgement
from shared.messages.evaluation import Rejections, Summary
from shared.messages.preemption import Candidate, Candidates, Preempt, ShardFindings, Victim
from shared.messages.rounds import ClassAnswer, Propose
from shared.messages.state import Committed
from shared.model.objects import Pod
from testing.builders import pod
from tests.rounds.script import Script, asked, class_of, offer, summary, written
from tests.rounds.support import BY_NAME, FRAMEWORKS, small_pod

E = TypeVar("E")
FILTER = ExtenderConfig("http://x", filter_verb="filter", node_cache_capable=True)
P, Q = small_pod("p"), small_pod("q")


def script_with(*workers: str, extender: ExtenderConfig = FILTER, round_size: int = 256) -> Script:
    script = Script(round_size=round_size)
    script.core = CycleCore(1, FRAMEWORKS, round_size=round_size, ties=BY_NAME, extenders=Extenders([extender]))
    script.shards = {name: frozenset({i}) for i, name in enumerate(workers)}
    script.handle(Workers(script.shards, len(workers)))
    return script


def one(kind: type[E], effects: list[Effect]) -> E:
    (found,) = (effect for effect in effects if isinstance(effect, kind))
    return found


def offers(propose: Propose, *nodes: tuple[str, int]) -> list[ClassAnswer]:
    """For each class that is asked about, every node once."""
    return [offer(ask.class_id, *nodes, of=summary(len(nodes), nodes=3)) for ask in propose.classes]


def questions(script: Script, *pods: Pod) -> AskExtenders:
    """One worker offers a, b and c, until the extenders are asked."""
    asks = script.submit(*pods)
    effects: list[Effect] = []
    while asks:
        effects = script.answer(asks["w0"], "w0", *offers(asks["w0"], ("a", 9), ("b", 8), ("c", 7)))
        asks = asked(effects)
    return one(AskExtenders, effects)


def answer(script: Script, ask: AskExtenders, *judgements: Judgement) -> list[Effect]:
    classes = (question.class_id for question in ask.questions)
    return script.handle(ExtendersAnswered(ask.round, ask.ask, dict(zip(classes, judgements, strict=True))))


def test_every_feasible_node_is_asked_for_and_told() -> None:
    script = script_with("w0")
    (ask,) = script.submit(P)["w0"].classes
    assert ask.each
    assert plain_class(ask.class_id) == class_of(P, FRAMEWORKS)
    script = script_with("w0")
    (question,) = questions(script, P).questions
    assert (question.pod, question.nodes) == (P, ("a", "b", "c"))


def test_scores_of_extenders_are_added() -> None:
    script = script_with("w0")
    effects = answer(script, questions(script, P), Judgement({"a": 0, "b": 10, "c": 0}))
    assert [decision.node for decision in written(effects).decisions] == ["b"]


def test_among_the_nodes_that_are_left_workers_judge_again() -> None:
    script = script_with("w0")
    effects = answer(script, questions(script, P), Judgement({"b": 0, "c": 0}, {"a": unschedulable("no")}))
    again = asked(effects)["w0"]
    (ask,) = again.classes
    assert (ask.each, ask.among) == (True, ["b", "c"])
    effects = script.answer(again, "w0", *offers(again, ("b", 1), ("c", 2)))
    while asked(effects):
        again = asked(effects)["w0"]
        effects = script.answer(again, "w0", *offers(again, ("b", 1), ("c", 2)))
    assert [decision.node for decision in written(effects).decisions] == ["c"]


def test_a_single_node_that_is_left_is_taken() -> None:
    script = script_with("w0")
    effects = answer(script, questions(script, P), Judgement({"c": 0}))
    assert [decision.node for decision in written(effects).decisions] == ["c"]


def test_two_pods_that_want_one_node_are_decided_one_after_the_other() -> None:
    script = script_with("w0")
    ask = questions(script, P, Q)
    assert len(ask.questions) == 1, "the size of the cluster is not known yet"
    commit = written(answer(script, ask, Judgement({"a": 50, "b": 0, "c": 0})))
    effects = script.handle(Committed(commit.epoch, commit.number, 2, []))
    assert one(Decided, effects).node == "a"
    asks = asked(effects)
    while asks:
        effects = script.answer(asks["w0"], "w0", *offers(asks["w0"], ("a", 9), ("b", 8), ("c", 7)))
        asks = asked(effects)
    assert one(AskExtenders, effects).questions[0].pod == Q


def test_pods_of_a_round_are_asked_about_together() -> None:
    script = script_with("w0")
    commit = written(answer(script, questions(script, small_pod("first")), Judgement({"c": 0})))
    script.handle(Committed(commit.epoch, commit.number, 2, []))
    ask = questions(script, P, Q)
    assert [question.pod for question in ask.questions] == [P, Q]
    all_nodes = {"b": 0, "c": 0}
    effects = answer(script, ask, Judgement(all_nodes | {"a": 50}), Judgement(all_nodes | {"a": 50}))
    assert [(d.uid, d.node) for d in written(effects).decisions] == [(P.uid, "a")], "the other waits for its turn"


def test_a_failure_fails_the_attempt() -> None:
    script = script_with("w0")
    effects = answer(script, questions(script, P), Judgement(failure=error("it is down")))
    assert one(Failed, effects).status == error("it is down")
    assert script.core.pods_held == 0


def test_extenders_that_stay_silent_fail_the_attempt() -> None:
    script = script_with("w0")
    questions(script, P)
    deadline = script.core.next_deadline()
    assert deadline is not None
    assert deadline - script.now >= 5.0
    script.now = deadline
    effects = script.handle(Tick())
    assert one(Failed, effects).status.message == "the extenders have not answered"


def test_an_answer_to_an_older_question_changes_nothing() -> None:
    script = script_with("w0")
    ask = questions(script, P)
    effects = script.handle(Workers(script.shards, 1))
    assert asked(effects), "the round is asked about again"
    assert answer(script, ask, Judgement({"a": 0})) == []


def test_where_no_node_is_left_it_is_said_why_and_who_could_make_way() -> None:
    script = script_with("w0")
    asks = script.submit(P)
    effects: list[Effect] = []
    while asks:
        (told,) = offers(asks["w0"], ("a", 9), ("b", 8))
        full = Rejections(unschedulable("Too many pods").by("NodeResourcesFit"), 1)
        told = ClassAnswer(told.class_id, summary=told.summary, ladder=told.ladder, rejections=[full])
        effects = script.answer(asks["w0"], "w0", told)
        asks = asked(effects)
    refused = {"a": unschedulable("no GPU").by("Extender")}
    effects = answer(script, one(AskExtenders, effects), Judgement({}, refused))
    preempt = one(Ask, effects).message
    assert isinstance(preempt, Preempt)
    (case,) = preempt.classes
    assert (case.refused, case.potential) == (refused, 2)


def test_nodes_that_did_not_fit_in_a_message_are_no_verdict_if_extenders_leave_no_other_one() -> None:
    """They are left out if there is another one."""
    for judgement in (Judgement({}, {"a": unschedulable("no")}), Judgement({"a": 0}, {})):
        script = script_with("w0")
        asks = script.submit(P)
        effects: list[Effect] = []
        while asks:
            (told,) = offers(asks["w0"], ("a", 9))
            told = replace(told, summary=summary(2, nodes=3), ladder=replace(told.ladder, complete=False))
            effects = script.answer(asks["w0"], "w0", told)
            asks = asked(effects)
        effects = answer(script, one(AskExtenders, effects), judgement)
        if judgement.added:
            assert [decision.node for decision in written(effects).decisions] == ["a"]
        else:
            assert "other nodes are feasible" in one(Failed, effects).status.message


def test_a_nominated_node_is_taken_if_extenders_leave_it() -> None:
    nominated = pod("n").uid("n").nominated("b").build()
    for added, node in (({"a": 0, "b": 0, "c": 0}, "b"), ({"a": 0, "c": 0}, None)):
        script = script_with("w0")
        asks = script.submit(nominated)
        effects: list[Effect] = []
        while asks:
            (told,) = offers(asks["w0"], ("a", 9), ("b", 8), ("c", 7))
            told = ClassAnswer(told.class_id, summary=told.summary, ladder=told.ladder, via_nominated=True)
            effects = script.answer(asks["w0"], "w0", told)
            asks = asked(effects)
        effects = answer(script, one(AskExtenders, effects), Judgement(added))
        if node is None:
            assert asked(effects)["w0"].classes[0].among == ["a", "c"]
        else:
            assert [decision.node for decision in written(effects).decisions] == [node]


def test_a_pod_that_no_extender_judges_is_decided_as_ever() -> None:
    script = script_with("w0", extender=ExtenderConfig("http://x", bind_verb="bind"))
    asks = script.submit(P)
    (ask,) = asks["w0"].classes
    assert not ask.each
    assert ask.class_id == class_of(P, FRAMEWORKS)


# Who makes way

PREEMPTS = ExtenderConfig("http://x", preempt_verb="preempt", http_timeout=3.0)
BOTH = [Candidate("a", [Victim("v1", "default/v1")]), Candidate("b", [Victim("v2", "default/v2")])]


def victims_question(script: Script) -> AskAboutVictims:
    """No node has room; on two of them pods could make way."""
    (propose,) = script.submit(P).values()
    full = Rejections(unschedulable("Too many pods").by("NodeResourcesFit"), 2)
    effects: list[Effect] = []
    asks = {"w0": propose}
    while asks:
        classes = [ask.class_id for ask in asks["w0"].classes]
        told = [ClassAnswer(each, summary=summary(0, nodes=2), rejections=[full]) for each in classes]
        effects = script.answer(asks["w0"], "w0", *told)
        asks = asked(effects)
    preempt = one(Ask, effects).message
    assert isinstance(preempt, Preempt)
    (case,) = preempt.classes
    found = ShardFindings(case.class_id, summary=Summary(nodes=2, plugins=case.summaries), potential=2, candidates=BOTH)
    effects = script.handle(Candidates("w0", 1, preempt.search, preempt.ask, preempt.min_seq, [0], [found]))
    return one(AskAboutVictims, effects)


def test_extenders_choose_among_candidates() -> None:
    script = script_with("w0", extender=PREEMPTS)
    ask = victims_question(script)
    (question,) = ask.questions
    assert (question.pod, question.candidates) == (P, tuple(BOTH))
    commit = one(SendCommit, script.handle(VictimsAnswered(ask.search, {question.class_id: BOTH[1:]}))).message
    effects = script.handle(Committed(commit.epoch, commit.number, 2, []))
    found = one(Unschedulable, effects).preemption
    assert found is not None
    assert (found.nominated, [victim.uid for victim in found.victims]) == ("b", ["v2"])
    assert script.core.pods_held == 0


def test_extenders_may_leave_no_candidate() -> None:
    script = script_with("w0", extender=PREEMPTS)
    ask = victims_question(script)
    effects = script.handle(VictimsAnswered(ask.search, {ask.questions[0].class_id: []}))
    told = one(Unschedulable, effects)
    assert told.unfit.message.endswith("preemption: no candidate node for preemption")


def test_a_search_fails_with_its_extender() -> None:
    script = script_with("w0", extender=PREEMPTS)
    ask = victims_question(script)
    effects = script.handle(VictimsAnswered(ask.search, {ask.questions[0].class_id: error("it is down")}))
    told = one(Unschedulable, effects)
    assert told.preemption is not None
    assert told.preemption.failed
    assert told.unfit.message.endswith("preemption: it is down")


def test_a_search_fails_if_extenders_stay_silent_about_victims() -> None:
    """Asked again they would have as long as before, and the pod would wait for ever."""
    script = script_with("w0", extender=PREEMPTS)
    victims_question(script)
    script.now = script.core.next_deadline() or 0.0
    told = one(Unschedulable, script.handle(Tick()))
    assert told.preemption is not None
    assert told.preemption.failed
    assert told.unfit.message.endswith("preemption: the extenders have not answered")
    assert script.core.pods_held == 0


def test_when_shards_move_the_search_begins_again() -> None:
    script = script_with("w0", extender=PREEMPTS)
    ask = victims_question(script)
    effects = script.handle(Workers(script.shards, 1))
    assert isinstance(one(Ask, effects).message, Preempt)
    assert script.handle(VictimsAnswered(ask.search, {ask.questions[0].class_id: BOTH})) == []


def test_a_nomination_is_committed_after_the_round_whose_extenders_were_being_asked() -> None:
    """Its answer would find the round judged without it, and the round's commit would take its place."""
    script = script_with("w0")
    full = Rejections(unschedulable("Too many pods").by("NodeResourcesFit"), 2)
    asks, effects = script.submit(Q), list[Effect]()
    while asks:
        none = [ClassAnswer(c.class_id, summary=summary(0, nodes=2), rejections=[full]) for c in asks["w0"].classes]
        effects = script.answer(asks["w0"], "w0", *none)
        asks = asked(effects)
    preempt = one(Ask, effects).message
    assert isinstance(preempt, Preempt)
    (case,) = preempt.classes
    ask = questions(script, P)

    summaries = Summary(nodes=2, plugins=case.summaries)
    found = ShardFindings(case.class_id, summary=summaries, potential=2, candidates=BOTH)
    candidates = Candidates("w0", 1, preempt.search, preempt.ask, max(1, preempt.min_seq), [0], [found])
    assert not [effect for effect in script.handle(candidates) if isinstance(effect, SendCommit)]

    decided = written(answer(script, ask, Judgement({"a": 0, "b": 0, "c": 10})))
    assert [(decision.uid, decision.node) for decision in decided.decisions] == [("default/p", "c")]
    nominated = written(script.committed(decided, seq=1))
    assert [nomination.uid for nomination in nominated.nominations] == ["default/q"]
    assert one(Unschedulable, script.committed(nominated, seq=2)).uid == "default/q"


def test_a_term_is_confirmed_after_the_round_whose_extenders_are_asked() -> None:
    script = script_with("w0")
    ask = questions(script, P)
    assert script.handle(ConfirmTerm()) == []
    effects = script.committed(written(answer(script, ask, Judgement({"a": 10, "b": 0, "c": 0}))), seq=1)
    assert one(Decided, effects).node == "a"
    assert one(TermConfirmed, effects) == TermConfirmed()
