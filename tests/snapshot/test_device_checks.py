"""The snapshot checks decisions about devices against its own state."""

from typing import Any

import msgspec
import pytest

from services.snapshot.events import (
    ObjectGone,
    ObjectSeen,
)
from shared.cluster.devices import ClaimAllocation, DeviceDecision
from shared.devices.results import share_id
from shared.model.devices import DeviceAllocation, DeviceToleration
from shared.model.objects import ClusterObject, ObjectKind, object_from, pod_from
from shared.model.quantity import QuantityText
from testing.builders import pod
from tests.rounds.support import commit, reassigned, refusals
from tests.snapshot.device_support import (
    CLAIM,
    GPU,
    P,
    Q,
    a_claim,
    a_log,
    a_slice,
    allocation,
    decided,
    faults,
    gives,
    known,
)
from tests.snapshot.test_pending_pods import Owner, misstated, shown

CONFIG = {"opaque": {"driver": "d", "parameters": {"a": 1}}}


def test_a_device_is_given_to_one_claim_only() -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    effects = decided(log, 1, (P, gives("p-r", "g0")), (Q, gives("q-r", "g0")))
    assert refusals(effects) == {"default/q": ("device d/n/g0 is in use", False)}
    assert faults(effects) == [], "the first one of the commit has taken it"
    effects = decided(log, 2, (Q, gives("q-r", "g0")))
    assert faults(effects) == ["devices"], "nothing has changed since"
    assert refusals(decided(log, 3, (Q, gives("q-r", "g1")))) == {}


OTHERWISE = "the allocation says of its devices what their slices do not"


def says(claim: str, **more: Any) -> DeviceDecision:
    """Devices as a liar describes them."""
    honest = allocation("g0")
    results = [msgspec.structs.replace(each, **more) for each in honest.devices.results]
    forged = msgspec.structs.replace(honest, devices=DeviceAllocation(results=results))
    return DeviceDecision([ClaimAllocation(f"default/{claim}", f"{claim}-uid", forged)])


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (gives("p-r", "g7"), "device d/n/g7 is not offered any more"),
        (gives("p-r", "g0", node_name="m"), OTHERWISE),
        (says("p-r", admin_access=True), OTHERWISE),
        (says("p-r", share_id="s"), OTHERWISE),
        (says("p-r", consumed_capacity={"memory": QuantityText("1Gi")}), OTHERWISE),
        (says("p-r", tolerations=[DeviceToleration(operator="Exists")]), OTHERWISE),
        (says("p-r", binding_conditions=["Ready"]), OTHERWISE),
        (gives("p-r", "g0", "g1"), "request r gets 2 devices instead of 1"),
        (gives("p-r", "g0", request="q"), "request r gets 0 devices instead of 1"),
    ],
)
def test_a_worker_that_proposes_what_cannot_be_is_blamed(decision: DeviceDecision, why: str) -> None:
    log = a_log(a_claim("p-r"))
    effects = decided(log, 1, (P, decision))
    assert refusals(effects) == {"default/p": (why, False)}
    assert faults(effects) == ["devices"]
    assert log.core.ledger == {}
    assert known(log) == {"default/p-r": a_claim("p-r")}


SHAREABLE = a_slice(
    "g0", devices=[{"name": "g0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "10Gi"}}}]
)


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"share_id": "s", "consumed_capacity": {"memory": QuantityText("10Gi")}},
        {"share_id": share_id("p-r-uid", 0)},
    ],
)
def test_a_share_is_of_the_size_that_the_claim_asks_for(forged: dict[str, Any]) -> None:
    log = a_log(a_claim("p-r"), SHAREABLE)
    effects = decided(log, 1, (P, says("p-r", **forged)))
    assert refusals(effects) == {"default/p": (OTHERWISE, False)}
    whole = says("p-r", share_id=share_id("p-r-uid", 0), consumed_capacity={"memory": QuantityText("10Gi")})
    assert refusals(decided(log, 2, (P, whole))) == {}


