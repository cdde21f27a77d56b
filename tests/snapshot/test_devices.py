"""What decisions do to resource claims: verified at the snapshot's own state, and laid over what the watch shows."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import (
    ClaimsFenced,
    Effect,
    FenceClaims,
    LookedUp,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodDeleted,
    PodSeen,
    Tick,
    WorkerFault,
)
from services.snapshot.state.object_overlay import special_claim_name
from shared.cluster.devices import ClaimAllocation, DeviceDecision, SpecialClaim
from shared.devices.extended import RequestMapping
from shared.devices.results import share_id
from shared.messages.queue import ForgottenPod
from shared.messages.state import LedgerEntry
from shared.model.codec import convert
from shared.model.devices import AllocationResult, DeviceAllocation, DeviceRequest, DeviceToleration, ResourceClaim
from shared.model.objects import ClusterObject, ObjectKind, Pod, object_from, pod_from
from shared.model.quantity import QuantityText
from shared.store.schema import Persist
from testing.builders import node, pod
from testing.inprocess.pipeline import bound
from tests.rounds.support import SnapshotLog, commit, failed, reassigned, refusals
from tests.snapshot.test_pending_pods import Owner, misstated, shown

CLAIM = ObjectKind.RESOURCE_CLAIM
P, Q = (pod(name).request(cpu="1").resource_claim("r", f"{name}-r").build() for name in "pq")
POOL = {"name": "n", "generation": 1, "resourceSliceCount": 1}
GPU = object_from(
    ObjectKind.DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}
)


def a_slice(*names: str, **spec: Any) -> ClusterObject:
    fields = {"driver": "d", "pool": POOL, "nodeName": "n", "devices": [{"name": name} for name in names], **spec}
    return object_from(ObjectKind.RESOURCE_SLICE, {"metadata": {"name": "s"}, "spec": fields})


def a_claim(name: str, *, count: int = 1, uid: str | None = None, **rest: Any) -> ClusterObject:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
    metadata = {"name": name, "namespace": "default", "uid": uid or f"{name}-uid"}
    return object_from(CLAIM, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}, **rest})


def allocation(*names: str, node_name: str = "n", request: str = "r") -> AllocationResult:
    results = [{"request": request, "driver": "d", "pool": "n", "device": name} for name in names]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node_name]}]
    selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return convert(AllocationResult, {"devices": {"results": results}, "nodeSelector": selector})


CONFIG = {"opaque": {"driver": "d", "parameters": {"a": 1}}}
FOREIGN = "request r asks for other devices than those of class gpu"


def gives(claim: str, *names: str, **rest: Any) -> DeviceDecision:
    return DeviceDecision([ClaimAllocation(f"default/{claim}", f"{claim}-uid", allocation(*names, **rest))])


def a_log(*objects: ClusterObject) -> SnapshotLog:
    log = SnapshotLog(*(node(name).capacity(cpu=8, memory="8Gi").build() for name in ("n", "m")))
    for each in (GPU, a_slice("g0", "g1"), *objects):
        log.handle(ObjectSeen(each))
    return log


def decided(
    log: SnapshotLog, number: int, *decisions: tuple[Pod, DeviceDecision], seen: int | None = None, on: str = "n"
) -> list[Effect]:
    seen = log.core.seq if seen is None else seen
    plain = commit(number, *((each, on, seen) for each, _ in decisions))
    with_devices = [
        reassigned(each, devices=devices) for each, (_, devices) in zip(plain.decisions, decisions, strict=True)
    ]
    return log.handle(msgspec.structs.replace(plain, decisions=with_devices))


def known(log: SnapshotLog) -> dict[str, ResourceClaim]:
    return {each.key: each for each in log.core.state().objects if isinstance(each, ResourceClaim)}


def faults(effects: Sequence[Effect]) -> list[str]:
    return [each.kind for each in effects if isinstance(each, WorkerFault)]


# Overlays


def test_a_decided_claim_counts_as_allocated_until_the_watch_shows_it() -> None:
    log = a_log(a_claim("p-r"))
    assert refusals(decided(log, 1, (P, gives("p-r", "g0")))) == {}
    promised = known(log)["default/p-r"]
    assert promised.promised
    assert promised.status.allocation == allocation("g0")
    shown = a_claim("p-r", status=msgspec.to_builtins({"allocation": {"devices": {"results": []}}}))
    log.handle(ObjectSeen(shown))
    assert known(log)["default/p-r"] == shown


def test_an_order_names_the_version_at_which_a_claim_may_be_allocated() -> None:
    log = a_log()
    log.handle(ObjectSeen(a_claim("p-r"), "7"))
    log.handle(ObjectSeen(a_claim("p-r"), "8"))
    decided(log, 1, (P, gives("p-r", "g0")))
    devices = log.core.ledger["default/p"].assignment.devices
    assert devices is not None
    assert [each.version for each in devices.claims] == ["8"]


# Held devices


def ends_attempt(log: SnapshotLog, how: str) -> list[Effect]:
    """The attempt at binding P ends, so that its node is free."""
    match how:
        case "failed":
            return log.handle(failed("default/p", log.attempt(P)))
        case "deleted":
            return log.handle(PodDeleted("default/p"))
        case "finished":
            return log.handle(
                PodSeen(msgspec.structs.replace(P, status=msgspec.structs.replace(P.status, phase="Failed")))
            )
        case "elsewhere":
            return log.handle(PodSeen(bound(P, "m")))
        case "looked up elsewhere":
            log.handle(failed("default/p", log.attempt(P), sure=False))
            return log.handle(LookedUp("default/p", log.attempt(P), "m"))
    raise AssertionError(how)


ENDS = ["failed", "deleted", "finished", "elsewhere", "looked up elsewhere"]


def in_use(log: SnapshotLog, number: int) -> bool:
    """Whether Q is refused P's device."""
    refused = refusals(decided(log, number, (Q, gives("q-r", "g0"))))
    assert refused in ({}, {"default/q": ("device d/n/g0 is in use", False)})
    return bool(refused)


