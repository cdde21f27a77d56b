"""Hints for Events: searched for beside decisions, once per class and message, and dropped rather than late."""

import pytest

from services.cycle import events as cycle
from services.cycle.explanation.hints import (
    AGAIN,
    KNOWN_FOR,
    MAX_PODS,
    MAX_SEARCHES,
    PATIENCE,
    QUIET,
    Hints,
    hint_text,
)
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import Unfit
from shared.explain.advice import Help
from shared.messages.explaining import ExplainNodes, ExplainPod, NodeFindings, NodeModel, ShardExplained
from shared.messages.queue import MAX_HINT
from shared.model.objects import Pod, pod_from_msgpack
from testing.builders import node, pod
from testing.inprocess.pipeline import Pipeline, reliable
from tests.explain.test_journal import an_info

NOWHERE = NodeFindings(nodes=1, models=(NodeModel("a", 1, {"cpu": 4000}),))


def a_pipeline(**options: object) -> Pipeline:
    pipeline = Pipeline(shards=2, **options)  # type: ignore[arg-type]
    pipeline.add_nodes([node(f"n{i}").capacity(cpu=2).build() for i in range(3)])
    pipeline.settle()
    return pipeline


def larger(number: int) -> list[Pod]:
    return [pod(f"p{i}").request(cpu=3).build() for i in range(number)]


# The pipeline's cores


def test_a_pod_that_fits_nowhere_gets_a_hint_of_what_would_help() -> None:
    pipeline = a_pipeline(hints=True)
    pipeline.submit([*larger(3), pod("fits").request(cpu=1).build()])
    pipeline.settle()
    text = "It would fit if there were a node like n0 with 3 cpu, or if it asked for at most 2 cpu (1 less)."
    assert pipeline.hints == {f"default/p{i}": text for i in range(3)}
    assert pipeline.cycle.explanations.hints == {"sent": 3, "none": 0, "dropped": 0}


def test_without_the_setting_no_hint_is_searched_for() -> None:
    asked: list[object] = []

    def heard(message: object) -> tuple[float, ...]:
        asked.extend([message] if isinstance(message, ExplainNodes) else [])
        return (0.0,)

    pipeline = a_pipeline(fate=heard)
    pipeline.submit(larger(1))
    pipeline.settle()
    assert not pipeline.hints
    assert not asked


@pytest.mark.parametrize("lost", [ExplainNodes, ShardExplained])
def test_decisions_do_not_wait_for_a_hint_that_nobody_answers(lost: type) -> None:
    pipeline = a_pipeline(hints=True, fate=lambda message: () if isinstance(message, lost) else reliable(message))
    pipeline.submit(larger(1))
    while not pipeline.outcomes:
        pipeline.step()
    began = pipeline.now
    while pipeline.now < began + 2 * QUIET:
        pipeline.step()
    submitted = pipeline.now
    pipeline.submit([pod("fits").request(cpu=1).build()])
    while "default/fits" not in pipeline.outcomes:
        pipeline.step()
    assert isinstance(pipeline.outcomes["default/fits"], cycle.Decided)
    assert pipeline.now == submitted
    pipeline.settle()
    assert pipeline.cycle.explanations.hints == {"sent": 0, "none": 0, "dropped": 1}


# Alone


def rejected(info: PodInfo, message: str = "0/1 nodes are available") -> cycle.Unschedulable:
    return cycle.Unschedulable(info.uid, Unfit(message, ("NodeResourcesFit",)), pod=info)


def answer(request: ExplainPod, findings: NodeFindings | None) -> cycle.Answered:
    return cycle.Answered(0, request, pod_from_msgpack(request.body), findings)


def found(hints: Hints, now: float) -> tuple[list[cycle.Hinted], float]:
    """Answers all questions: the pod fits nowhere, and with every change."""
    findings = NOWHERE
    while True:
        now += QUIET
        request = hints.next(now, idle=True)
        assert request is not None
        told = hints.on_answered(answer(request, findings), now)
        if told or hints.next_deadline() is None:
            return told, now
        findings = NodeFindings(nodes=1, feasible=1)


def test_one_search_serves_the_class_and_later_pods_of_it() -> None:
    hints = Hints(on=True)
    infos = [an_info(f"p{i}") for i in range(3)]
    assert not [told for info in infos[:2] for told in hints.on_rejected(rejected(info), 0.0)]
    told, now = found(hints, 0.0)
    assert [each.uid for each in told] == [info.uid for info in infos[:2]]
    assert told[0].text == "It would fit if there were one more node like a (4 cpu)."
    assert [each.uid for each in hints.on_rejected(rejected(infos[2]), now + 1)] == [infos[2].uid]
    assert hints.next_deadline() is None
    assert not hints.on_rejected(rejected(infos[2]), now + 2)  # it has its hint already
    assert not hints.on_rejected(rejected(infos[0]), now + KNOWN_FOR)
    assert hints.next_deadline() is None
    assert not hints.on_rejected(rejected(infos[0]), now + AGAIN)
    assert hints.next_deadline() is not None


def test_another_message_is_another_search() -> None:
    hints = Hints(on=True)
    hints.on_rejected(rejected(an_info("p0")), 0.0)
    hints.on_rejected(rejected(an_info("p1"), "another"), 0.0)
    first, now = found(hints, 0.0)
    second, _ = found(hints, now + 1)
    assert [each.uid for each in (*first, *second)] == ["default/p0", "default/p1"]


def test_a_busy_cycle_asks_nothing_and_late_hints_are_dropped() -> None:
    hints = Hints(on=True)
    hints.on_rejected(rejected(an_info("p0")), 0.0)
    now = 0.0
    assert hints.next(now, idle=False) is None
    while (deadline := hints.next_deadline()) is not None:
        assert now < deadline <= now + 1.0
        now = deadline
        assert hints.next(now, idle=False) is None
    assert PATIENCE <= now <= PATIENCE + 1.0
    assert hints.counts["dropped"] == 1


def test_what_waits_is_bounded() -> None:
    hints = Hints(on=True)
    info = an_info("p")
    for i in range(MAX_SEARCHES + 3):
        hints.on_rejected(rejected(info, str(i)), 0.0)
    for i in range(MAX_PODS + 4):
        hints.on_rejected(rejected(an_info(f"p{i}"), "0"), 0.0)
    assert hints.counts["dropped"] == 3 + 5


def test_a_defect_costs_the_hint_only(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = a_pipeline(hints=True)

    def raises(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("services.cycle.explanation.hints.Advisor", raises)
    pipeline.submit(larger(1))
    pipeline.settle()
    assert "no hint for pod default/p0: RuntimeError('broken')" in str(pipeline.cycle.refused[-1])
    pipeline.submit([pod("fits").request(cpu=1).build()])
    pipeline.settle()
    assert isinstance(pipeline.outcomes["default/fits"], cycle.Decided)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([], ""),
        (["a"], "It would fit if a."),
        (["a", "b", "c"], "It would fit if a, or if b."),
        (["a" * 2000], f"It would fit if {'a' * (MAX_HINT - 20)} ..."),
    ],
)
def test_the_text_of_a_hint(found: list[str], text: str) -> None:
    assert hint_text([Help(text=each, kind="k", nodes=1) for each in found]) == text


def test_uncertain_help_is_named_as_such_and_only_without_better() -> None:
    unsure = Help(text="its claim x existed", kind="k", nodes=1, certain=False)
    sure = Help(text="a", kind="k", nodes=1)
    assert hint_text([unsure]) == "As far as the rest of it is concerned, it would fit if its claim x existed."
    assert hint_text([unsure, sure]) == "It would fit if a."