def test_a_device_with_a_taint_is_not_given_to_a_claim_that_does_not_tolerate_it() -> None:
    taint = {"key": "bad", "effect": "NoSchedule"}
    log = a_log(a_claim("p-r"), a_slice("g0", devices=[{"name": "g0", "taints": [taint]}]))
    effects = decided(log, 1, (P, gives("p-r", "g0")))
    assert refusals(effects) == {"default/p": ("request r does not tolerate the taints of device d/n/g0", False)}
    assert faults(effects) == ["devices"]


def test_nobody_is_blamed_for_a_claim_that_was_judged_by_that_of_another_pod() -> None:
    """A class may stand for pods with a claim of their own each. The queue did not know that it has no devices."""
    log = a_log(a_claim("p-r"))
    effects = decided(log, 1, (P, DeviceDecision([ClaimAllocation("default/p-r", "p-r-uid")])))
    assert refusals(effects) == {"default/p": ("resource claim default/p-r is not allocated", False)}
    assert faults(effects) == []


def test_an_allocated_claim_is_used_where_its_devices_are() -> None:
    allocated = a_claim("p-r", status={"allocation": msgspec.to_builtins(allocation("g0"))})
    log = a_log(allocated)
    used = DeviceDecision([ClaimAllocation("default/p-r", "p-r-uid")])
    effects = decided(log, 1, (P, used), on="m")
    assert refusals(effects) == {"default/p": ("resource claim default/p-r cannot be used on node m", False)}
    assert faults(effects) == []
    assert refusals(decided(log, 2, (P, used))) == {}
    devices = log.core.ledger["default/p"].assignment.devices
    assert devices is not None
    assert [each.devices for each in devices.claims] == [["d/n/g0"]], "PreBind compares"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            ObjectSeen(
                object_from(ObjectKind.DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {"config": [CONFIG]}})
            ),
            OTHERWISE,
        ),
        (
            ObjectGone(ObjectKind.DEVICE_CLASS, "gpu"),
            "claim default/p-r, request r: could not retrieve device class gpu: "
            'deviceclass.resource.k8s.io "gpu" not found',
        ),
        (ObjectGone(CLAIM, "default/p-r"), "resource claim default/p-r is gone"),
        (ObjectSeen(a_claim("p-r", uid="another")), "resource claim default/p-r is gone"),
        (ObjectSeen(a_claim("p-r", count=2)), "resource claim default/p-r has changed since the evaluation"),
        (ObjectSeen(a_slice("g1")), "device d/n/g0 is not offered any more"),
        (
            ObjectSeen(a_claim("other", status={"allocation": msgspec.to_builtins(allocation("g0"))})),
            "device d/n/g0 is in use",
        ),
    ],
)
def test_a_worker_is_not_blamed_for_what_has_changed(change: Any, why: str) -> None:
    log = a_log(a_claim("p-r"))
    seen = log.core.seq
    log.handle(change)
    effects = decided(log, 1, (P, gives("p-r", "g0")), seen=seen)
    assert refusals(effects) == {"default/p": (why, False)}
    assert faults(effects) == []


def test_members_of_a_gang_do_not_give_one_claim_different_devices() -> None:
    log = a_log(a_claim("k"))
    pair = [pod(name).request(cpu="1").resource_claim("r", "k").build() for name in "ab"]
    plain = commit(1, *((each, "n", log.core.seq) for each in pair))
    members = [
        msgspec.structs.replace(reassigned(each, devices=gives("k", device)), gang="g")
        for each, device in zip(plain.decisions, ("g0", "g1"), strict=True)
    ]
    refused = refusals(log.handle(msgspec.structs.replace(plain, decisions=members)))
    assert refused.keys() == {"default/a", "default/b"}
    assert refused["default/b"][0] == "resource claim default/k is assigned differently to another member of this gang"
    assert log.core.ledger == {}


