"""An order's way through Reserve, PreBind, Bind and PostBind, and back from each of them."""

from typing import Any

import pytest

from flotilla.results import ApiCall, Code, Status, error, unschedulable
from services.binder.events import (
    AttemptEnded,
    Call,
    Done,
    Problem,
    Refused,
    Result,
    TellOwner,
)
from tests.binder.support import PROFILE, Script, api_call, binding_framework, one, only, told
from tests.framework.plugins import scripted

REFUSED = Refused(0, "no rights")


def two(journal: list[str], **second: Any) -> Script:
    """Plugins A and B, of which B answers as said."""
    return Script(binding_framework(scripted("A", journal), scripted("B", journal, **second)))


def unreserved(journal: list[str]) -> list[str]:
    return [entry for entry in journal if "unreserve" in entry]


def path_of(call: Call) -> str:
    assert isinstance(call.api, ApiCall)
    return call.api.path


def test_an_order_becomes_the_default_binding_call() -> None:
    script = Script()
    call = one(Call, script.order("p", node="n1"))
    assert isinstance(call.api, ApiCall)
    assert (call.api.method, call.api.path) == ("POST", "/api/v1/namespaces/default/pods/p/binding")
    assert call.api.body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    assert call.api.body["metadata"]["uid"] == "p"
    assert call.binds


def test_a_bound_pod_is_reported_and_recorded() -> None:
    script = Script()
    effects = script.answer(one(Call, script.order()))
    owner = one(TellOwner, effects)
    assert (owner.order.uid, owner.message, owner.failure) == ("p", "Successfully assigned default/p to n1", "")
    assert one(AttemptEnded, effects).reason == ""
    assert script.outcomes() == [told("p", 1)]
    assert script.core.held == script.core.unacknowledged == 0


def test_calls_come_in_the_order_of_orders() -> None:
    script = Script()
    calls = [one(Call, script.order(uid)).uid for uid in "cab"]
    assert calls == ["c", "a", "b"]


def test_plugins_run_in_order_and_post_bind_after_the_call() -> None:
    journal: list[str] = []
    script = two(journal)
    call = one(Call, script.order())
    before = ["A.reserve(n1)", "B.reserve(n1)", "A.permit", "B.permit", "A.pre_bind", "B.pre_bind"]
    assert journal == before
    script.answer(call)
    assert journal == [*before, "A.post_bind(n1)", "B.post_bind(n1)"]


def test_calls_of_pre_bind_are_made_one_by_one_before_the_next_plugin_is_asked() -> None:
    journal: list[str] = []
    first = scripted("A", journal, pre_bind=[api_call("/a1"), api_call("/a2")])
    script = Script(binding_framework(first, scripted("B", journal, pre_bind=[api_call("/b")])))
    call = one(Call, script.order())
    paths = [path_of(call)]
    while not call.binds:
        assert ("B.pre_bind" in journal) == (path_of(call) == "/b")
        call = one(Call, script.answer(call))
        paths.append(path_of(call))
    assert paths[:3] == ["/a1", "/a2", "/b"]
    assert len(paths) == 4


def test_bind_plugins_are_asked_until_one_takes_the_pod() -> None:
    journal: list[str] = []
    skips = scripted("Skips", journal, bind=Status(Code.SKIP))
    takes = scripted("Takes", journal, bind=api_call("/own"))
    script = Script(binding_framework(bind=[skips, takes]))
    assert path_of(one(Call, script.order())) == "/own"
    assert journal == ["Skips.bind", "Takes.bind"]


def test_a_bind_plugin_may_bind_without_a_call() -> None:
    script = Script(binding_framework(bind=[scripted("Own", [])]))
    assert only(Call, script.order()) == []
    assert script.outcomes() == [told("p", 1)]


@pytest.mark.parametrize(
    ("status", "message", "plugin"),
    [
        (error("broken"), 'running Bind plugin "Own": broken', "Own"),
        (unschedulable("no"), "no", "Own"),
        (Status(Code.SKIP), "running Bind plugins: no bind plugin took the pod", ""),
    ],
)
def test_a_bind_plugin_may_fail(status: Status, message: str, plugin: str) -> None:
    journal: list[str] = []
    script = Script(binding_framework(scripted("A", journal), bind=[scripted("Own", [], bind=status)]))
    script.order()
    assert script.outcomes() == [told("p", 1, message, plugin=plugin)]
    assert unreserved(journal) == ["A.unreserve(n1)"]


class Raises:
    """An answer that cannot be given."""

    def __iter__(self) -> Any:
        raise KeyError("x")


@pytest.mark.parametrize("point", ["reserve", "permit", "pre_bind", "bind"])
def test_a_plugin_that_raises_fails_the_pod_and_nothing_else(point: str) -> None:
    journal: list[str] = []
    plugin = scripted("Bad", journal)

    def raises(*_: object) -> None:
        raise KeyError("x")

    setattr(plugin, point, raises)
    bad = binding_framework(bind=[plugin]) if point == "bind" else binding_framework(scripted("A", journal), plugin)
    script = Script(bad)
    script.order()
    (outcome,) = script.outcomes()
    assert "KeyError: 'x'" in outcome.reason
    assert '"Bad"' in outcome.reason
    assert unreserved(journal) == ([] if point == "bind" else ["Bad.unreserve(n1)", "A.unreserve(n1)"])


def test_a_plugin_that_fails_to_unreserve_stops_no_other() -> None:
    journal: list[str] = []
    bad = scripted("Bad", journal)

    def raises(*_: object) -> None:
        raise KeyError("x")

    bad.unreserve = raises  # type: ignore[attr-defined]
    script = Script(binding_framework(scripted("A", journal), bad))
    effects = script.answer(one(Call, script.order()), REFUSED)
    assert unreserved(journal) == ["A.unreserve(n1)"]
    assert str(one(Problem, effects).error) == "Pod default/p: Bad.unreserve: KeyError: 'x'"


def test_a_pod_is_bound_even_if_post_bind_fails() -> None:
    bad = scripted("Bad", [])

    def raises(*_: object) -> None:
        raise KeyError("x")

    bad.post_bind = raises  # type: ignore[attr-defined]
    script = Script(binding_framework(bad))
    effects = script.answer(one(Call, script.order()))
    assert "Bad.post_bind" in str(one(Problem, effects).error)
    assert script.outcomes() == [told("p", 1)]


def test_a_profile_that_is_not_known_fails_the_pod() -> None:
    script = Script()
    effects = script.order(profile="other")
    assert one(TellOwner, effects).message == 'profile not found for scheduler name "other"'
    assert script.outcomes() == [told("p", 1, 'profile not found for scheduler name "other"')]


@pytest.mark.parametrize(("result", "code"), [(Done(), Code.SUCCESS), (REFUSED, Code.ERROR)])
def test_points_with_plugins_are_measured(result: Result, code: Code) -> None:
    script = two([], pre_bind=[api_call("/b")])
    call = one(Call, script.order())
    script.now += 0.5
    call = one(Call, script.answer(call))
    script.now += 0.25
    script.answer(call, result)
    durations = script.core.durations
    assert durations.of_points == {
        ("Reserve", Code.SUCCESS, PROFILE): [0.0],
        ("Permit", Code.SUCCESS, PROFILE): [0.0],
        ("PreBind", Code.SUCCESS, PROFILE): [0.5],
        ("Bind", code, PROFILE): [0.25],
    } | ({("PostBind", Code.SUCCESS, PROFILE): [0.0]} if code is Code.SUCCESS else {})
    assert durations.of_plugins["DefaultBinder", "Bind", code] == [0.25]