@pytest.mark.parametrize("how", ENDS)
def test_devices_are_held_until_no_binder_can_write_them(how: str) -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    log.handle(ObjectSeen(a_claim("p-r"), "5"))
    decided(log, 1, (P, gives("p-r", "g0")))
    effects = ends_attempt(log, how)
    assert "default/p" not in log.core.ledger
    (fence,) = (each for each in effects if isinstance(each, FenceClaims))
    held = fence.entry
    assert persisted(effects, held.uid), "another term must know of it"
    assert in_use(log, 2)
    log.handle(ClaimsFenced(held.uid, {"default/p-r": "9"}))
    assert in_use(log, 3), "the watch may show an allocation before this version"
    effects = log.handle(ObjectSeen(a_claim("p-r"), "9"))
    assert [each.reason for each in effects if isinstance(each, ForgottenPod)] == ["the pod is gone from its devices"]
    assert settled(effects) == [held.uid]
    assert known(log)["default/p-r"] == a_claim("p-r")
    assert not in_use(log, 4)
    assert log.core.stored_ledger == list(log.core.ledger.values())


def test_devices_are_free_at_once_if_the_watch_has_shown_the_fence() -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    held = only_fence(ends_attempt(log, "failed"))
    log.handle(ObjectSeen(a_claim("p-r"), "9"))
    assert in_use(log, 2)
    log.handle(ClaimsFenced(held.uid, {"default/p-r": "9"}))
    assert not in_use(log, 3)


def test_an_allocation_that_was_written_in_time_stays() -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    held = only_fence(ends_attempt(log, "failed"))
    log.handle(ClaimsFenced(held.uid, {"default/p-r": "9"}))
    allocated = a_claim("p-r", status={"allocation": msgspec.to_builtins(allocation("g0"))})
    effects = log.handle(ObjectSeen(allocated, "8"))
    assert settled(effects) == [held.uid]
    assert in_use(log, 2)
    assert known(log)["default/p-r"] == allocated


@pytest.mark.parametrize("seen", [True, False])
def test_a_claim_that_is_gone_frees_its_devices(seen: bool) -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    held = only_fence(ends_attempt(log, "deleted"))
    effects = log.handle(ObjectGone(CLAIM, "default/p-r") if seen else ClaimsFenced(held.uid, {"default/p-r": ""}))
    assert settled(effects) == [held.uid]
    assert not in_use(log, 2)


