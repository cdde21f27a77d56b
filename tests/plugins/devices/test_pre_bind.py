"""What PreBind writes into the claims of a pod, and what it refuses."""

import json

import msgspec
import pytest

from flotilla.results import SUCCESS, ApiAnswer, ApiCall, error
from shared.cluster.devices import ClaimAllocation, DeviceDecision
from shared.model.devices import FENCED
from shared.plugins.devices.claim_calls import FINALIZER
from shared.plugins.devices.pre_bind import MAX_LOOKS, MAX_WRITES, DevicesToBind, bind_devices
from testing.builders import pod
from tests.plugins.devices.support import (
    CLAIMS,
    NOW,
    STAMP,
    Server,
    allocation,
    result,
)


def test_an_allocation_is_written_and_the_claim_reserved_for_the_pod() -> None:
    server = Server("c")
    assert server.run(server.wanted(allocation=allocation())) == SUCCESS
    claim = server.claim()
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert claim["status"]["allocation"] == {**allocation(), "allocationTimestamp": STAMP}
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": server.uid}]
    assert server.calls == ["GET /c", "PUT /c", "PUT /c/status"]


def test_done_twice_it_only_marks_the_claim() -> None:
    server = Server("c")
    wanted = server.wanted(allocation=allocation())
    server.run(wanted)
    before = server.claim()
    assert server.run(wanted) == SUCCESS
    after = server.claim()
    assert after["status"] == before["status"]
    assert after["metadata"]["annotations"] == {FENCED: before["metadata"]["resourceVersion"]}


def test_an_interrupted_attempt_is_decided_again() -> None:
    server = Server("c")
    wanted = server.wanted(allocation=allocation())
    server.fails["PUT /c/status"] = ApiAnswer(0, message="no answer")
    assert server.run(wanted) == error("add allocation and reservation to claim default/c: no answer")
    assert server.claim()["metadata"]["finalizers"] == [FINALIZER]
    assert server.run(wanted) == error("another run has begun to allocate claim default/c, and not ended")
    assert server.run(server.wanted(allocation=allocation())) == SUCCESS
    assert server.claim()["status"]["reservedFor"][0]["uid"] == server.uid


@pytest.mark.parametrize("call", ["GET /c", "PUT /c", "PUT /c/status"])
def test_a_fenced_claim_is_not_allocated(call: str) -> None:
    server = Server("c")
    wanted = server.wanted(allocation=allocation())
    server.before[call] = lambda: server.patch(f"{CLAIMS}/c", {"metadata": {"annotations": {FENCED: "1"}}})
    assert server.run(wanted) == error("claim default/c has changed in the meantime")
    assert "allocation" not in server.claim().get("status", {})


def test_an_allocated_claim_is_only_reserved() -> None:
    server = Server("c")
    others = [{"resource": "pods", "name": "q", "uid": "other"}]
    server.set_status(allocation={**allocation(), "allocationTimestamp": "2025-12-31T00:00:00Z"}, reservedFor=others)
    assert server.run(server.wanted()) == SUCCESS
    status = server.claim()["status"]
    assert [each["uid"] for each in status["reservedFor"]] == ["other", server.uid]
    assert status["allocation"]["allocationTimestamp"] == "2025-12-31T00:00:00Z"


def test_a_claim_that_is_reserved_already_gets_another_version_against_late_releases() -> None:
    server = Server("c")
    own = [{"resource": "pods", "name": "p", "uid": server.uid}]
    server.set_status(allocation=allocation(), reservedFor=own)
    before = server.claim()
    assert server.run(server.wanted()) == SUCCESS
    assert server.claim()["status"] == before["status"]
    assert server.claim()["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


def test_a_claim_that_has_changed_for_good_is_refused() -> None:
    server = Server("c")
    wanted = server.wanted(allocation=allocation())
    server.set_status(allocation=allocation(result("gpu-1")))
    assert server.run(wanted) == error("claim default/c got allocated elsewhere in the meantime")
    assert server.run(ClaimAllocation("default/c", "another uid")) == error(
        "claim default/c got deleted in the meantime"
    )
    server.set_status(allocation=None)
    assert server.run(server.wanted()) == error("claim default/c got deallocated elsewhere in the meantime")
    missing = server.run(ClaimAllocation("default/d", "u"))
    assert missing == error('get claim default/d: resourceclaims.resource.k8s.io "d" not found')


def test_a_claim_that_was_allocated_again_since_the_decision_is_refused() -> None:
    """The pod may not reach the devices that the claim has now."""
    server = Server("c")
    server.set_status(allocation=allocation(result("gpu-1")))
    for device, status in (
        ("gpu-0", error("claim default/c got allocated elsewhere in the meantime")),
        ("gpu-1", SUCCESS),
    ):
        assert server.run(msgspec.structs.replace(server.wanted(), devices=[f"d.example.com/n/{device}"])) == status


def test_the_server_s_share_ids_do_not_make_an_allocation_another_one() -> None:
    server = Server("c")
    server.set_status(allocation=allocation(result(shareID="1")))
    assert server.run(server.wanted(allocation=allocation(result(shareID="2")))) == SUCCESS


def test_a_conflict_with_another_reservation_is_retried() -> None:
    server = Server("c")
    server.set_status(allocation=allocation())
    server.before["PUT /c/status"] = lambda: server.patch(f"{CLAIMS}/c", {"metadata": {"labels": {"a": "b"}}})
    assert server.run(server.wanted()) == SUCCESS
    assert server.claim()["metadata"]["labels"] == {"a": "b"}
    assert server.calls.count("PUT /c/status") == 2


def test_conflicts_without_end_fail_the_attempt() -> None:
    server = Server("c")
    server.set_status(allocation=allocation())

    def again() -> None:
        server.before["PUT /c/status"] = again
        server.patch(f"{CLAIMS}/c", {"metadata": {"labels": {"n": str(len(server.calls))}}})

    again()
    failed = server.run(server.wanted())
    assert failed.message.startswith("add reservation to claim default/c: Operation cannot be fulfilled")
    assert server.calls.count("PUT /c/status") == MAX_WRITES * MAX_LOOKS


def test_a_second_claim_that_fails_releases_the_first() -> None:
    server = Server("c", "d")
    first, second = server.wanted("c", allocation=allocation()), server.wanted("d", allocation=allocation(result("g")))
    server.set_status("d", allocation=allocation(result("another")))
    assert not server.run(first, second).ok
    status = server.claim("c")["status"]
    assert (status["reservedFor"], status["allocation"]["devices"]) == ([], allocation()["devices"])


def test_an_older_server_is_asked_in_its_version() -> None:
    server = Server("c")
    wanted = server.wanted(allocation=allocation())
    beta = "/apis/resource.k8s.io/v1beta2/namespaces/default/resourceclaims/c"
    decided = DevicesToBind(DeviceDecision([wanted]), NOW.timestamp())
    steps = bind_devices(pod("p").uid(server.uid).build(), decided, 600.0)
    assert next(steps) == ApiCall("GET", f"{CLAIMS}/c", {})
    assert steps.send(ApiAnswer(404, message="not found")) == ApiCall("GET", beta, {})
    following = steps.send(ApiAnswer(200, json.dumps(server.claim()).encode()))
    assert isinstance(following, ApiCall)
    assert (following.method, following.path) == ("PUT", beta)
