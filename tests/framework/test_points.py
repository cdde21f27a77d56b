"""The points that run on one pod at a time."""

import pytest

from flotilla.plugin import BindingState, ClassState
from flotilla.results import (
    SKIP,
    SUCCESS,
    ApiCall,
    Code,
    Permission,
    PreFilterResult,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from shared.config.points import ExtensionPoint
from shared.framework.profile import Framework, PermitOutcome
from testing.builders import class_state, pod
from tests.framework.plugins import CountNodes, framework, scripted

WAIT = Status(Code.WAIT)
NO = unschedulable("no")
CALL = ApiCall("POST", "/bind", {})


@pytest.fixture
def journal() -> list[str]:
    return []


@pytest.fixture
def state() -> ClassState:
    return class_state(pod("p").build())


@pytest.fixture
def binding() -> BindingState:
    return BindingState(pod("p").build())


def of_three(point: ExtensionPoint, journal: list[str], answers: dict[str, object], key: str) -> Framework:
    """C, A and B at one point, in this order."""
    plugins = [scripted(name, journal, **({key: answers[name]} if name in answers else {})) for name in "ABC"]
    points = {point: ["C", "A", "B"]}
    if point is ExtensionPoint.PRE_SCORE:  # does not run for nothing
        points[ExtensionPoint.SCORE] = [CountNodes.name]
        plugins.append(CountNodes())
    return framework(points, *plugins)


def only(*names: str) -> PreFilterResult:
    return PreFilterResult(nodes=frozenset(names))


def test_pre_enqueue_stops_at_the_first_refusal(journal: list[str], state: ClassState) -> None:
    run = of_three(ExtensionPoint.PRE_ENQUEUE, journal, {"A": NO, "B": NO}, "pre_enqueue")
    assert run.run_pre_enqueue(state.pod, state.objects) == NO.by("A")
    assert journal == ["C.pre_enqueue", "A.pre_enqueue"]


def test_pre_enqueue_lets_pods_through(journal: list[str], state: ClassState) -> None:
    run = of_three(ExtensionPoint.PRE_ENQUEUE, journal, {}, "pre_enqueue")
    assert run.run_pre_enqueue(state.pod, state.objects) == SUCCESS
    assert journal == ["C.pre_enqueue", "A.pre_enqueue", "B.pre_enqueue"]


# PreFilter


def pre_filter(journal: list[str], **answers: object) -> Framework:
    return of_three(ExtensionPoint.PRE_FILTER, journal, answers, "pre_filter")


def test_skip_spares_the_filter_of_that_plugin_only(journal: list[str], state: ClassState) -> None:
    outcome = pre_filter(journal, A=SKIP).run_pre_filter(state)
    assert (outcome.rejection, outcome.nodes, outcome.restricted_by) == (None, None, ())
    assert outcome.skipped == {"A"}
    assert journal == ["C.pre_filter", "A.pre_filter", "B.pre_filter"]


def test_what_cannot_be_resolved_stops_at_once(journal: list[str], state: ClassState) -> None:
    outcome = pre_filter(journal, A=unresolvable("never")).run_pre_filter(state)
    assert outcome.rejection == unresolvable("never").by("A")
    assert journal == ["C.pre_filter", "A.pre_filter"]


@pytest.mark.parametrize("fault", [error("broken"), Status(Code.PENDING, ("broken",)), Status(Code.WAIT, ("broken",))])
def test_what_is_no_rejection_is_an_error_that_names_its_plugin(
    journal: list[str], state: ClassState, fault: Status
) -> None:
    outcome = pre_filter(journal, A=fault).run_pre_filter(state)
    assert outcome.rejection == error('running PreFilter plugin "A": broken').by("A")
    assert journal == ["C.pre_filter", "A.pre_filter"]


def test_a_rejection_that_preemption_may_cure_runs_the_others_too(journal: list[str], state: ClassState) -> None:
    outcome = pre_filter(journal, C=NO, A=only("n1")).run_pre_filter(state)
    assert outcome.rejection == NO.by("C")
    assert outcome.nodes == frozenset({"n1"})
    assert journal == ["C.pre_filter", "A.pre_filter", "B.pre_filter"]


def test_an_unresolvable_rejection_outweighs_an_earlier_one(journal: list[str], state: ClassState) -> None:
    outcome = pre_filter(journal, C=NO, A=unresolvable("never"), B=NO).run_pre_filter(state)
    assert outcome.rejection == unresolvable("never").by("A")
    assert journal == ["C.pre_filter", "A.pre_filter"]


def test_restrictions_are_intersected(journal: list[str], state: ClassState) -> None:
    outcome = pre_filter(journal, C=only("n1", "n2"), B=only("n2", "n3")).run_pre_filter(state)
    assert outcome.rejection is None
    assert outcome.nodes == frozenset({"n2"})
    assert outcome.restricted_by == ("B", "C")
    assert outcome.outside == unresolvable("node(s) didn't satisfy plugin(s) [B C]")


def test_nothing_in_common_with_one_plugin(journal: list[str], state: ClassState) -> None:
    outcome = pre_filter(journal, A=only()).run_pre_filter(state)
    assert outcome.rejection == unresolvable("node(s) didn't satisfy plugin A")
    assert journal == ["C.pre_filter", "A.pre_filter"]


def test_nothing_in_common_between_several_plugins(journal: list[str], state: ClassState) -> None:
    outcome = pre_filter(journal, C=only("n1"), A=only("n2")).run_pre_filter(state)
    assert outcome.rejection == unresolvable("node(s) didn't satisfy plugin(s) [A C] simultaneously")
    assert outcome.nodes == frozenset()
    assert journal == ["C.pre_filter", "A.pre_filter"]


# PreScore


def test_pre_score_skips_the_score_of_that_plugin_only(journal: list[str], state: ClassState) -> None:
    run = of_three(ExtensionPoint.PRE_SCORE, journal, {"A": SKIP}, "pre_score")
    assert run.run_pre_score(state) == (SUCCESS, frozenset({"A"}))
    assert journal == ["C.pre_score", "A.pre_score", "B.pre_score"]


def test_a_refusal_to_prepare_scoring_is_an_error(journal: list[str], state: ClassState) -> None:
    run = of_three(ExtensionPoint.PRE_SCORE, journal, {"A": NO}, "pre_score")
    status, _ = run.run_pre_score(state)
    assert status == error('running PreScore plugin "A": no').by("A")
    assert journal == ["C.pre_score", "A.pre_score"]


def test_pre_score_does_not_run_without_any_score(journal: list[str], state: ClassState) -> None:
    run = framework({ExtensionPoint.PRE_SCORE: ["A"]}, scripted("A", journal, pre_score=NO))
    assert run.run_pre_score(state) == (SUCCESS, frozenset())
    assert journal == []


# Reserve


def test_reserve_is_all_or_nothing(journal: list[str], binding: BindingState) -> None:
    run = of_three(ExtensionPoint.RESERVE, journal, {"A": NO}, "reserve")
    assert run.run_reserve(binding, "n1") == NO.by("A")
    assert journal == ["C.reserve(n1)", "A.reserve(n1)", "B.unreserve(n1)", "A.unreserve(n1)", "C.unreserve(n1)"]


def test_a_reservation_that_holds_is_not_taken_back(journal: list[str], binding: BindingState) -> None:
    run = of_three(ExtensionPoint.RESERVE, journal, {}, "reserve")
    assert run.run_reserve(binding, "n1") == SUCCESS
    assert journal == ["C.reserve(n1)", "A.reserve(n1)", "B.reserve(n1)"]
    run.run_unreserve(binding, "n1")
    assert journal[3:] == ["B.unreserve(n1)", "A.unreserve(n1)", "C.unreserve(n1)"]


# Permit


def permit(journal: list[str], **answers: object) -> Framework:
    return of_three(ExtensionPoint.PERMIT, journal, answers, "permit")


def test_waits_of_all_plugins_are_kept(journal: list[str], binding: BindingState) -> None:
    run = permit(journal, C=Permission(WAIT, 5.0), B=Permission(WAIT, 9.0))
    assert run.run_permit(binding, "n1") == PermitOutcome(SUCCESS, {"C": 5.0, "B": 9.0})


def test_a_refusal_outweighs_a_wait(journal: list[str], binding: BindingState) -> None:
    run = permit(journal, C=Permission(WAIT, 5.0), A=NO, B=Permission(WAIT, 9.0))
    assert run.run_permit(binding, "n1") == PermitOutcome(NO.by("A"))
    assert journal == ["C.permit", "A.permit"]


def test_a_pod_that_all_permit_is_free_to_go(journal: list[str], binding: BindingState) -> None:
    assert permit(journal).run_permit(binding, "n1") == PermitOutcome()


# Bind, PostBind
