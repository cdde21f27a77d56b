"""PreBind in steps: plugins that look at answers, and wait for others to do something."""

from collections.abc import Generator, Sequence
from typing import Any

import pytest

from flotilla.plugin import BindingState, PreBindPlugin
from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Pause, PreBindSteps, Status, error, unschedulable
from services.binder.attempts import AttemptState
from services.binder.core import BinderCore
from services.binder.events import (
    Call,
    DeviceWaitEnded,
    Done,
    Leave,
    Refused,
    Result,
    TellDevicesAwaited,
    TellOwner,
    Tick,
    Unknown,
)
from shared.cluster.devices import ClaimAllocation, DeviceDecision
from shared.cluster.volumes import VolumeDecision
from shared.config.args import VolumeBindingArgs
from shared.config.points import ExtensionPoint
from shared.messages.binding import LONGEST_WAIT, BindingOutcome, BindingOutcomes
from shared.model.codec import encode_json
from shared.model.devices import AllocatedDevice, AllocationResult, DeviceAllocation
from shared.plugins.devices.device_readiness import WaitResult
from shared.plugins.dynamicresources import DynamicResources
from shared.plugins.queueandbind import DefaultBinder
from shared.plugins.volumes.podvolumes import DECISION
from shared.plugins.volumes.volumebinding import VolumeBinding
from tests.binder.support import PROFILE, Script, api_call, one, only, told
from tests.framework.plugins import framework

PATIENCE = 120.0


class Stepwise(PreBindPlugin):
    """Calls and pauses until the answer is enough, and keeps the answers."""

    name = "Stepwise"

    def __init__(self, end: Status = SUCCESS, pauses: int = 1, patience: float = PATIENCE) -> None:
        self.end = end
        self.pauses = pauses
        self.patience = patience
        self.answers: list[ApiAnswer] = []

    def pre_bind(self, state: BindingState, node: str) -> PreBindSteps:
        self.answers.append((yield api_call("/look")))
        for _ in range(self.pauses):
            self.answers.append((yield Pause(1.0, self.patience)))
        return self.end


class Patient(PreBindPlugin):
    """Pauses for ten minutes at a time, and has an hour."""

    name = "Patient"
    reads_pod = False

    def pre_bind(self, state: BindingState, node: str) -> PreBindSteps:
        while True:
            yield Pause(600.0, 3600.0)


def script_of(plugin: PreBindPlugin, *points: ExtensionPoint) -> Script:
    """The plugin runs at PreBind, and at these points."""
    at = {point: [plugin.name] for point in (ExtensionPoint.PRE_BIND, *points)}
    return Script(framework({**at, ExtensionPoint.BIND: ["DefaultBinder"]}, plugin, DefaultBinder()))


def last_outcome(script: Script) -> BindingOutcome:
    script.pass_time(0.01)
    return [outcome for report in only(BindingOutcomes, script.effects) for outcome in report.outcomes][-1]


def state_of(core: BinderCore, uid: str = "p") -> AttemptState:
    attempt = core._attempts.get(uid)
    assert attempt is not None
    return attempt.state


def test_a_plugin_with_more_patience_than_the_snapshot_grants_has_it_asked_for_in_parts() -> None:
    script = script_of(Patient())
    script.order()
    (wait,) = [outcome.wait for report in script.reports() for outcome in report.outcomes]
    assert wait == LONGEST_WAIT
    granted_until, began = script.now + LONGEST_WAIT, script.now
    while script.now < began + 3000.0:
        script.pass_time(10.0)
        for outcome in [outcome for report in script.reports() for outcome in report.outcomes]:
            assert outcome.wait is not None and outcome.wait < LONGEST_WAIT + 0.001
            granted_until = script.now + outcome.wait
        assert granted_until > script.now


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (Done(b"{}"), ApiAnswer(200, b"{}", elapsed=2.0)),
        (Refused(404, "gone"), ApiAnswer(404, message="gone", elapsed=2.0)),
        (Unknown("?"), ApiAnswer(message="?", elapsed=2.0)),
    ],
)
def test_a_plugin_is_sent_the_answer_to_its_call(result: Result, expected: ApiAnswer) -> None:
    plugin = Stepwise(pauses=0)
    script = script_of(plugin)
    call = one(Call, script.order())
    script.now += 2.0
    assert one(Call, script.answer(call, result)).binds
    assert plugin.answers == [expected]


