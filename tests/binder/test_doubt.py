"""When it is not known whether a pod is bound."""

import pytest

from services.binder.carrying import LONGEST_PAUSE, LOOK_AGAIN, SETTLING
from services.binder.events import Call, LookUp, Record, Refused, SetCondition, Unknown, Where
from shared.messages.binding import BindingOutcome
from tests.binder.support import TIME, Script, binding_framework, one, only
from tests.framework.plugins import scripted

CONFLICT = Refused(409, "it is bound already")
NO_ANSWER = Unknown("no answer within 10 s")
FAILED = 'running Bind plugin "DefaultBinder": '


def doubting(result: Refused | Unknown, journal: list[str] | None = None) -> tuple[Script, LookUp]:
    script = Script(binding_framework(scripted("A", [] if journal is None else journal)))
    return script, one(LookUp, script.answer(one(Call, script.order()), result))


@pytest.mark.parametrize("result", [CONFLICT, NO_ANSWER])
def test_a_pod_that_is_on_the_very_node_is_bound(result: Refused | Unknown) -> None:
    journal: list[str] = []
    script, look_up = doubting(result, journal)
    assert look_up == LookUp("p", 1, "default", "p")
    assert script.outcomes() == []
    script.found(look_up, Where.ON_NODE, "n1")
    assert script.outcomes() == [BindingOutcome("p", 1)]
    assert journal[-1] == "A.post_bind(n1)"


@pytest.mark.parametrize("result", [CONFLICT, NO_ANSWER])
def test_of_a_pod_on_another_node_nothing_is_said_where_its_owner_looks(result: Refused | Unknown) -> None:
    journal: list[str] = []
    script, look_up = doubting(result, journal)
    effects = script.found(look_up, Where.ON_NODE, "n2")
    assert not only(Record, effects) and not only(SetCondition, effects)
    assert script.outcomes() == [BindingOutcome("p", 1, "the pod is on node n2 already", plugin="DefaultBinder")]
    assert journal[-1] == "A.unreserve(n1)"


@pytest.mark.parametrize("result", [CONFLICT, NO_ANSWER])
def test_a_pod_that_is_gone(result: Refused | Unknown) -> None:
    script, look_up = doubting(result)
    script.found(look_up, Where.GONE)
    gone = f"the pod is gone: {result.message}"
    assert script.outcomes() == [BindingOutcome("p", 1, gone, plugin="DefaultBinder", gone=True)]


def test_a_conflict_over_a_pod_that_is_not_bound_is_a_failure() -> None:
    script, look_up = doubting(CONFLICT)
    effects = script.found(look_up, Where.UNBOUND)
    assert one(SetCondition, effects).reason == "SchedulerError"
    assert script.outcomes() == [BindingOutcome("p", 1, FAILED + CONFLICT.message, plugin="DefaultBinder")]


def test_a_call_that_was_cut_off_may_still_arrive_so_one_look_is_not_enough() -> None:
    script, look_up = doubting(NO_ANSWER)
    script.found(look_up, Where.UNBOUND)
    assert script.outcomes() == []
    look_up = one(LookUp, script.pass_time(LOOK_AGAIN))
    script.found(look_up, Where.ON_NODE, "n1")
    assert script.outcomes() == [BindingOutcome("p", 1)]


def test_a_pod_that_stays_unbound_is_a_failure() -> None:
    script, look_up = doubting(NO_ANSWER)
    script.found(look_up, Where.UNBOUND)
    look_up = one(LookUp, script.pass_time(SETTLING))
    script.found(look_up, Where.UNBOUND)
    assert script.outcomes() == [BindingOutcome("p", 1, FAILED + NO_ANSWER.message, plugin="DefaultBinder")]


def test_it_is_looked_up_less_and_less_often_and_left_at_the_deadline() -> None:
    journal: list[str] = []
    script, look_up = doubting(NO_ANSWER, journal)
    began = script.now
    looks = []
    while script.core.held:
        script.found(look_up, Where.UNKNOWN)
        while script.core.held and not (found := only(LookUp, script.pass_time(0.25))):
            pass
        if found:
            look_up = found[0]
            looks.append(script.now - began)
    assert looks == [0.5, 1.5, 3.5, 7.5, 15.5, 15.5 + LONGEST_PAUSE]
    assert script.now == began + TIME
    assert script.told == script.outcomes() == []
    assert journal.count("A.unreserve(n1)") == 1


def test_what_comes_after_the_end_is_not_listened_to() -> None:
    script, look_up = doubting(CONFLICT)
    script.found(look_up, Where.ON_NODE, "n1")
    assert script.found(look_up, Where.ON_NODE, "n2") == []
    assert script.outcomes() == [BindingOutcome("p", 1)]
