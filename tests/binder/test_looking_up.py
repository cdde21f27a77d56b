"""When it is not known whether a pod is bound."""

import pytest

from flotilla.results import ApiCall
from services.binder.bind_steps import CHANGED, MAX_PAUSE, STALE_SECONDS
from services.binder.events import Call, LookedUp, LookUp, Refused, TellOwner, Unknown, Where
from tests.binder.support import OTHER, TIME, VERSION, Script, binding_framework, one, only, overdue, told
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
    assert look_up == LookUp("p", 1, "default", "p", "" if result is CONFLICT else VERSION)
    assert script.outcomes() == []
    script.found(look_up, Where.ON_NODE, "n1")
    assert script.outcomes() == [told("p", 1)]
    assert journal[-1] == "A.post_bind(n1)"


@pytest.mark.parametrize("result", [CONFLICT, NO_ANSWER])
def test_of_a_pod_on_another_node_nothing_is_said_where_its_owner_looks(result: Refused | Unknown) -> None:
    journal: list[str] = []
    script, look_up = doubting(result, journal)
    effects = script.found(look_up, Where.ON_NODE, "n2")
    assert not only(TellOwner, effects)
    assert script.outcomes() == [told("p", 1, "the pod is on node n2 already", plugin="DefaultBinder", fenced=True)]
    assert journal[-1] == "A.unreserve(n1)"


@pytest.mark.parametrize("result", [CONFLICT, NO_ANSWER])
def test_a_pod_that_is_gone(result: Refused | Unknown) -> None:
    script, look_up = doubting(result)
    script.found(look_up, Where.GONE)
    gone = f"the pod is gone: {result.message}"
    assert script.outcomes() == [told("p", 1, gone, plugin="DefaultBinder", gone=True, fenced=True)]


def test_a_conflict_over_a_pod_that_has_not_changed_is_a_failure_once_it_is_fenced() -> None:
    script, look_up = doubting(CONFLICT)
    fencing = one(LookUp, script.found(look_up, Where.UNBOUND, version=VERSION))
    assert fencing.fences == VERSION
    assert script.outcomes() == []
    effects = script.found(fencing, Where.UNBOUND)
    assert one(TellOwner, effects).failure == "SchedulerError"
    failed = told("p", 1, FAILED + CONFLICT.message, plugin="DefaultBinder", fenced=True)
    assert script.outcomes() == [failed]


@pytest.mark.parametrize("result", [NO_ANSWER, Refused(403, "no"), Refused(404, "no node")])
def test_a_call_that_was_sent_has_failed_only_once_it_is_fenced(result: Refused | Unknown) -> None:
    """It may be carried out much later, or twice; nothing is said of the pod before that can do no harm."""
    script, look_up = doubting(result)
    assert look_up.fences == VERSION
    assert script.outcomes() == []
    script.found(look_up, Where.UNBOUND)
    failed = told("p", 1, FAILED + result.message, plugin="DefaultBinder", fenced=True)
    assert script.outcomes() == [failed]


def test_a_call_names_the_version_of_the_order() -> None:
    call = one(Call, Script().order())
    assert isinstance(call.api, ApiCall)
    assert call.api.body["metadata"]["resourceVersion"] == VERSION


def stale() -> tuple[Script, list[str]]:
    """The pod has changed since it was ordered to be bound; the snapshot has been told."""
    journal: list[str] = []
    script, look_up = doubting(CONFLICT, journal)
    script.found(look_up, Where.UNBOUND)
    assert script.outcomes() == [told("p", 1, CHANGED, found=OTHER)]
    return script, journal


def test_a_pod_that_has_changed_goes_on_where_it_was_once_it_is_ordered_with_its_new_version() -> None:
    script, journal = stale()
    call = one(Call, script.order(version=OTHER))
    assert isinstance(call.api, ApiCall)
    assert call.api.body["metadata"]["resourceVersion"] == OTHER
    script.answer(call)
    assert script.outcomes() == [told("p", 1, version=OTHER)]
    assert journal.count("A.reserve(n1)") == 1, "no plugin is asked a second time"


def test_the_new_version_is_reported_again_if_the_order_has_the_old_one() -> None:
    script, _ = stale()
    script.epoch = 2
    look_up = one(LookUp, script.order())
    script.found(look_up, Where.UNBOUND, version="9")
    assert script.outcomes() == [told("p", 1, CHANGED, found="9")]


def test_without_an_answer_the_pod_is_looked_up_and_reported_again() -> None:
    script, _ = stale()
    assert not only(LookUp, script.pass_time(STALE_SECONDS - 0.1))
    look_up = one(LookUp, script.pass_time(0.1))
    script.found(look_up, Where.UNBOUND, version="9")
    assert script.outcomes() == [told("p", 1, CHANGED, found="9")]


def test_of_a_stale_attempt_nothing_is_held_once_another_binder_has_bound_the_pod() -> None:
    """Also if PreBind has put its deadline off for minutes."""
    script, _ = stale()
    script.found(one(LookUp, script.pass_time(STALE_SECONDS)), Where.ON_NODE, "n1")
    assert script.core.held == 0


def test_a_pod_that_is_being_deleted_is_not_ordered_again() -> None:
    script, _ = doubting(CONFLICT)
    script.handle(LookedUp("p", 1, Where.UNBOUND, version=OTHER, terminating=True))
    assert script.outcomes()[0].fenced


def test_an_order_without_a_version_is_looked_up_and_asked_for_again() -> None:
    script = Script()
    look_up = one(LookUp, script.order(version=""))
    assert look_up.fences == ""
    script.found(look_up, Where.UNBOUND)
    assert script.outcomes() == [told("p", 1, CHANGED, version="", found=OTHER)]
    assert one(Call, script.order(version=OTHER)).binds


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
    assert looks == [0.5, 1.5, 3.5, 7.5, 15.5, 15.5 + MAX_PAUSE]
    assert script.now == began + TIME
    assert script.told == []
    assert script.outcomes() == [overdue()]
    assert journal.count("A.unreserve(n1)") == 1


def test_events_after_the_end_of_an_attempt_are_ignored() -> None:
    script, look_up = doubting(CONFLICT)
    script.found(look_up, Where.ON_NODE, "n1")
    assert script.found(look_up, Where.ON_NODE, "n2") == []
    assert script.outcomes() == [told("p", 1)]
