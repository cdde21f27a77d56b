"""The binder with a real NATS and an API server."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from shared.cluster.devices import ClaimAllocation, DeviceDecision, SpecialClaim
from shared.devices.extended import RequestMapping
from shared.messages.binding import ClaimRelease, Notice, Notices
from shared.model.codec import encode_json
from shared.model.devices import AllocatedDevice, AllocationResult, DeviceAllocation, DeviceRequest, ExactDeviceRequest
from tests.binder.world import PROFILE, World, until, world

pytestmark = pytest.mark.asyncio

BINDINGS = r"/binding$"


async def test_pods_are_bound_reported_and_recorded() -> None:
    async with world() as w:
        names = [f"p{i}" for i in range(200)]
        for i, name in enumerate(names):
            w.pod(name)
            w.order(name, f"n{i % 2 + 1}")
        for name in names:
            assert (await w.outcome(name)).reason == ""
        assert [w.node_of(name) for name in names] == ["n1", "n2"] * 100
        assert {outcome.uid for outcome in w.outcomes} == {f"uid-{name}" for name in names}
        assert len(w.reports) < len(w.outcomes)
        event = await w.event("Scheduled")
        pod = event["regarding"]["name"]
        assert event["note"] == f"Successfully assigned default/{pod} to {w.node_of(pod)}"
        assert (event["type"], event["action"], event["reportingController"]) == (
            "Normal",
            "Binding",
            "default-scheduler",
        )
        assert w.metric("flotilla_bind_calls_total", result="done") == 200
        name = "scheduler_framework_extension_point_duration_seconds_count"
        assert w.metric(name, extension_point="Bind", status="Success", profile="default-scheduler") == 200


async def test_a_pod_that_is_bound_to_the_very_node_already_is_bound() -> None:
    async with world() as w:
        w.pod("p")
        w.order("p", "n1")
        await w.outcome("p")
        w.outcomes.clear()
        w.order("p", "n1")
        assert (await w.outcome("p")).reason == ""
        assert w.metric("flotilla_bind_calls_total", result="refused") == 1


async def test_a_pod_that_is_bound_elsewhere_is_a_failure() -> None:
    async with world() as w:
        w.pod("p")
        w.order("p", "n1")
        await w.outcome("p")
        w.outcomes.clear()
        w.order("p", "n2")
        assert (await w.outcome("p")).reason == "the pod is on node n1 already"
        assert w.node_of("p") == "n1"


async def test_a_pod_that_does_not_exist_or_not_any_more_is_gone() -> None:
    async with world() as w:
        w.order("p")
        assert (await w.outcome("p")).reason.startswith("the pod is gone: ")
        w.pod("q")
        w.order("q", uid="another")
        await until(lambda: len(w.outcomes) == 2)
        assert w.outcomes[1].reason.startswith("the pod is gone: ")
        assert w.node_of("q") == ""


async def test_the_owner_of_a_pod_is_told_of_a_refusal() -> None:
    async with world() as w:
        w.pod("p", nominated="n1")
        w.simulator.faults.fail("POST", BINDINGS, 403, reason="Forbidden")
        w.order("p")
        outcome = await w.outcome("p")
        assert outcome.reason == 'running Bind plugin "DefaultBinder": injected fault'
        event = await w.event("FailedScheduling")
        assert (event["type"], event["action"], event["note"]) == ("Warning", "Scheduling", outcome.reason)
        await until(lambda: w.condition_of("p") is not None)
        condition = w.condition_of("p") or {}
        assert (condition["status"], condition["reason"], condition["message"]) == (
            "False",
            "SchedulerError",
            outcome.reason,
        )
        assert (outcome.plugin, outcome.rejected) == ("DefaultBinder", False)
        assert w.nominated("p") == ""


async def test_an_answer_that_is_lost_is_looked_up() -> None:
    async with world() as w:
        w.pod("p")
        w.simulator.faults.drop("POST", BINDINGS, after=True)
        w.order("p")
        assert (await w.outcome("p")).reason == ""
        assert w.node_of("p") == "n1"
        assert w.metric("flotilla_bind_calls_total", result="unknown") == 1


async def test_a_request_that_is_lost_fails_once_it_is_sure() -> None:
    async with world() as w:
        w.pod("p")
        w.simulator.faults.drop("POST", BINDINGS)
        w.order("p")
        assert "running Bind plugin" in (await w.outcome("p")).reason
        assert w.node_of("p") == ""


async def test_a_failing_server_is_asked_where_the_pod_is() -> None:
    async with world() as w:
        w.pod("p")
        w.simulator.faults.fail("POST", BINDINGS, 500)
        w.order("p")
        assert "injected fault" in (await w.outcome("p")).reason
        assert w.metric("flotilla_bind_calls_total", result="unknown") == 1


async def test_a_throttled_call_comes_again_by_itself() -> None:
    async with world() as w:
        w.pod("p")
        w.simulator.faults.fail("POST", BINDINGS, 429, reason="TooManyRequests")
        w.order("p")
        assert (await w.outcome("p")).reason == ""


async def test_a_call_does_not_outlast_the_deadline() -> None:
    async with world() as w:
        w.pod("p")
        w.pod("q")
        w.simulator.faults.delay("POST", "/pods/p/binding$", 1.0)
        w.order("p", seconds=0.2)
        await until(lambda: w.metric("flotilla_bind_calls_total", result="unknown") == 1)
        w.order("q")
        assert (await w.outcome("q")).reason == ""
        assert [(outcome.uid, outcome.version) for outcome in w.outcomes if outcome.reason] == [("uid-p", "")]


async def test_a_slow_call_holds_up_no_other() -> None:
    async with world() as w:
        w.simulator.faults.delay("POST", "/pods/p/binding$", 0.5)
        for name in ("p", "q"):
            w.pod(name)
            w.order(name)
        await w.outcome("p")
        assert [outcome.uid for outcome in w.outcomes] == ["uid-q", "uid-p"]


async def test_reports_are_repeated_until_they_are_acknowledged() -> None:
    async with world() as w:
        w.acknowledges = False
        w.pod("p")
        w.order("p")
        await until(lambda: len(w.reports) == 2)
        w.acknowledges = True
        await w.outcome("p")
        assert len({report.number for report in w.reports}) == 1


async def test_notices_become_events_and_conditions() -> None:
    async with world() as w:
        notice = Notice(
            w.pod("p"), "default", "p", "default-scheduler", "Unschedulable", "0/1 nodes are available: 1 x."
        )
        w.bus.post("binder.notices", Notices([notice]))
        event = await w.event("FailedScheduling")
        assert event["note"] == notice.message
        assert event["regarding"]["uid"] == "uid-p"
        await until(lambda: w.condition_of("p") is not None)
        condition = w.condition_of("p") or {}
        assert (condition["reason"], condition["message"]) == ("Unschedulable", notice.message)


ALLOCATION = AllocationResult(
    devices=DeviceAllocation(results=[AllocatedDevice(request="r", driver="d", pool="n1", device="gpu-0")])
)


def releasing(w: World, pod: str, claim: str) -> Notice:
    """Store an allocated claim; the notice that gives its devices back."""
    metadata = {"name": claim, "namespace": "default", "uid": f"uid-{claim}"}
    stored = {
        "metadata": metadata,
        "spec": {"devices": {}},
        "status": {"allocation": json.loads(encode_json(ALLOCATION))},
    }
    w.simulator.store_raw("resourceclaims", stored, group="resource.k8s.io", version="v1")
    about = (w.pod(pod), "default", pod, "default-scheduler", "Unschedulable", "no node")
    return Notice(*about, releases=[ClaimRelease(f"default/{claim}", f"uid-{claim}", ALLOCATION)])


def is_allocated(w: World, claim: str) -> bool:
    return bool(w.simulator.stored("resourceclaims", claim, "default", group="resource.k8s.io").get("status"))


async def test_a_notice_may_release_claims() -> None:
    async with world() as w:
        w.bus.post("binder.notices", Notices([releasing(w, "p", "c")]))
        await until(lambda: not is_allocated(w, "c"))


async def test_a_pod_that_is_assumed_by_now_keeps_its_claims() -> None:
    async with world() as w:
        notices = Notices([releasing(w, "p", "c"), releasing(w, "q", "other")])
        w.assumed.add(notices.notices[0].uid)
        w.bus.post("binder.notices", notices)
        await until(lambda: not is_allocated(w, "other") and len(w.assumed_asked) == 2)
        assert is_allocated(w, "c")


@pytest.mark.parametrize("why", ["a pod of the group has a node", "the snapshot does not look"])
async def test_a_claim_of_a_group_keeps_its_devices_unless_no_pod_of_the_group_has_a_node(why: str) -> None:
    async with world() as w:
        w.assumed.add("default/busy")
        w.looks_at_groups = why != "the snapshot does not look"
        notices = [releasing(w, name, f"{name}-c") for name in ("p", "q", "last")]
        for notice, group in zip(notices, ("busy", "idle", ""), strict=True):
            notice.releases[0] = replace(notice.releases[0], group=group)
        w.bus.post("binder.notices", Notices(notices))
        await until(lambda: len(w.assumed_asked) == 3 and not is_allocated(w, "last-c"))
        if w.looks_at_groups:
            await until(lambda: not is_allocated(w, "q-c"))
        assert is_allocated(w, "p-c")
        assert is_allocated(w, "q-c") is not w.looks_at_groups


async def test_a_claim_keeps_its_devices_if_a_member_that_has_reserved_it_is_assumed_by_now() -> None:
    async with world() as w:
        w.assumed.add("default/busy")
        notices = [releasing(w, name, f"{name}-c") for name in ("p", "q")]
        for notice, member in zip(notices, ("default/busy", "default/idle"), strict=True):
            notice.releases[0] = replace(notice.releases[0], members=[member])
        w.bus.post("binder.notices", Notices(notices))
        await until(lambda: len(w.assumed_asked) == 4 and not is_allocated(w, "q-c"))
        assert is_allocated(w, "p-c")


async def test_a_pod_that_waits_for_its_devices_has_an_event_and_is_counted() -> None:
    device = {"driver": "d", "pool": "n1", "device": "gpu-0"}
    async with world() as w:
        uid = w.pod("p")
        metadata = {"name": "c", "namespace": "default", "uid": "uid-c"}
        status = {
            "allocation": {"devices": {"results": [{"request": "r", **device, "bindingConditions": ["Ready"]}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}],
            "devices": [{**device, "conditions": [{"type": "Ready", "status": "True"}]}],
        }
        claim = {"metadata": metadata, "spec": {"devices": {}}, "status": status}
        w.simulator.store_raw("resourceclaims", claim, group="resource.k8s.io", version="v1")
        w.order("p", devices=DeviceDecision([ClaimAllocation("default/c", "uid-c", None)]))
        assert (await w.outcome("p")).reason == ""
        event = await w.event("BindingConditionsPending")
        assert (event["type"], event["action"]) == ("Normal", "Scheduling")
        assert event["note"] == "waiting for binding conditions for device on node n1"
        assert event["regarding"]["uid"] == uid
        labels = {"profile": PROFILE, "driver": "d", "status": "success"}
        assert w.metric("scheduler_dra_bindingconditions_allocations_total", **labels) == 1
        assert w.metric("scheduler_dra_bindingconditions_wait_duration_seconds_count", **labels) == 1


async def test_claims_made_for_extended_resources_are_counted() -> None:
    request = DeviceRequest(name="r", exactly=ExactDeviceRequest(device_class_name="gpu"))
    special = SpecialClaim([request], [RequestMapping("c", "example.com/gpu", "r")], ALLOCATION, "p-extended")
    async with world() as w:
        w.pod("p")
        w.order("p", devices=DeviceDecision([], special))
        await until(lambda: w.metric("scheduler_resourceclaim_creates_total", status="success") == 1)
        assert w.metric("scheduler_resourceclaim_creates_total", status="failure") == 0
        w.pod("q")
        w.simulator.faults.fail("POST", "/resourceclaims$", 403, reason="Forbidden")
        w.order("q", devices=DeviceDecision([], replace(special, name="q-extended")))
        assert "create claim for extended resources" in (await w.outcome("q")).reason
        assert w.metric("scheduler_resourceclaim_creates_total", status="failure") == 1


async def test_a_notice_may_be_of_the_nomination_alone() -> None:
    async with world() as w:
        uid = w.pod("p")
        about = (uid, "default", "p", "default-scheduler", "Unschedulable", "0/1 nodes are available: 1 x.")
        told = Notice(*about, event=False, nominated="n1", version=w.version("p"))
        w.bus.post("binder.notices", Notices([told]))
        await until(lambda: w.nominated("p") == "n1")
        assert w.condition_of("p") is not None
        w.bus.post("binder.notices", Notices([replace(told, patch=False, nominated="n2", version=w.version("p"))]))
        await until(lambda: w.nominated("p") == "n2")
        w.bus.post("binder.notices", Notices([replace(told, patch=False, nominated="", version="")]))
        await until(lambda: w.nominated("p") == "")
        assert await w.events() == []


async def test_events_and_conditions_never_delay_a_binding() -> None:
    async with world() as w:
        w.simulator.faults.delay("POST", "/events$", 1.0, times=100)
        names = [f"p{i}" for i in range(100)]
        for name in names:
            w.pod(name)
            w.order(name)
        began = asyncio.get_running_loop().time()
        for name in names:
            await w.outcome(name)
        assert asyncio.get_running_loop().time() - began < 5.0
        w.simulator.faults.clear()


async def test_without_api_calls_every_pod_is_bound_at_once() -> None:
    async with world(api_calls=False) as w:
        w.pod("p")
        w.order("p")
        assert (await w.outcome("p")).reason == ""
        assert w.node_of("p") == ""
        assert await w.events() == []


async def test_a_leaving_binder_finishes_its_orders_and_says_so() -> None:
    async with world() as w:
        w.pod("p")
        w.simulator.faults.delay("POST", BINDINGS, 0.3)
        w.order("p")
        await until(lambda: not w.simulator.faults)
    assert [(outcome.uid, outcome.reason) for outcome in w.outcomes] == [("uid-p", "")]
    assert w.beats[0].room == 2048
    assert w.beats[-1].room == 0
