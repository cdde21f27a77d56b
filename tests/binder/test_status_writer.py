"""What is written into a pod's status never overtakes its binding, and costs one call where nothing has changed."""

import pytest

from flotilla.results import ApiCall
from shared.config.settings import ApiSettings
from shared.kube.client import KubeClient
from shared.messages.binding import Notice, Notices
from tests.binder.world import World, until, world

pytestmark = pytest.mark.asyncio

STATUS = "/status$"
BINDINGS = "/binding$"


def say(w: World, name: str, message: str, *, version: str = "", nominated: str | None = None) -> None:
    notice = Notice(
        f"uid-{name}",
        "default",
        name,
        "default-scheduler",
        "Unschedulable",
        message,
        event=False,
        nominated=nominated,
        version=version,
    )
    w.bus.post("binder.notices", Notices([notice]))


def version_of(w: World, name: str) -> str:
    return str(w.simulator.stored("pods", name, "default")["metadata"]["resourceVersion"])


def status_of(w: World, name: str) -> str:
    """Of its PodScheduled condition."""
    return str((w.condition_of(name) or {}).get("status", ""))


def asked(w: World, method: str, code: int) -> float:
    return w.metric("rest_client_requests_total", method=method, code=str(code))


async def bind_elsewhere(w: World, name: str) -> None:
    """As another binder does."""
    client = await KubeClient.open(ApiSettings(server=w.simulator.url))
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    try:
        path = f"/api/v1/namespaces/default/pods/{name}/binding"
        assert (await client.execute(ApiCall("POST", path, body))).ok
    finally:
        await client.close()


async def test_a_pod_that_has_not_changed_is_told_in_one_call() -> None:
    async with world() as w:
        w.pod("p")
        say(w, "p", "no room", version=version_of(w, "p"), nominated="n1")
        await until(lambda: status_of(w, "p") == "False")
        assert w.nominated("p") == "n1"
        await until(lambda: asked(w, "PATCH", 200) == 1)
        assert asked(w, "GET", 200) == 0


async def test_a_pod_that_is_bound_while_its_condition_is_on_its_way_keeps_what_the_binding_says() -> None:
    async with world() as w:
        w.pod("p")
        w.simulator.faults.delay("PATCH", STATUS, 0.3)
        say(w, "p", "no room", version=version_of(w, "p"), nominated="n2")
        await until(lambda: not w.simulator.faults)  # the server has got it
        await bind_elsewhere(w, "p")
        await until(lambda: asked(w, "GET", 200) == 1)
        assert (asked(w, "PATCH", 409), asked(w, "PATCH", 200)) == (1, 0)
        assert (status_of(w, "p"), w.nominated("p")) == ("True", "")


@pytest.mark.parametrize("version", ["", "1"])
async def test_a_condition_that_comes_after_the_binding_is_not_written(version: str) -> None:
    """`version`: not known, or one from before."""
    async with world() as w:
        w.pod("p")
        await bind_elsewhere(w, "p")
        say(w, "p", "no room", version=version)
        await until(lambda: asked(w, "GET", 200) == 1)
        w.pod("q")
        say(w, "q", "no room", version=version_of(w, "q"))
        await until(lambda: status_of(w, "q") == "False")
        await until(lambda: asked(w, "PATCH", 200) == 1)
        assert status_of(w, "p") == "True"


async def test_a_pod_that_has_only_changed_is_told_all_the_same() -> None:
    async with world() as w:
        w.pod("p")
        say(w, "p", "no room", version="1")
        await until(lambda: status_of(w, "p") == "False")
        assert (asked(w, "PATCH", 409), asked(w, "GET", 200), asked(w, "PATCH", 200)) == (1, 1, 1)


@pytest.mark.parametrize("version", ["1", ""])
async def test_a_nomination_is_not_written_to_a_pod_that_has_changed(version: str) -> None:
    """Its binder may have been frozen, and the nomination revoked since: the queue re-sends one that stands."""
    async with world() as w:
        w.pod("p")
        say(w, "p", "no room", nominated="n1", version=version)
        await until(lambda: status_of(w, "p") == "False")
        assert "nominatedNodeName" not in w.simulator.stored("pods", "p", "default")["status"]
        say(w, "p", "no room", nominated="n1", version=version_of(w, "p"))
        await until(lambda: w.simulator.stored("pods", "p", "default")["status"].get("nominatedNodeName") == "n1")


async def test_a_condition_that_is_set_already_is_not_written_again() -> None:
    async with world() as w:
        w.pod("p")
        say(w, "p", "no room", version=version_of(w, "p"))
        await until(lambda: status_of(w, "p") == "False")
        written = version_of(w, "p")
        say(w, "p", "no room")
        await until(lambda: asked(w, "GET", 200) == 1)
        assert (version_of(w, "p"), asked(w, "PATCH", 200)) == (written, 1)


async def test_a_pod_that_changes_all_the_time_is_left_alone_in_the_end() -> None:
    async with world() as w:
        w.pod("p")
        w.simulator.faults.fail("PATCH", STATUS, 409, times=1000, reason="Conflict")
        say(w, "p", "no room", version=version_of(w, "p"))
        await until(lambda: w.metric("flotilla_events_failed_total") == 1)
        assert (asked(w, "PATCH", 409), asked(w, "GET", 200)) == (4, 3)


async def test_of_a_binding_that_fails_the_pod_is_told_unless_another_one_has_bound_it_meanwhile() -> None:
    async with world() as w:
        w.pod("p")
        w.pod("q")
        w.simulator.faults.fail("POST", BINDINGS, 403, times=2, reason="Forbidden")
        w.order("p")
        await until(lambda: status_of(w, "p") == "False")
        w.simulator.faults.delay("GET", "/pods/q$", 0.3, times=3)
        w.order("q")
        assert (await w.outcome("q")).reason
        await bind_elsewhere(w, "q")
        await until(lambda: asked(w, "GET", 200) == 6)  # two each to fence them, and one before they are told
        assert (status_of(w, "q"), asked(w, "PATCH", 200)) == ("True", 3)


async def test_a_look_that_fails_is_tried_again() -> None:
    async with world() as w:
        w.pod("p")
        w.simulator.faults.fail("GET", "/pods/p$", 500, times=5)
        say(w, "p", "no room")
        await until(lambda: status_of(w, "p") == "False")