def test_devices_of_a_bound_pod_are_held_until_the_watch_shows_the_allocation() -> None:
    """The watch may show the pod before its claim, and the pod may be gone before that."""
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    effects = log.handle(PodSeen(bound(P, "n")))
    assert not [each for each in effects if isinstance(each, FenceClaims)], "the binder was faster than the watch"
    log.handle(PodDeleted("default/p"))
    assert in_use(log, 2)
    at = log.core.next_deadline()
    assert at is not None
    held = only_fence(log.handle(Tick(), at))
    assert in_use(log, 3)
    log.handle(ClaimsFenced(held.uid, {"default/p-r": "9"}))
    log.handle(ObjectSeen(a_claim("p-r"), "9"))
    assert not in_use(log, 4)


def test_another_attempt_does_not_free_what_an_earlier_one_holds() -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    held = only_fence(ends_attempt(log, "failed"))
    ((why, _),) = refusals(decided(log, 2, (P, gives("p-r", "g1")))).values()
    assert why == "resource claim default/p-r is allocated already"
    log.handle(ClaimsFenced(held.uid, {"default/p-r": "9"}))
    log.handle(ObjectSeen(a_claim("p-r"), "9"))
    assert refusals(decided(log, 3, (P, gives("p-r", "g1")))) == {}
    assert not in_use(log, 4)


def test_the_next_term_holds_and_fences_them() -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    ends_attempt(log, "deleted")
    later = SnapshotCore(1, log.core.stored_ledger)
    for event in (NodeSeen(node("n").capacity(cpu=8, memory="8Gi").build()), ObjectSeen(a_slice("g0", "g1"))):
        later.handle(event, 0.0)
    later.handle(ObjectSeen(a_claim("p-r"), "5"), 0.0)
    held = only_fence(later.begin(0.0))
    assert later.ledger == {}
    shown = {each.key: each for each in later.state().objects if isinstance(each, ResourceClaim)}
    assert shown["default/p-r"].promised
    later.handle(ClaimsFenced(held.uid, {"default/p-r": "5"}), 0.0)
    assert later.stored_ledger == []
    later.validate()


def only_fence(effects: Sequence[Effect]) -> LedgerEntry:
    (fence,) = (each for each in effects if isinstance(each, FenceClaims))
    return fence.entry


def persisted(effects: Sequence[Effect], uid: str) -> bool:
    """Whether the entry is stored, and before its pod's leaves the stored ledger."""
    writes = [each for each in effects if isinstance(each, Persist)]
    stored = next(at for at, each in enumerate(writes) if uid in {entry.uid for entry in each.ledger})
    return all("default/p" not in each.settled for each in writes[:stored])


def settled(effects: Sequence[Effect]) -> list[str]:
    return [uid for each in effects if isinstance(each, Persist) for uid in each.settled]


# The claim for extended resources


def test_the_claim_for_extended_resources_counts_before_it_exists() -> None:
    log = a_log(a_claim("q-r"))
    mapping = RequestMapping("c", "example.com/gpu", "r")
    made = a_claim("x")
    assert isinstance(made, ResourceClaim)
    requests = made.spec.devices.requests
    wanted = pod("p").request({"example.com/gpu": 1}).build()
    special = DeviceDecision(special=SpecialClaim(requests, [mapping], allocation("g0")))
    assert refusals(decided(log, 1, (wanted, special))) == {}
    devices = log.core.ledger["default/p"].assignment.devices
    assert devices is not None
    assert devices.special is not None
    name = devices.special.name
    assert name == special_claim_name("p", "default/p", log.attempt(wanted))
    assert name.startswith("p-extended-resources-")
    expected = known(log)[f"default/{name}"]
    assert (expected.is_special, expected.promised, expected.owner_uid) == (True, True, "default/p")
    (why,) = (reason for reason, _ in refusals(decided(log, 2, (Q, gives("q-r", "g0")))).values())
    assert why == "device d/n/g0 is in use"
    log.handle(ObjectSeen(expected_of_server(expected)))
    log.handle(ObjectGone(CLAIM, expected.key))
    assert expected.key not in known(log)


def expected_of_server(claim: ResourceClaim) -> ResourceClaim:
    """As it is shown between its creation and its allocation."""
    metadata = msgspec.structs.replace(claim.metadata, uid="made")
    return ResourceClaim(metadata=metadata, spec=claim.spec)


