"""A pod that waits for permits or PreBind is nominated to its node; NominatedNodeNameForExpectation."""

from collections.abc import Generator

import pytest
from msgspec.structs import replace

from flotilla.plugin import BindingState, PermitPlugin, PreBindPlugin
from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Pause, Permission, Status
from services.binder.bind_steps import CHANGED, STALE_SECONDS
from services.binder.events import Call, Effect, LookUp, Nominate, Nominated, TellOwner, Where
from shared.cluster.devices import ClaimAllocation, DeviceDecision
from shared.config.feature_gates import FeatureGates
from shared.config.points import ExtensionPoint
from shared.plugins.queueandbind import DefaultBinder
from tests.binder.support import OTHER, TIME, VERSION, Script, api_call, one, only, told, wait
from tests.binder.world import until, world
from tests.framework.plugins import framework

Steps = Generator[ApiCall | Pause, ApiAnswer, Status]
LATER = "9"
BINDING, VOLUME = "/api/v1/namespaces/default/pods/p/binding", "/volume"


class Permitting(PermitPlugin):
    name = "Permitting"

    def __init__(self, waits: float) -> None:
        self._waits = waits

    def permit(self, state: BindingState, node: str) -> Permission:
        return wait(self._waits) if self._waits else Permission()


class Preparing(PreBindPlugin):
    """Makes a call, or pauses, or does nothing."""

    name = "Preparing"

    def __init__(self, *steps: ApiCall | Pause) -> None:
        self._steps = steps

    def pre_bind(self, state: BindingState, node: str) -> Status | Steps:
        return self._run(state.pod.metadata.resource_version) if self._steps else SUCCESS

    def _run(self, version: str) -> Steps:
        for step in self._steps:
            yield replace(step, body={"version": version}) if isinstance(step, ApiCall) else step
        return SUCCESS


def script(*steps: ApiCall | Pause, permit: float = 0.0) -> Script:
    plugins = (Permitting(permit), Preparing(*steps), DefaultBinder())
    points = (ExtensionPoint.PERMIT, ExtensionPoint.PRE_BIND, ExtensionPoint.BIND)
    at = {point: [plugin.name] for point, plugin in zip(points, plugins, strict=True)}
    return Script(framework(at, *plugins), nominates=True)


def paths(effects: list[Effect]) -> list[str]:
    return [call.api.path for call in only(Call, effects) if isinstance(call.api, ApiCall)]


def test_a_pod_that_waits_for_nothing_is_not_nominated() -> None:
    effects = script().order()
    assert only(Nominate, effects) == []
    assert paths(effects) == [BINDING]


@pytest.mark.parametrize("step", [api_call(VOLUME), Pause(1.0, 10.0)])
def test_a_pod_with_something_to_prepare_is_nominated_first(step: ApiCall | Pause) -> None:
    play = script(step)
    effects = play.order()
    assert one(Nominate, effects).order.node == "n1"
    assert paths(effects) == []
    assert paths(play.handle(Nominated("p", 1, VERSION))) == ([VOLUME] if isinstance(step, ApiCall) else [])


def test_a_pod_is_nominated_once() -> None:
    play = script(api_call(VOLUME), api_call(VOLUME), permit=9.0)
    assert len(only(Nominate, play.order())) == 1
    play.handle(Nominated("p", 1, ""))
    (volume,) = only(Call, play.permit("Permitting"))
    assert only(Nominate, play.answer(volume)) == []


def test_prebind_and_bind_see_the_version_of_the_renewed_order() -> None:
    """With the old one the API server would refuse what they write."""
    play = script(api_call(VOLUME))
    play.order()
    assert only(Call, play.handle(Nominated("p", 1, OTHER))) == []
    assert play.outcomes() == [told("p", 1, CHANGED, found=OTHER)]
    (volume,) = only(Call, play.order(version=OTHER))
    assert isinstance(volume.api, ApiCall)
    assert volume.api.body == {"version": OTHER}
    (bind,) = only(Call, play.answer(volume))
    assert isinstance(bind.api, ApiCall)
    assert bind.api.body["metadata"]["resourceVersion"] == OTHER
    play.answer(bind)
    assert play.outcomes() == [told("p", 1, version=OTHER)]