def test_after_a_pause_it_goes_on() -> None:
    plugin = Stepwise()
    script = script_of(plugin)
    assert only(Call, script.answer(one(Call, script.order()))) == []
    assert state_of(script.core) is AttemptState.PAUSED
    assert only(Call, script.pass_time(0.9)) == []
    binding = one(Call, script.pass_time(0.35))
    assert binding.binds
    assert plugin.answers[1] == ApiAnswer(elapsed=1.25)
    script.answer(binding)
    assert script.outcomes()[-1] == told("p", 1)


def test_many_that_pause_wake_up_together() -> None:
    script = script_of(Stepwise())
    for i in range(10):
        script.answer(one(Call, script.order(f"p{i}")))
        script.now += 0.01
    assert len({attempt.resume_at for attempt in script.core._attempts.all()}) <= 2


def test_the_snapshot_is_asked_for_the_time_that_the_plugin_may_take() -> None:
    script = script_of(Stepwise(pauses=3))
    began = script.now
    script.answer(one(Call, script.order()))
    asked = told("p", 1, wait=PATIENCE)
    assert script.outcomes() == [asked]
    deadline = script.core._attempts.all()[0].deadline
    assert deadline >= began + PATIENCE
    script.pass_time(1.5)
    script.pass_time(1.5)
    assert script.outcomes() == []


def test_without_an_answer_of_the_snapshot_the_pod_is_left_at_its_first_deadline() -> None:
    script = script_of(Stepwise(pauses=1000))
    script.answer(one(Call, script.order()))
    for _ in range(40):
        script.pass_time(1.0)
    assert script.core.held == 0
    assert script.told == []


@pytest.mark.parametrize(
    ("status", "message"),
    [(error("never bound"), 'running PreBind plugin "Stepwise": never bound'), (unschedulable("no"), "no")],
)
def test_a_plugin_may_give_up_after_a_pause(status: Status, message: str) -> None:
    script = script_of(Stepwise(status))
    script.answer(one(Call, script.order()))
    effects = script.pass_time(1.25)
    assert one(TellOwner, effects).message == message
    assert last_outcome(script) == told("p", 1, message, plugin="Stepwise")


def test_a_plugin_that_raises_in_the_middle_fails_the_pod() -> None:
    class Raises(Stepwise):
        def pre_bind(self, state: BindingState, node: str) -> PreBindSteps:
            yield Pause(0.5, PATIENCE)
            raise KeyError("x")

    script = script_of(Raises())
    script.order()
    script.pass_time(1.0)
    assert "KeyError: 'x'" in last_outcome(script).reason


def test_a_paused_attempt_is_superseded_and_handed_back() -> None:
    script = script_of(Stepwise(pauses=5))
    script.answer(one(Call, script.order()))
    call = one(Call, script.order(attempt=2))
    script.answer(call)
    script.handle(Leave())
    assert script.outcomes()[-1] == told("p", 2, "the binder is leaving", handed_back=True)
    script.handle(Tick())
    assert script.core.held == 0


def test_the_decision_about_volumes_reaches_the_plugin_that_binds_them() -> None:
    found: list[VolumeDecision | None] = []

    class Looks(VolumeBinding):
        def pre_bind(self, state: BindingState, node: str) -> Status | Generator[ApiCall | Pause, ApiAnswer, Status]:
            found.append(state.get(DECISION))
            return super().pre_bind(state, node)

    script = script_of(Looks(VolumeBindingArgs()), ExtensionPoint.FILTER)
    assert one(Call, script.order("plain")).binds
    decision = VolumeDecision(provisions=["default/data"])
    call = one(Call, script.order("p", volumes=decision))
    assert (call.api, call.binds) == (
        ApiCall("GET", "/api/v1/namespaces/default/persistentvolumeclaims/data", {}),
        False,
    )
    assert found == [None, decision]


# Devices

CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
ALLOCATED = AllocationResult(
    devices=DeviceAllocation(results=[AllocatedDevice(request="r", driver="d.example.com", pool="n1", device="gpu-0")])
)


