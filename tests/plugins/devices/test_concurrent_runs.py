"""Several runs of PreBind for one pod: one that fails leaves what another relies on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Pause, Status
from shared.cluster.devices import ClaimAllocation, DeviceDecision, SpecialClaim
from shared.model.devices import FENCED
from shared.plugins.devices.pre_bind import (
    MAX_LOOKS,
    DevicesToBind,
    bind_devices,
)
from testing.builders import pod
from tests.plugins.devices.support import CLAIMS, NOW, Server, allocation, at_version, result, special
from tests.simulator.support import PODS

OF_GROUP = {"name": "c", "resourceClaimName": "c"}


class Run:
    """PreBind, one call at a time; `status` once it has ended."""

    def __init__(
        self,
        server: Server,
        *claims: ClaimAllocation,
        special: SpecialClaim | None = None,
        uid: str = "",
        name: str = "p",
        group: str = "",
    ) -> None:
        """`uid`, `name`: of another pod than the server's. `group`: of the pod, which names the group's claim."""
        version = server.get(f"{PODS}/p")["metadata"]["resourceVersion"]
        built = pod(name).uid(uid or server.uid)
        of = at_version((built.in_group(group).resource_claim("c") if group else built).build(), version)
        self.waits = 0
        decided = DevicesToBind(DeviceDecision(list(claims), special), NOW.timestamp())
        self.status: Status | None = None
        self._server = server
        self._steps = bind_devices(of, decided, 600.0)
        self._next: ApiCall | Pause = next(self._steps)

    @property
    def is_waiting(self) -> bool:
        return isinstance(self._next, Pause)

    @property
    def call(self) -> str:
        assert isinstance(self._next, ApiCall)
        return f"{self._next.method} {self._next.path.removeprefix(CLAIMS)}"

    def step(self, *, executed: bool = True, answered: bool = True) -> None:
        if isinstance(self._next, Pause):
            self.waits += 1
            self._next = self._steps.send(ApiAnswer())
            return
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


# Members of a gang


class Members:
    """Orders of two pods that share a claim, as one decision of their gang."""

    def __init__(self) -> None:
        self.server = Server("c")
        wanted = self.server.wanted("c", allocation())
        self.first, self.second = (Run(self.server, wanted, uid=name, name=name) for name in ("one", "two"))

    def users(self) -> list[str]:
        return sorted(each["uid"] for each in self.server.claim()["status"]["reservedFor"])


@pytest.mark.parametrize("of_group", [False, True])
def test_many_members_at_the_same_time_all_succeed(of_group: bool) -> None:
    """Each call of one is followed by a call of each other one."""
    server = Server("c")
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": [OF_GROUP]}}
    server.post("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups", group)
    wanted, names = server.wanted("c", allocation()), [f"m{i}" for i in range(40)]
    runs = [Run(server, wanted, uid=name, name=name, group="g" if of_group else "") for name in names]
    while waiting := [run for run in runs if run.status is None]:
        for run in waiting:
            run.step()
    assert [run.status for run in runs] == [SUCCESS] * len(runs)
    users = sorted(each["name"] for each in server.claim()["status"]["reservedFor"])
    assert users == (["g"] if of_group else sorted(names))
    if of_group:
        assert sum(call.startswith("PUT") for call in server.calls) < 3 * len(names)


def test_one_member_allocates_the_claim_and_the_others_use_it() -> None:
    of = Members()
    assert of.first.end() == SUCCESS
    assert of.second.end() == SUCCESS
    assert of.users() == ["one", "two"]


def test_a_member_waits_for_another_one_that_has_begun_to_allocate_the_claim() -> None:
    of = Members()
    of.second.until("PUT /c")
    of.first.until("PUT /c/status")
    while not of.second.is_waiting:
        of.second.step()
    of.first.end()
    assert of.second.end() == SUCCESS
    assert of.users() == ["one", "two"]


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_member_does_not_wait_for_ever_for_another_one(is_fenced: bool) -> None:
    """The other one has marked the claim, and ends there."""
    of = Members()
    of.first.until("PUT /c/status")
    if is_fenced:
        fence(of.server, "shared")
    assert not of.second.end().ok
    assert of.second.waits == (0 if is_fenced else MAX_LOOKS - 1)
    assert "allocation" not in of.server.claim().get("status", {})


def test_a_late_member_does_not_allocate_a_claim_that_gave_its_devices_back() -> None:
    """The mark of the allocation is still there, but the attempt may be over."""
    of = Members()
    assert of.first.end() == SUCCESS
    claim = of.server.claim()
    claim["status"] = {}
    of.server.put(f"{CLAIMS}/c/status", claim)
    assert not of.second.end().ok
    assert "allocation" not in of.server.claim().get("status", {})


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["answered"] * 5 + ["unanswered", "lost"])), max_size=30))
def test_of_members_at_the_same_time_each_that_succeeds_keeps_the_claim(choices: list[tuple[int, str]]) -> None:
    of = Members()
    runs = {"one": of.first, "two": of.second}
    for which, outcome in choices:
        run = list(runs.values())[which]
        if run.status is None:
            run.step(executed=outcome != "lost", answered=outcome == "answered")
    succeeded = sorted(name for name, run in runs.items() if run.end() == SUCCESS)
    if succeeded:
        assert set(succeeded) <= set(of.users())