@pytest.mark.parametrize(("second", "why"), [("n", ""), ("m", "resource claim default/k cannot be used on node m")])
def test_members_of_a_gang_share_what_one_of_them_allocates_where_its_devices_are(second: str, why: str) -> None:
    log = a_log(a_claim("k"))
    pair = [pod(name).request(cpu="1").resource_claim("r", "k").build() for name in "ab"]
    plain = commit(1, (pair[0], "n", log.core.seq), (pair[1], second, log.core.seq))
    members = [
        msgspec.structs.replace(reassigned(each, devices=gives("k", "g0")), gang="g") for each in plain.decisions
    ]
    effects = log.handle(msgspec.structs.replace(plain, decisions=members))
    if why:
        assert refusals(effects)["default/b"] == (why, False)
        assert faults(effects) == ["devices"]
        return
    assert refusals(effects) == {}
    (first, other) = (entry.assignment.devices for entry in log.core.ledger.values())
    assert first == other
    assert known(log)["default/k"].promised
    log.core.validate()


def test_members_of_a_gang_are_checked_together() -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    plain = commit(1, (P, "n", log.core.seq), (Q, "n", log.core.seq))
    members = [
        msgspec.structs.replace(reassigned(each, devices=gives(name, "g0")), gang="g")
        for each, name in zip(plain.decisions, ("p-r", "q-r"), strict=True)
    ]
    refused = refusals(log.handle(msgspec.structs.replace(plain, decisions=members)))
    assert refused["default/q"] == ("device d/n/g0 is in use", False)
    assert refused.keys() == {"default/p", "default/q"}
    assert refusals(decided(log, 2, (P, gives("p-r", "g0")))) == {}, "what was checked is not kept"


def test_without_devices_an_extended_resource_needs_room_on_the_node() -> None:
    log = a_log()
    wanted = pod("p").request({"example.com/gpu": 1}).build()
    ((why, _),) = refusals(log.handle(commit(1, (wanted, "n", log.core.seq)))).values()
    assert why == "node n has no room for it: Insufficient example.com/gpu"


def an_owner(*objects: ClusterObject) -> Owner:
    owner = Owner(P)
    for each in (GPU, a_slice("g0", "g1"), *objects):
        owner.core.handle(ObjectSeen(each), 0.0)
    return owner


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        (None, "it has resource claims, and no devices were decided for it"),
        (DeviceDecision(), "it has other resource claims"),
        (gives("q-r", "g0"), "it has other resource claims"),
    ],
)
def test_every_claim_of_the_pod_must_be_decided_and_no_other(devices: DeviceDecision | None, why: str) -> None:
    owner = an_owner(a_claim("p-r"), a_claim("q-r"))
    effects = owner.commits(P, devices=devices)
    assert refusals(effects) == {"default/p": (f"the pod is not what was decided: {why}", False)}
    assert misstated(effects) == [f"pod default/p: {why}"]
    assert refusals(owner.commits(P, devices=gives("p-r", "g0"))) == {}


def test_a_claim_from_a_template_must_belong_to_the_pod() -> None:
    spec = {"containers": [], "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]}
    status = {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "p-r"}]}
    made = pod_from({"metadata": {"name": "p"}, "spec": spec, "status": status})
    owner = an_owner(a_claim("p-r"))
    owner.see(shown(made))
    effects = owner.commits(made, devices=gives("p-r", "g0"))
    assert refusals(effects) == {"default/p": ("resource claim default/p-r was made for another pod", False)}
    assert faults(effects) == ["devices"]


@pytest.mark.parametrize(("group", "is_refused"), [("g", False), ("h", True), (None, True)])
def test_a_claim_from_a_template_of_a_group_belongs_to_all_of_its_pods(group: str | None, is_refused: bool) -> None:
    spec = {"containers": [], "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]}
    status = {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "g-r"}]}
    named = {"schedulingGroup": {"podGroupName": group}} if group else {}
    made = pod_from({"metadata": {"name": "p"}, "spec": spec | named, "status": status})
    of = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "g", "uid": "u", "controller": True}
    metadata = {"name": "g-r", "namespace": "default", "uid": "g-r-uid", "ownerReferences": [of]}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}
    owner = an_owner(object_from(CLAIM, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}))
    owner.see(shown(made))
    assert bool(refusals(owner.commits(made, devices=gives("g-r", "g0")))) is is_refused
