"""PostFilter releases claims, unless they have changed or are in use."""

import pytest
from msgspec.structs import replace

from flotilla.results import ApiCall
from shared.errors import ClusterError
from shared.messages.binding import ClaimRelease
from shared.model.devices import AllocatedDevice, AllocationResult, DeviceAllocation
from shared.plugins.devices.claim_release import release_claim
from tests.plugins.devices.support import CLAIMS, STAMP, Object, Server, allocation, result, special

SEEN = AllocationResult(
    devices=DeviceAllocation(results=[AllocatedDevice(request="r", driver="d.example.com", pool="n", device="gpu-0")]),
    allocation_timestamp=STAMP,
)


def a_release(server: Server, allocation: AllocationResult | None = SEEN, name: str = "c") -> ClaimRelease:
    return ClaimRelease(f"default/{name}", server.claim(name)["metadata"]["uid"], allocation)


def run_release(server: Server, release: ClaimRelease) -> None:
    steps = release_claim(server.uid, release)
    try:
        step = next(steps)
        while True:
            assert isinstance(step, ApiCall)
            step = steps.send(server.answer(step, 0.0))
    except StopIteration:
        return


@pytest.mark.parametrize("by_pod", [False, True])
def test_a_claim_gives_back_its_devices(by_pod: bool) -> None:
    server = Server("c")
    users = [{"resource": "pods", "name": "p", "uid": server.uid}] if by_pod else []
    server.set_status(allocation={**allocation(), "allocationTimestamp": STAMP}, reservedFor=users)
    run_release(server, a_release(server))
    assert not server.claim().get("status")


@pytest.mark.parametrize(
    "status",
    [
        {"reservedFor": [{"resource": "pods", "name": "q", "uid": "other"}]},
        {"allocation": {**allocation(), "allocationTimestamp": "2026-01-01T00:00:01Z"}},
        {"allocation": {**allocation(result("gpu-1")), "allocationTimestamp": STAMP}},
    ],
)
def test_a_claim_that_is_used_or_allocated_otherwise_by_now_stays(status: Object) -> None:
    server = Server("c")
    server.set_status(**{"allocation": {**allocation(), "allocationTimestamp": STAMP}, **status})
    before = server.claim()
    run_release(server, a_release(server))
    assert server.claim() == before


GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}


@pytest.mark.parametrize("by_pod", [False, True])
def test_a_claim_of_the_group_gives_back_its_devices_if_the_release_says_so(by_pod: bool) -> None:
    server = Server("c")
    users = [GROUP, *([{"resource": "pods", "name": "p", "uid": server.uid}] if by_pod else [])]
    server.set_status(allocation={**allocation(), "allocationTimestamp": STAMP}, reservedFor=users)
    before = server.claim()
    for group in ("", "h"):
        run_release(server, replace(a_release(server), group=group))
        assert server.claim() == before
    run_release(server, replace(a_release(server), group="g"))
    assert not server.claim().get("status")


def test_a_claim_that_members_have_reserved_gives_back_its_devices_if_the_release_names_them_all() -> None:
    server = Server("c")
    users = [{"resource": "pods", "name": each, "uid": each} for each in ("q", "r")]
    server.set_status(allocation={**allocation(), "allocationTimestamp": STAMP}, reservedFor=users)
    before = server.claim()
    run_release(server, replace(a_release(server), members=["q"]))
    assert server.claim() == before
    run_release(server, replace(a_release(server), members=["q", "r"]))
    assert not server.claim().get("status")


def test_a_claim_of_that_name_that_was_made_later_stays() -> None:
    server = Server("c")
    server.set_status(allocation={**allocation(), "allocationTimestamp": STAMP})
    before = server.claim()
    run_release(server, ClaimRelease("default/c", "of-an-earlier-claim", SEEN))
    assert server.claim() == before


def test_a_claim_that_changes_meanwhile_is_not_released() -> None:
    server = Server("c")
    server.set_status(allocation={**allocation(), "allocationTimestamp": STAMP})
    release = a_release(server)
    user = {"resource": "pods", "name": "q", "uid": "other"}
    server.before["PUT /c/status"] = lambda: server.set_status(reservedFor=[user])
    with pytest.raises(ClusterError):
        run_release(server, release)
    assert server.claim()["status"]["reservedFor"] == [user]


@pytest.mark.parametrize("status", [{}, {"allocation": allocation()}])
def test_a_claim_that_is_not_the_pod_s_claim_for_extended_resources_is_never_deleted(status: Object) -> None:
    server = Server("c")
    server.set_status(**status)
    before = server.claim()
    run_release(server, a_release(server, None))
    assert server.claim() == before


def test_a_left_claim_for_extended_resources_is_deleted() -> None:
    server = Server()
    server.run(special=special())
    run_release(server, a_release(server, None, special().name))
    assert server.get(CLAIMS)["items"] == []
