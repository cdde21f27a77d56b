"""Extenders that bind: in place of the bind plugins, or before them."""

import pytest

from flotilla.results import ApiCall
from services.binder.api_calls import call_extender
from services.binder.core import BinderCore
from services.binder.events import (
    Call,
    Done,
    ExtenderBinding,
    LookUp,
    Refused,
    Result,
    TellOwner,
    Unknown,
    Where,
)
from shared.config.structs import ExtenderConfig, ManagedResource
from shared.extenders.wire import bind_request
from shared.model.objects import Pod
from testing.builders import pod
from tests.binder.support import PROFILE, Script, binding_framework, one, only, overdue, told
from tests.extenders.server import a_client, an_extender, slowly

BINDER = ExtenderConfig("http://binder", bind_verb="bind")
LENIENT = ExtenderConfig("http://binder", bind_verb="bind", ignorable=True)
OF_GPUS = ExtenderConfig("http://binder", bind_verb="bind", managed_resources=(ManagedResource("example.com/gpu"),))
BODY = bind_request("default", "p", "p", "n1")


def script_with(*extenders: ExtenderConfig) -> Script:
    script = Script()
    script.core = BinderCore("b", {PROFILE: binding_framework()}, clock=lambda: script.now, extenders=extenders)
    return script


def bound_by(script: Script, pod: Pod | None = None) -> tuple[Call, ExtenderBinding | ApiCall]:
    call = one(Call, script.order(pod=pod))
    assert call.binds
    return call, call.api


def test_an_extender_is_asked_to_bind() -> None:
    script = script_with(BINDER)
    call, asked = bound_by(script)
    assert asked == ExtenderBinding(BINDER, BODY)
    assert call.name == "extender http://binder"
    script.answer(call)
    assert script.outcomes() == [told("p", 1)]


def test_a_pod_that_does_not_concern_it_is_bound_as_ever() -> None:
    gpu = pod("p").uid("p").container("c").request({"example.com/gpu": 1}).build()
    assert isinstance(bound_by(script_with(OF_GPUS), pod("p").uid("p").build())[1], ApiCall)
    assert isinstance(bound_by(script_with(OF_GPUS))[1], ApiCall)
    assert isinstance(bound_by(script_with(OF_GPUS), gpu)[1], ExtenderBinding)


def test_what_it_says_is_told_in_its_words() -> None:
    script = script_with(BINDER)
    call, _ = bound_by(script)
    effects = script.answer(call, Refused(0, "no such device"))
    owner = one(TellOwner, effects)
    assert (owner.message, owner.failure) == ("no such device", "SchedulerError")
    assert script.outcomes() == [told("p", 1, "no such device")]


def test_without_an_answer_the_pod_is_looked_up() -> None:
    script = script_with(BINDER)
    call, _ = bound_by(script)
    look = one(LookUp, script.answer(call, Unknown("code 500")))
    script.found(look, Where.ON_NODE, "n1")
    assert script.outcomes() == [told("p", 1)]


def test_a_pod_that_it_did_not_bind_is_left_to_the_snapshot_at_the_deadline() -> None:
    """It names no version, so it may bind the pod whenever it likes: no outcome of the binder's says what it did."""
    script = script_with(BINDER)
    call, _ = bound_by(script)
    look = one(LookUp, script.answer(call, Unknown("code 500")))
    assert look.fences == ""
    script.found(look, Where.UNBOUND)
    while script.core.held:
        for again in only(LookUp, script.pass_time(1.0)):
            script.found(again, Where.UNBOUND)
    assert script.outcomes() == [overdue("p", 1)]


@pytest.mark.parametrize("result", [Refused(0, "no"), Unknown("no answer")], ids=["refused", "unknown"])
def test_after_one_that_may_fail_the_plugins_bind(result: Result) -> None:
    script = script_with(LENIENT)
    call, asked = bound_by(script)
    assert isinstance(asked, ExtenderBinding)
    second = one(Call, script.answer(call, result))
    assert isinstance(second.api, ApiCall)
    assert only(TellOwner, script.answer(second)) != []
    assert script.outcomes() == [told("p", 1)]


def test_the_plugins_fail_after_it_as_they_do_without_it() -> None:
    script = script_with(LENIENT)
    call, _ = bound_by(script)
    second = one(Call, script.answer(call, Unknown("no answer")))
    script.found(one(LookUp, script.answer(second, Refused(422, "the pod is odd"))), Where.UNBOUND)
    (outcome,) = script.outcomes()
    assert outcome.reason == 'running Bind plugin "DefaultBinder": the pod is odd'


def test_a_call_to_an_extender_is_left_at_the_deadline() -> None:
    script = script_with(BINDER)
    call, _ = bound_by(script)
    script.pass_time(31.0)
    assert not script.core.awaits(call)
    assert script.answer(call) == []


@pytest.mark.asyncio
async def test_what_becomes_of_a_real_call() -> None:
    async with an_extender() as extender:
        extender.says("bind", {})
        config = extender.config(bind_verb="bind", http_timeout=1.0)
        async with a_client(config) as client:
            call = ExtenderBinding(config, BODY)
            assert await call_extender(client, call, 5.0) == Done()
            extender.says("bind", {"Error": "no"})
            assert await call_extender(client, call, 5.0) == Refused(0, "no")
            extender.says("bind", b"{")
            assert isinstance(await call_extender(client, call, 5.0), Unknown)
            extender.answers["bind"] = lambda body: slowly({})
            assert isinstance(await call_extender(client, call, 5.0), Unknown)
            assert await call_extender(client, call, 0.05) == Unknown("no answer within 0.1 s")
    async with a_client(config) as client:
        assert isinstance(await call_extender(client, call, 5.0), Refused), "it is not there any more"
