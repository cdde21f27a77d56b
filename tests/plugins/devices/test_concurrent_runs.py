"""Several runs of PreBind for one pod: one that fails leaves what another relies on."""

from hypothesis import given
from hypothesis import strategies as st

from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Pause, Status
from shared.cluster.devices import ClaimAllocation, DeviceDecision, SpecialClaim
from shared.model.devices import FENCED
from shared.plugins.devices.pre_bind import (
    DevicesToBind,
    bind_devices,
)
from testing.builders import pod
from tests.plugins.devices.support import CLAIMS, NOW, Server, allocation, at_version, result, special
from tests.simulator.support import PODS


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