@pytest.mark.parametrize(
    ("requests", "mapped", "why"),
    [
        (
            [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}],
            ["r"],
            "2 devices serve 1 of example.com/gpu",
        ),
        ([{"name": "r", "exactly": {"deviceClassName": "other", "count": 1}}], ["r"], FOREIGN),
        ([{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1, "adminAccess": True}}], ["r"], FOREIGN),
        (
            [{"name": name, "exactly": {"deviceClassName": "gpu", "count": 1}} for name in "rs"],
            ["r"],
            "each request must serve one resource",
        ),
        (
            [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}],
            ["s"],
            "request s cannot serve example.com/gpu",
        ),
    ],
)
def test_the_claim_for_extended_resources_asks_for_what_the_pod_requests(
    requests: list[Any], mapped: list[str], why: str
) -> None:
    log = a_log()
    wanted = pod("p").request({"example.com/gpu": 1}).build()
    made = convert(list[DeviceRequest], requests)
    granted = allocation(*(f"g{number}" for number in range(sum(each.exactly.count for each in made if each.exactly))))
    results = [
        msgspec.structs.replace(each, request=made[min(number, len(made) - 1)].name)
        for number, each in enumerate(granted.devices.results)
    ]
    admin = bool(made[0].exactly and made[0].exactly.admin_access)
    granted.devices.results[:] = [msgspec.structs.replace(each, admin_access=admin) for each in results]
    mappings = [RequestMapping("c", "example.com/gpu", name) for name in mapped]
    other = object_from(ObjectKind.DEVICE_CLASS, {"metadata": {"name": "other"}, "spec": {}})
    log.handle(ObjectSeen(other))
    effects = decided(log, 1, (wanted, DeviceDecision(special=SpecialClaim(made, mappings, granted))))
    assert refusals(effects) == {"default/p": (why, False)}
    assert faults(effects) == ["devices"]


def test_no_claim_is_made_for_resources_of_a_device_plugin() -> None:
    log = a_log(a_claim("p-r"))
    nothing = SpecialClaim([], [], AllocationResult())
    decided(log, 1, (P, DeviceDecision(gives("p-r", "g0").claims, nothing)))
    devices = log.core.ledger["default/p"].assignment.devices
    assert devices is not None
    assert (len(devices.claims), devices.special) == (1, None)
    assert list(known(log)) == ["default/p-r"]


def test_the_name_of_a_special_claim_is_not_one_that_exists() -> None:
    log = a_log()
    wanted = pod("p").request({"example.com/gpu": 1}).build()
    taken = special_claim_name("p", "default/p", log.core.seq + 1)
    log.handle(ObjectSeen(a_claim(special_claim_name("p", "default/p", log.core.seq + 2))))
    made = convert(list[DeviceRequest], [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}])
    mapping = RequestMapping("c", "example.com/gpu", "r")
    decided(log, 1, (wanted, DeviceDecision(special=SpecialClaim(made, [mapping], allocation("g0")))))
    devices = log.core.ledger["default/p"].assignment.devices
    assert devices is not None
    assert devices.special is not None
    name = devices.special.name
    assert name.startswith("p-extended-resources-")
    assert name not in (taken, special_claim_name("p", "default/p", log.attempt(wanted)))


def test_the_name_of_a_special_claim_fits_and_differs_between_attempts() -> None:
    long = special_claim_name("p" * 80, "u", 1)
    assert (len(long), long[:58]) == (63, "p" * 58)
    assert special_claim_name("p", "u", 1) == special_claim_name("p", "u", 1)
    assert special_claim_name("p", "u", 1) != special_claim_name("p", "u", 2)


# Checks


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
        (DeviceDecision([ClaimAllocation("default/p-r", "p-r-uid")]), "resource claim default/p-r is not allocated"),
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


def test_an_allocated_claim_is_used_where_its_devices_are() -> None:
    allocated = a_claim("p-r", status={"allocation": msgspec.to_builtins(allocation("g0"))})
    log = a_log(allocated)
    used = DeviceDecision([ClaimAllocation("default/p-r", "p-r-uid")])
    effects = decided(log, 1, (P, used), on="m")
    assert refusals(effects) == {"default/p": ("resource claim default/p-r cannot be used on node m", False)}
    assert faults(effects) == ["devices"]
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


def test_members_of_a_gang_do_not_allocate_one_claim_twice() -> None:
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


# Whose claims they are


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
