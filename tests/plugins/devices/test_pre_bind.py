"""What PreBind writes into claims and pods, what it waits for, and what it takes back. The simulator answers."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.objects import Pod
from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Pause, Status, error
from shared.cluster.devices import ClaimAllocation, DeviceDecision, SpecialClaim
from shared.devices.extended import RequestMapping
from shared.errors import ClusterError
from shared.messages.binding import ClaimRelease
from shared.model.codec import convert
from shared.model.devices import FENCED, AllocatedDevice, AllocationResult, DeviceAllocation, DeviceRequest
from shared.plugins.devices.pre_bind import (
    FINALIZER,
    ClaimCreated,
    DevicesToBind,
    Progress,
    WaitBegan,
    WaitEnded,
    WaitResult,
    bind_devices,
    release_claim,
)
from testing.builders import pod
from tests.simulator.support import PODS, Desk
from tests.simulator.support import pod as pod_body

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = "2026-01-01T00:00:00Z"
Object = dict[str, Any]


def result(device: str = "gpu-0", **more: Any) -> Object:
    return {"request": "r", "driver": "d.example.com", "pool": "n", "device": device, **more}


def allocation(*results: Object) -> Object:
    return {"devices": {"results": list(results or (result(),))}}


class Server(Desk):
    """`during` is called in each pause, and `before` each call; the first call that `fails` names gets that answer."""

    def __init__(self, *claims: str, during: Callable[["Server"], None] = lambda _: None) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.progress: list[Progress] = []
        self.fails: dict[str, ApiAnswer] = {}
        self.before: dict[str, Callable[[], object]] = {}
        self.pod = self.post(PODS, pod_body("p"))
        for name in claims:
            self.post(CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": []}}})
        self._during = during

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    def claim(self, name: str = "c") -> Any:
        return self.get(f"{CLAIMS}/{name}")

    def wanted(self, name: str = "c", allocation: Object | None = None) -> ClaimAllocation:
        """As an order that was decided now."""
        metadata = self.claim(name)["metadata"]
        to_write = None if allocation is None else convert(AllocationResult, allocation)
        return ClaimAllocation(f"default/{name}", metadata["uid"], to_write, metadata["resourceVersion"])

    def set_status(self, name: str = "c", **status: Any) -> None:
        claim = self.claim(name)
        claim["status"] = {**claim.get("status", {}), **status}
        self.put(f"{CLAIMS}/{name}/status", claim)

    def run(self, *claims: ClaimAllocation, special: SpecialClaim | None = None, patience: float = 600.0) -> Status:
        """With an order that names the pod as it is now."""
        version = self.get(f"{PODS}/p")["metadata"]["resourceVersion"]
        of, elapsed = at_version(pod("p").uid(self.uid).build(), version), 0.0
        decided = DevicesToBind(DeviceDecision(list(claims), special), NOW.timestamp(), self.progress)
        steps = bind_devices(of, decided, patience)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    elapsed += step.seconds
                    self._during(self)
                    answer = ApiAnswer(elapsed=elapsed)
                else:
                    answer = self.answer(step, elapsed)
                step = steps.send(answer)
        except StopIteration as end:
            status: Status = end.value
            return status

    def answer(self, call: ApiCall, elapsed: float) -> ApiAnswer:
        name = f"{call.method} {call.path.removeprefix(CLAIMS)}"
        self.calls.append(name)
        self.before.pop(name, lambda: None)()
        if name in self.fails:
            return self.fails.pop(name)
        status, body = self.call(call.method, call.path, None if call.method == "GET" else call.body)
        message = "" if status < 300 else body["message"]
        return ApiAnswer(status, json.dumps(body).encode(), message, elapsed)


def at_version(of: Pod, version: str) -> Pod:
    metadata = msgspec.structs.replace(of.metadata, resource_version=version)
    return msgspec.structs.replace(of, metadata=metadata)


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
    assert server.run(wanted) == error("claim default/c has changed in the meantime")
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
    assert server.calls.count("PUT /c/status") == 5


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


# Binding conditions

CONDITIONS: Object = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}


def told(kind: str, **more: str) -> Callable[[Server], None]:
    condition = {"type": kind, "status": "True", "reason": "Why", "message": 'a "b"', **more}
    device = {"driver": "d.example.com", "pool": "n", "device": "gpu-0", "conditions": [condition]}
    return lambda server: server.set_status(devices=[device])


def test_it_waits_until_binding_conditions_hold() -> None:
    server = Server("c", during=told("Ready"))
    assert server.run(server.wanted(allocation=allocation(result(**CONDITIONS)))) == SUCCESS
    assert server.calls[-1] == "GET /c"
    assert server.progress == [WaitBegan(), WaitEnded(("d.example.com",), WaitResult.SUCCESS)]


def test_devices_that_are_ready_already_count_as_awaited_without_a_pause() -> None:
    server = Server("c", during=lambda _: pytest.fail("paused"))
    told("Ready")(server)
    ready = server.wanted(allocation=allocation(result(**CONDITIONS), result("gpu-1")))
    assert server.run(ready) == SUCCESS
    assert server.progress == [WaitBegan(), WaitEnded(("d.example.com",), WaitResult.SUCCESS)]


def test_devices_without_binding_conditions_are_not_awaited() -> None:
    server = Server("c")
    assert server.run(server.wanted(allocation=allocation())) == SUCCESS
    assert server.progress == []


def test_each_driver_with_binding_conditions_is_named_once() -> None:
    server = Server("c", during=told("Broken"))
    other = {**result("x"), **CONDITIONS, "driver": "a.example.com"}
    devices = allocation(result(**CONDITIONS), other, result("gpu-1", **CONDITIONS), {**result(), "driver": "b"})
    server.run(server.wanted(allocation=devices))
    assert server.progress[-1] == WaitEnded(("a.example.com", "d.example.com"), WaitResult.FAILURE)


def test_a_failed_condition_fails_the_attempt_and_releases_the_claim() -> None:
    server = Server("c", during=told("Broken"))
    failed = server.run(server.wanted(allocation=allocation(result(**CONDITIONS))))
    assert failed == error('device binding failed: claim=c, reason=Why, message="a \\"b\\""')
    assert server.claim()["status"]["reservedFor"] == []
    assert server.progress == [WaitBegan(), WaitEnded(("d.example.com",), WaitResult.FAILURE)]


def test_devices_that_never_become_ready_end_the_wait() -> None:
    server = Server("c")
    failed = server.run(server.wanted(allocation=allocation(result(**CONDITIONS))), patience=20.0)
    assert failed == error("device binding timeout: context deadline exceeded")
    assert server.progress == [WaitBegan(), WaitEnded(("d.example.com",), WaitResult.TIMEOUT)]


def take_back(server: Server) -> None:
    server.put(f"{CLAIMS}/c/status", server.claim() | {"status": {}})


def remove(server: Server) -> None:
    server.put(f"{CLAIMS}/c", server.claim() | {"metadata": server.claim()["metadata"] | {"finalizers": []}})
    server.call("DELETE", f"{CLAIMS}/c")


@pytest.mark.parametrize(("during", "reason"), [(take_back, "got deallocated elsewhere"), (remove, "not found")])
def test_a_claim_that_loses_its_devices_ends_the_wait(during: Callable[[Server], None], reason: str) -> None:
    server = Server("c", during=during)
    failed = server.run(server.wanted(allocation=allocation(result(**CONDITIONS))))
    assert not failed.ok
    assert reason in failed.reasons[0]
    assert server.progress[-1] == WaitEnded(("d.example.com",), WaitResult.FAILURE)


def test_a_claim_allocated_long_ago_has_less_time() -> None:
    server = Server("c")
    server.set_status(allocation={**allocation(result(**CONDITIONS)), "allocationTimestamp": "2025-12-31T23:49:58Z"})
    assert server.run(server.wanted()) == error("device binding timeout: claim=c")
    assert server.progress[-1] == WaitEnded(("d.example.com",), WaitResult.TIMEOUT)


# The claim for extended resources


EXACTLY = {"deviceClassName": "gpu", "count": 1, "allocationMode": "ExactCount"}


def special(name: str = "p-extended-resources-abcde") -> SpecialClaim:
    request = "container-0-request-0"
    allocated = convert(AllocationResult, allocation(result(request=request)))
    requests = convert(list[DeviceRequest], [{"name": request, "exactly": EXACTLY}])
    return SpecialClaim(requests, [RequestMapping("c", "example.com/gpu", request)], allocated, name)


def test_a_claim_for_extended_resources_is_created_and_named_in_the_pod() -> None:
    server = Server()
    assert server.run(special=special()) == SUCCESS
    claim = server.claim(special().name)
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert claim["metadata"]["ownerReferences"][0]["uid"] == server.uid
    assert claim["spec"]["devices"]["requests"] == [{"name": "container-0-request-0", "exactly": EXACTLY}]
    assert claim["status"]["reservedFor"][0]["uid"] == server.uid
    named = server.get(f"{PODS}/p")["status"]["extendedResourceClaimStatus"]
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    assert named == {"resourceClaimName": special().name, "requestMappings": [mapping]}
    before = len(server.get(CLAIMS)["items"])
    assert server.run(special=special()) == SUCCESS
    assert len(server.get(CLAIMS)["items"]) == before
    assert server.progress == [ClaimCreated(True)]


@pytest.mark.parametrize("call", ["POST ", f"GET {PODS}/p", f"PUT {PODS}/p/status"])
def test_a_claim_for_extended_resources_is_not_allocated_once_the_pod_is_fenced(call: str) -> None:
    server = Server()
    server.before[call] = lambda: server.patch(f"{PODS}/p", {"metadata": {"labels": {"fenced": "1"}}})
    failed = server.run(special=special())
    assert failed.message.startswith("update pod default/p ExtendedResourceClaimStatus: ")
    assert server.get(CLAIMS)["items"] == []


def test_a_claim_for_extended_resources_that_an_interrupted_run_has_made_is_not_allocated() -> None:
    server = Server()
    server.fails[f"PUT {CLAIMS}/{special().name}/status"] = ApiAnswer(0, message="no answer")
    server.fails[f"PUT /{special().name}/status"] = ApiAnswer(0, message="no answer")
    server.fails[f"DELETE /{special().name}"] = ApiAnswer(0, message="no answer")
    server.run(special=special())
    assert server.run(special=special()) == error(f"claim default/{special().name} has changed in the meantime")
    assert "status" not in server.claim(special().name)


def test_a_claim_for_extended_resources_that_is_refused_fails_the_attempt() -> None:
    server = Server()
    server.fails["POST "] = ApiAnswer(403, message="quota")
    failed = server.run(special=special())
    assert failed == error(f"create claim for extended resources default/{special().name}: quota")
    assert server.progress == [ClaimCreated(False)]


def test_another_s_claim_of_that_name_is_left_alone() -> None:
    server = Server(special().name)
    failed = server.run(special=special())
    assert failed.message.endswith("another claim has this name")
    assert "status" not in server.claim(special().name)


def test_what_fails_after_its_creation_deletes_it() -> None:
    server = Server()
    server.fails[f"GET {PODS}/p"] = ApiAnswer(500, message="no")
    failed = server.run(special=special())
    assert failed == error("update pod default/p ExtendedResourceClaimStatus: no")
    assert server.get(CLAIMS)["items"] == []


# Two runs for one pod


class Run:
    """PreBind, one call at a time; `status` once it has ended."""

    def __init__(self, server: Server, *claims: ClaimAllocation, special: SpecialClaim | None = None) -> None:
        version = server.get(f"{PODS}/p")["metadata"]["resourceVersion"]
        of = at_version(pod("p").uid(server.uid).build(), version)
        decided = DevicesToBind(DeviceDecision(list(claims), special), NOW.timestamp())
        self.status: Status | None = None
        self._server = server
        self._steps = bind_devices(of, decided, 600.0)
        self._next: ApiCall | Pause = next(self._steps)

    @property
    def call(self) -> str:
        assert isinstance(self._next, ApiCall)
        return f"{self._next.method} {self._next.path.removeprefix(CLAIMS)}"

    def step(self, *, executed: bool = True, answered: bool = True) -> None:
        assert isinstance(self._next, ApiCall)
        answer = self._server.answer(self._next, 0.0) if executed else ApiAnswer(0, message="no answer")
        try:
            self._next = self._steps.send(answer if answered else ApiAnswer(0, message="no answer"))
        except StopIteration as end:
            self.status = end.value

    def until(self, call: str) -> "Run":
        while self.call != call:
            self.step()
        return self

    def end(self) -> Status:
        while self.status is None:
            self.step()
        return self.status


def reserved(server: Server, name: str) -> bool:
    return any(each["uid"] == server.uid for each in server.claim(name)["status"]["reservedFor"])


def test_a_run_that_fails_leaves_the_reservations_that_another_run_of_the_attempt_relies_on() -> None:
    server = Server("c", "d")
    wanted = [server.wanted("c", allocation()), server.wanted("d", allocation(result("gpu-1")))]
    first = Run(server, *wanted).until("PUT /d/status")
    first.step(answered=False)
    assert Run(server, *wanted).end() == SUCCESS
    assert not first.end().ok
    assert reserved(server, "c")
    assert reserved(server, "d")


def test_a_run_that_fails_leaves_the_reservations_that_the_next_attempt_relies_on() -> None:
    server = Server("c", "d")
    wanted = [server.wanted("c", allocation()), server.wanted("d", allocation(result("gpu-1")))]
    first = Run(server, *wanted).until("PUT /d")
    server.patch(f"{CLAIMS}/d", {"metadata": {"annotations": {FENCED: "x"}}})
    second = Run(server, server.wanted("c"), server.wanted("d", allocation(result("gpu-2"))))
    assert second.end() == SUCCESS
    assert not first.end().ok
    assert reserved(server, "c")


def test_a_run_does_not_delete_the_claim_for_extended_resources_that_another_has_made() -> None:
    server = Server()
    first, second = Run(server, special=special()), Run(server, special=special())
    first.until(f"PUT /{special().name}/status")
    assert not second.end().ok
    assert first.end() == SUCCESS
    assert reserved(server, special().name)


MANY_CHOICES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["answered"] * 5 + ["unanswered", "lost"])), max_size=60
)


@given(MANY_CHOICES, st.sampled_from(["two claims", "shared", "special"]), st.integers(0, 20))
def test_of_runs_at_the_same_time_one_that_succeeds_keeps_its_claims(
    choices: list[tuple[int, str]], kind: str, fenced_after: int
) -> None:
    """Two runs of an attempt, and one of the next attempt once the first is fenced."""
    server = Server("c", "d") if kind == "two claims" else Server("c")
    if kind == "shared":
        server.set_status(allocation=allocation(), reservedFor=[{"resource": "pods", "name": "q", "uid": "other"}])

    def begin() -> Run:
        if kind == "special":
            return Run(server, special=special())
        if kind == "shared":
            return Run(server, server.wanted("c"))
        return Run(server, *(wanted(server, name) for name in "cd"))

    runs = [begin(), begin()]
    for count, (which, outcome) in enumerate(choices):
        if count == fenced_after and kind != "special":
            fence(server, kind)
            runs.append(begin())
        run = runs[which % len(runs)]
        if run.status is None:
            run.step(executed=outcome != "lost", answered=outcome == "answered")
    succeeded = any(run.end() == SUCCESS for run in runs)
    if succeeded:
        assert all(reserved(server, name) for name in claim_names(kind))


def wanted(server: Server, name: str) -> ClaimAllocation:
    found = server.claim(name).get("status", {}).get("allocation")
    return server.wanted(name, None if found else allocation(result(f"gpu-{name}")))


def fence(server: Server, kind: str) -> None:
    for name in claim_names(kind):
        if not server.claim(name).get("status", {}).get("allocation"):
            server.patch(f"{CLAIMS}/{name}", {"metadata": {"annotations": {FENCED: "the snapshot"}}})


def claim_names(kind: str) -> list[str]:
    return {"two claims": ["c", "d"], "shared": ["c"], "special": [special().name]}[kind]


# What PostFilter takes back

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