def test_without_a_renewed_order_the_pod_is_looked_up_and_reported_again() -> None:
    play = script(api_call(VOLUME))
    play.order()
    play.handle(Nominated("p", 1, OTHER))
    play.outcomes()
    look_up = one(LookUp, play.pass_time(STALE_SECONDS))
    play.found(look_up, Where.UNBOUND)
    assert play.outcomes() == [told("p", 1, CHANGED, found=OTHER)]
    assert paths(play.order(version=OTHER)) == [VOLUME]


def test_a_renewed_order_may_name_a_later_version_than_the_nomination_s() -> None:
    """The pod has changed again before it was looked up."""
    play = script(api_call(VOLUME))
    play.order()
    play.handle(Nominated("p", 1, OTHER))
    play.found(one(LookUp, play.pass_time(STALE_SECONDS)), Where.UNBOUND, version=LATER)
    assert play.outcomes()[-1] == told("p", 1, CHANGED, found=LATER)
    assert paths(play.order(version=LATER)) == [VOLUME]


def test_before_the_permit_too() -> None:
    play = script(permit=9.0)
    play.order()
    play.handle(Nominated("p", 1, OTHER))
    play.order(version=LATER)
    assert paths(play.permit("Permitting")) == [BINDING]


@pytest.mark.parametrize("version", ["", VERSION])
def test_a_nomination_that_changed_nothing_or_was_not_written_delays_nothing(version: str) -> None:
    play = script(api_call(VOLUME))
    play.order()
    (volume,) = only(Call, play.handle(Nominated("p", 1, version)))
    assert paths(play.answer(volume)) == [BINDING]
    assert play.outcomes() == []


def test_a_permit_may_come_before_the_nomination_is_written() -> None:
    play = script(permit=9.0)
    play.order()
    assert paths(play.permit("Permitting")) == []
    assert paths(play.handle(Nominated("p", 1, OTHER))) == []
    assert paths(play.order(version=OTHER)) == [BINDING]


def test_a_renewed_order_may_come_before_the_permit() -> None:
    play = script(permit=9.0)
    play.order()
    play.handle(Nominated("p", 1, OTHER))
    assert paths(play.order(version=OTHER)) == []
    assert paths(play.permit("Permitting")) == [BINDING]


def test_a_rejected_permit_clears_the_nomination() -> None:
    play = script(permit=9.0)
    nominate = one(Nominate, play.order())
    assert play.core.awaits(nominate)
    told_owner = one(TellOwner, play.permit("Permitting", allow=False))
    assert told_owner.failure == "Unschedulable"
    assert not play.core.awaits(nominate)
    assert play.handle(Nominated("p", 1, OTHER)) == []


def test_an_order_without_version_is_no_reason_to_write() -> None:
    """A write that may come late must name the version."""
    assert only(Nominate, script(api_call(VOLUME)).order(version="")) == []


def test_an_attempt_that_ends_at_its_deadline_ignores_the_late_answer() -> None:
    play = script(api_call(VOLUME))
    play.order()
    play.pass_time(TIME)
    assert play.core.held == 0
    assert play.handle(Nominated("p", 1, OTHER)) == []


@pytest.mark.asyncio
@pytest.mark.parametrize(("gates", "expected"), [("", "n1"), ("NominatedNodeNameForExpectation=false", "")])
async def test_the_status_shows_the_node_while_the_pod_waits(gates: str, expected: str) -> None:
    """For a device that is not ready yet. The API server clears it when the pod is bound."""
    device = {"driver": "d", "pool": "n1", "device": "gpu-0"}
    async with world(gates=FeatureGates.parse(gates)) as w:
        uid = w.pod("p")

        def claim(ready: str) -> None:
            status = {
                "allocation": {"devices": {"results": [{"request": "r", **device, "bindingConditions": ["Ready"]}]}},
                "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}],
                "devices": [{**device, "conditions": [{"type": "Ready", "status": ready}]}],
            }
            metadata = {"name": "c", "namespace": "default", "uid": "uid-c"}
            made = {"metadata": metadata, "spec": {"devices": {}}, "status": status}
            w.simulator.store_raw("resourceclaims", made, group="resource.k8s.io", version="v1")

        claim("False")
        w.order("p", devices=DeviceDecision([ClaimAllocation("default/c", "uid-c", None)]))
        await w.event("BindingConditionsPending")
        assert w.nominated("p") == expected
        claim("True")
        await until(lambda: w.node_of("p") == "n1")
        assert w.nominated("p") == ""