def asked(effects: Sequence[object]) -> tuple[Call, ApiCall]:
    """The call that is made, and what is asked of the API server."""
    call = one(Call, effects)
    assert isinstance(call.api, ApiCall)
    return call, call.api


def test_claims_of_the_order_are_written_before_the_pod_is_bound() -> None:
    script = Script(
        framework(
            {ExtensionPoint.PRE_BIND: ["DynamicResources"], ExtensionPoint.BIND: ["DefaultBinder"]},
            DynamicResources(),
            DefaultBinder(),
        )
    )
    script.now = 1_767_225_600.0
    devices = DeviceDecision([ClaimAllocation("default/c", "claim-uid", ALLOCATED, "1")])
    call, api = asked(script.order(devices=devices))
    assert (api.method, api.path, call.binds) == ("GET", CLAIM, False)
    claim: dict[str, Any] = {"metadata": {"name": "c", "uid": "claim-uid", "resourceVersion": "1"}}
    script.now += 1.0
    call, api = asked(script.answer(call, Done(encode_json(claim))))
    assert (api.method, api.path) == ("PUT", CLAIM)
    call, api = asked(script.answer(call, Done(encode_json(api.body))))
    assert (api.method, api.path) == ("PUT", f"{CLAIM}/status")
    status = api.body["status"]
    assert status["allocation"] == {
        "devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "n1", "device": "gpu-0"}]},
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    }
    assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "p"}]
    call, _ = asked(script.answer(call, Done(encode_json(api.body))))
    assert call.binds


def test_a_claim_that_was_allocated_elsewhere_fails_the_attempt() -> None:
    script = script_of(DynamicResources())
    call = one(Call, script.order(devices=DeviceDecision([ClaimAllocation("default/c", "u", ALLOCATED)])))
    other = {"devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "n1", "device": "gpu-1"}]}}
    claim = {"metadata": {"name": "c", "uid": "u"}, "status": {"allocation": other}}
    script.answer(call, Done(encode_json(claim)))
    assert "got allocated elsewhere in the meantime" in last_outcome(script).reason


def awaited_claim(*conditions: str) -> bytes:
    """The claim, allocated and reserved for the pod: its device waits for `Ready`, and has these conditions."""
    device = {"driver": "d.example.com", "pool": "n1", "device": "gpu-0"}
    allocated = {"devices": {"results": [{"request": "r", **device, "bindingConditions": ["Ready"]}]}}
    status = {
        "allocation": allocated,
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
        "devices": [{**device, "conditions": [{"type": each, "status": "True"} for each in conditions]}],
    }
    return encode_json({"metadata": {"name": "c", "uid": "u"}, "status": status})


def test_the_wait_for_binding_conditions_is_told_once_and_measured_to_its_end() -> None:
    script = script_of(DynamicResources())
    call = one(Call, script.order(devices=DeviceDecision([ClaimAllocation("default/c", "u", None)])))
    script.now += 1.0
    touch = one(Call, script.answer(call, Done(awaited_claim())))
    began = script.answer(touch, Done(awaited_claim()))
    assert one(TellDevicesAwaited, began).order.node == "n1"
    assert state_of(script.core) is AttemptState.PAUSED
    for claim in (awaited_claim(), awaited_claim("Ready")):
        assert only(DeviceWaitEnded, script.effects) == []
        script.answer(one(Call, script.pass_time(5.25)), Done(claim))
    assert only(DeviceWaitEnded, script.effects) == [
        DeviceWaitEnded(PROFILE, ("d.example.com",), WaitResult.SUCCESS, 10.5)
    ]
    assert len(only(TellDevicesAwaited, script.effects)) == 1
    assert state_of(script.core) is AttemptState.BINDING


def test_a_wait_that_is_superseded_has_no_result() -> None:
    script = script_of(DynamicResources())
    devices = DeviceDecision([ClaimAllocation("default/c", "u", None)])
    touch = one(Call, script.answer(one(Call, script.order(devices=devices)), Done(awaited_claim())))
    script.answer(touch, Done(awaited_claim()))
    assert state_of(script.core) is AttemptState.PAUSED
    script.order(attempt=2, devices=devices)
    assert only(DeviceWaitEnded, script.effects) == []
