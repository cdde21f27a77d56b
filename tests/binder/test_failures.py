"""Each step at which a binding may fail: everything before it is rolled back once, and the owner is notified."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from flotilla.plugin import PermitPlugin, PreBindPlugin, ReservePlugin
from flotilla.results import SUCCESS, Pause, Permission, PreBindSteps, Status, error, unresolvable, unschedulable
from services.binder.bind_steps import FIRST_PAUSE
from services.binder.events import (
    AttemptEnded,
    Call,
    LookedUp,
    LookUp,
    Refused,
    Result,
    TellOwner,
    Unknown,
    Where,
)
from shared.config.points import ExtensionPoint
from shared.framework.profile import Framework
from shared.messages.binding import BindingOutcome, BindingOutcomes, Withdraw
from shared.messages.queue import Received
from shared.plugins.queueandbind import DefaultBinder
from tests.binder.support import (
    OTHER,
    TIME,
    VERSION,
    Script,
    api_call,
    binding_framework,
    one,
    only,
    overdue,
    told,
    wait,
)
from tests.framework.plugins import framework, scripted

UNSCHEDULABLE, ERROR = "Unschedulable", "SchedulerError"
BACK = ["B.unreserve(n1)", "A.unreserve(n1)"]
PREEMPTED = Withdraw("p", 1, "DefaultPreemption", "preempted", epoch=1)
DELETED = Withdraw("p", 1, "", "the pod is deleted", epoch=1)
PATCH = api_call("/b")

Play = Callable[[Script], object]


class Case(NamedTuple):
    """B answers so; `play` is what happens then. `reason`: of the condition, None if the owner is not notified."""

    answers: dict[str, Any]
    play: Play
    message: str
    reason: str | None
    plugin: str
    rejected: bool = False


def nothing(script: Script) -> None:
    pass


def answered(*results: Result) -> Play:
    """The calls, one after the other."""

    def play(script: Script) -> None:
        for result in results:
            script.answer(only(Call, script.effects)[-1], result)

    return play


def looked_up(result: Result, where: Where, node: str = "", *versions: str) -> Play:
    """The call that binds, and then the pod. `versions`: those it has, look by look, where it is not bound."""

    def play(script: Script) -> None:
        answered(result)(script)
        for version in versions or (OTHER,):
            script.handle(LookedUp("p", 1, where, node, version))

    return play


def withdrawn(withdraw: Withdraw) -> Play:
    return lambda script: script.handle(withdraw)


def unfit(reason: str) -> str:
    return f"0/1 nodes are available: 1 {reason}."


BIND_FAILED = 'running Bind plugin "DefaultBinder": '
TIMED_OUT = "rejected due to timeout after waiting 5s at plugin B"
WAITS = {"permit": wait(5)}

CASES = {
    "reserve rejects": Case({"reserve": unschedulable("full")}, nothing, unfit("full"), UNSCHEDULABLE, "B", True),
    "reserve rejects for good": Case(
        {"reserve": unresolvable("never")}, nothing, unfit("never"), UNSCHEDULABLE, "B", True
    ),
    "reserve fails": Case({"reserve": error("broken")}, nothing, 'running Reserve plugin "B": broken', ERROR, "B"),
    "permit rejects": Case({"permit": unschedulable("no")}, nothing, unfit("no"), UNSCHEDULABLE, "B", True),
    "permit fails": Case({"permit": error("broken")}, nothing, 'running Permit plugin "B": broken', ERROR, "B"),
    "permit times out": Case(WAITS, lambda s: s.pass_time(5), unfit(TIMED_OUT), UNSCHEDULABLE, "B", True),
    "rejected while it waits": Case(
        WAITS, lambda s: s.permit("A", allow=False, reason="no"), unfit("no"), UNSCHEDULABLE, "A", True
    ),
    "rejected without a plugin": Case(
        WAITS, lambda s: s.permit("", allow=False), unfit("rejected"), UNSCHEDULABLE, "B", True
    ),
    "preempted while it waits": Case(
        WAITS, withdrawn(PREEMPTED), "waiting on permit for pod: preempted", ERROR, "DefaultPreemption"
    ),
    "deleted while it waits": Case(WAITS, withdrawn(DELETED), "the pod is deleted", None, ""),
    "pre-bind rejects": Case({"pre_bind": unschedulable("late")}, nothing, "late", UNSCHEDULABLE, "B"),
    "pre-bind fails": Case({"pre_bind": error("broken")}, nothing, 'running PreBind plugin "B": broken', ERROR, "B"),
    "a call of pre-bind is refused": Case(
        {"pre_bind": [PATCH]}, answered(Refused(403, "no")), 'running PreBind plugin "B": no', ERROR, "B"
    ),
    "a call of pre-bind finds a conflict": Case(
        {"pre_bind": [PATCH]}, answered(Refused(409, "new")), 'running PreBind plugin "B": new', ERROR, "B"
    ),
    "a call of pre-bind finds nothing": Case(
        {"pre_bind": [PATCH]}, answered(Refused(404, "gone")), 'running PreBind plugin "B": gone', ERROR, "B"
    ),
    "a call of pre-bind is not answered": Case(
        {"pre_bind": [PATCH]}, answered(Unknown("silence")), 'running PreBind plugin "B": silence', ERROR, "B"
    ),
    "preempted while it is prepared": Case(
        {"pre_bind": [PATCH]}, withdrawn(PREEMPTED), "preempted by DefaultPreemption", ERROR, "DefaultPreemption"
    ),
    "deleted while it is prepared": Case({"pre_bind": [PATCH]}, withdrawn(DELETED), "the pod is deleted", None, ""),
    "bind is refused": Case(
        {}, looked_up(Refused(403, "no"), Where.UNBOUND), f"{BIND_FAILED}no", ERROR, "DefaultBinder"
    ),
    "bind is certainly not sent": Case(
        {}, answered(Refused(0, "no route")), f"{BIND_FAILED}no route", ERROR, "DefaultBinder"
    ),
    "bind finds a conflict, and the pod not bound": Case(
        {}, looked_up(Refused(409, "c"), Where.UNBOUND, "", VERSION, OTHER), f"{BIND_FAILED}c", ERROR, "DefaultBinder"
    ),
    "bind finds the pod elsewhere": Case(
        {},
        looked_up(Refused(409, "c"), Where.ON_NODE, "n2"),
        "the pod is on node n2 already",
        None,
        "DefaultBinder",
    ),
    "bind finds another pod of that name": Case(
        {}, looked_up(Refused(409, "uid"), Where.GONE), "the pod is gone: uid", None, "DefaultBinder"
    ),
    "bind finds no pod": Case(
        {}, looked_up(Refused(404, "no pod"), Where.GONE), "the pod is gone: no pod", None, "DefaultBinder"
    ),
    "bind finds no node": Case(
        {}, looked_up(Refused(404, "no n1"), Where.UNBOUND), f"{BIND_FAILED}no n1", ERROR, "DefaultBinder"
    ),
    "bind is not answered, and was not done": Case(
        {}, looked_up(Unknown("?"), Where.UNBOUND), f"{BIND_FAILED}?", ERROR, "DefaultBinder"
    ),
    "bind is not answered, and the pod is gone": Case(
        {}, looked_up(Unknown("?"), Where.GONE), "the pod is gone: ?", None, "DefaultBinder"
    ),
}


def two(journal: list[str], **second: Any) -> Script:
    """Plugins A and B, of which B answers as said."""
    return Script(binding_framework(scripted("A", journal), scripted("B", journal, **second)))


def unreserved(journal: list[str]) -> list[str]:
    return [entry for entry in journal if "unreserve" in entry]


def last_outcomes(script: Script) -> list[BindingOutcome]:
    """All that are told but that it waits; from then on they are known to the snapshot."""
    script.reports()
    messages = only(BindingOutcomes, script.effects)
    for message in messages:
        script.handle(Received(0, message.number))
    return [outcome for message in messages for outcome in message.outcomes if not (outcome.waits or outcome.found)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_failure_rolls_back_what_came_before_and_tells_whose_it_is(case: Case) -> None:
    journal: list[str] = []
    script = two(journal, **case.answers)
    script.order()
    case.play(script)
    assert unreserved(journal) == BACK
    assert [end.reason for end in only(AttemptEnded, script.effects)] == [case.message]
    notified = [] if case.reason is None else [(case.reason, case.message)]
    assert [(told.failure, told.message) for told in only(TellOwner, script.effects)] == notified
    gone = case.message.startswith("the pod is gone")
    fenced = bool(only(LookUp, script.effects))
    outcome = told("p", 1, case.message, plugin=case.plugin, rejected=case.rejected, gone=gone, fenced=fenced)
    assert last_outcomes(script) == [outcome]
    assert script.core.held == script.core.unacknowledged == 0
    assert not any("post_bind" in entry for entry in journal)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_failed_eviction_may_be_retried(case: Case) -> None:
    """The next attempt begins with Reserve, however the one before ended."""
    journal: list[str] = []
    script = two(journal, **case.answers)
    script.order()
    case.play(script)
    script.reports()
    journal.clear()
    script.order(attempt=2)
    assert journal[:2] == ["A.reserve(n1)", "B.reserve(n1)"]


BOUND: dict[str, Play] = {
    "a conflict": looked_up(Refused(409, "c"), Where.ON_NODE, "n1"),
    "not found": looked_up(Refused(404, "?"), Where.ON_NODE, "n1"),
    "no answer": looked_up(Unknown("?"), Where.ON_NODE, "n1"),
}


@pytest.mark.parametrize("play", BOUND.values(), ids=BOUND)
def test_a_pod_that_is_found_on_its_node_is_bound_and_nothing_is_rolled_back(play: Play) -> None:
    journal: list[str] = []
    script = two(journal)
    script.order()
    play(script)
    assert unreserved(journal) == []
    assert journal[-2:] == ["A.post_bind(n1)", "B.post_bind(n1)"]
    assert last_outcomes(script) == [told("p", 1)]


LEFT: dict[str, tuple[dict[str, Any], Play]] = {
    "waiting": ({"permit": wait(100)}, nothing),
    "preparing": ({"pre_bind": [PATCH]}, nothing),
    "binding": ({}, nothing),
    "looking": ({}, answered(Unknown("?"))),
    "doubting": ({}, looked_up(Unknown("?"), Where.UNKNOWN)),
    "stale": ({}, looked_up(Refused(409, "?"), Where.UNBOUND)),
}


@pytest.mark.parametrize(("answers", "play"), LEFT.values(), ids=LEFT)
def test_at_the_deadline_all_is_rolled_back_and_the_snapshot_must_look(answers: dict[str, Any], play: Play) -> None:
    journal: list[str] = []
    script = two(journal, **answers)
    script.order()
    play(script)
    script.pass_time(TIME)
    assert unreserved(journal) == BACK
    assert last_outcomes(script) == [overdue()]
    assert script.core.held == 0


# Withdrawn


@pytest.mark.parametrize("play", [nothing, answered(Unknown("?")), looked_up(Unknown("?"), Where.UNKNOWN)])
def test_a_pod_that_may_be_bound_already_is_not_withdrawn(play: Play) -> None:
    journal: list[str] = []
    script = two(journal)
    script.order()
    play(script)
    assert script.handle(PREEMPTED) == []
    assert unreserved(journal) == []
    if only(LookUp, script.effects):
        script.pass_time(FIRST_PAUSE)
        script.found(only(LookUp, script.effects)[-1], Where.ON_NODE, "n1")
    else:
        script.answer(one(Call, script.effects))
    assert last_outcomes(script) == [told("p", 1)]


def test_only_the_attempt_that_is_meant_is_withdrawn() -> None:
    script = two([], permit=wait(5))
    script.order(attempt=2)
    assert script.handle(PREEMPTED) == []
    assert script.core.held == 1


def test_an_order_that_comes_after_its_withdrawal_is_not_begun() -> None:
    journal: list[str] = []
    script = two(journal)
    script.handle(PREEMPTED)
    script.order()
    assert journal == []
    message = "preempted by DefaultPreemption"
    assert last_outcomes(script) == [told("p", 1, message, plugin="DefaultPreemption")]
    script.order(attempt=2)
    assert script.core.held == 1


def test_an_attempt_that_is_behind_another_is_withdrawn() -> None:
    journal: list[str] = []
    script = two(journal)
    call = one(Call, script.order(attempt=1))
    script.order(attempt=2)
    script.handle(Withdraw("p", 2, "DefaultPreemption", "preempted", epoch=1))
    assert script.core.held == 1
    script.answer(call)
    outcomes = {outcome.attempt: outcome.bound for outcome in last_outcomes(script)}
    assert outcomes == {1: True, 2: False}


def test_a_late_answer_to_a_pod_that_was_withdrawn_changes_nothing() -> None:
    script = two([], pre_bind=[PATCH])
    call = one(Call, script.order())
    script.handle(PREEMPTED)
    assert script.answer(call) == []
    assert script.handle(PREEMPTED) == []
    assert len(last_outcomes(script)) == 1


class Pausing(ReservePlugin, PermitPlugin, PreBindPlugin):
    name = "Pausing"

    def __init__(self) -> None:
        self.unreserved = 0

    def reserve(self, state: object, node: str) -> Status:
        return SUCCESS

    def unreserve(self, state: object, node: str) -> None:
        self.unreserved += 1

    def permit(self, state: object, node: str) -> Permission:
        return Permission(SUCCESS)

    def pre_bind(self, state: object, node: str) -> PreBindSteps:
        yield Pause(1.0, 60.0)
        return SUCCESS


def test_a_pod_whose_preparation_pauses_is_withdrawn() -> None:
    plugin = Pausing()
    script = Script(pausing(plugin))
    script.order()
    script.handle(PREEMPTED)
    assert plugin.unreserved == 1
    assert [outcome.plugin for outcome in last_outcomes(script)] == ["DefaultPreemption"]


def pausing(plugin: Pausing) -> Framework:
    points = (ExtensionPoint.RESERVE, ExtensionPoint.PERMIT, ExtensionPoint.PRE_BIND)
    names = {**dict.fromkeys(points, plugin.name), ExtensionPoint.BIND: DefaultBinder.name}
    return framework({point: [name] for point, name in names.items()}, plugin, DefaultBinder())
