"""The barrier by itself: the real client over the simulated API server; the watch is played by hand."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from services.snapshot.store.claim_barrier import MAX_CALLS, MAX_TRIES
from services.snapshot.store.fencing_barrier import FencingBarrier
from shared.errors import Unexpected
from shared.kube.events_and_conditions import BINDING_FENCED
from shared.kube.outcome import ApiResponse
from shared.messages.watch import AlikePods, Kind, PodChange, PodOnNode, Unreadable
from shared.model.objects import ObjectMeta, Pod, PodSpec
from testing.simulation.apiserver import ApiServer, Refusal
from testing.simulation.client import SimClient, Transport
from testing.simulation.loop import Dice, VirtualLoop
from tests.bus.support import a_telemetry

OURS = "ours"
PENDING_AT_MOST = 30.0
"""Virtual seconds."""


class Client(SimClient):
    """`refuses`: what the next writes are answered with, by the pod's name. `most`: calls that were out at once."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, "snapshot")
        self.refuses: dict[str, int] = {}
        self.says = "not for you"
        self.before_write: Callable[[str], None] = lambda name: None
        self.out = self.most = 0
        self.writes = 0

    async def _once(
        self, method: str, path: str, body: bytes | None, content_type: str, deadline: float
    ) -> ApiResponse:
        self.out += 1
        self.most = max(self.most, self.out)
        name = path.removesuffix("/status").rpartition("/")[2]
        try:
            if method == "PATCH":
                self.writes += 1
                self.before_write(name)
            return await super()._once(method, path, body, content_type, deadline)
        finally:
            self.out -= 1


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        dice = Dice(1)
        self.server = ApiServer(dice)
        self.transport = Transport(self.server, dice)
        self.client = Client(self.transport)
        self.fault = a_telemetry().fault
        self.barrier = self.a_barrier()
        self.told: list[str] = []
        found = self.server.found

        def refusing(name: str, uid: str = "", version: str = "") -> Pod:
            if uid and name in self.client.refuses:
                raise Refusal(self.client.refuses[name], self.client.says)
            return found(name, uid, version)

        monkeypatch.setattr(self.server, "found", refusing)

    def a_barrier(self) -> FencingBarrier:
        return FencingBarrier(self.client, frozenset({OURS}), 7, logging.getLogger("barrier"), self.fault)

    def pod(self, name: str, *, scheduler: str = OURS) -> Pod:
        pod = Pod(metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"))
        self.server.put_pod(replace(pod, spec=PodSpec(scheduler_name=scheduler)))
        self.show(name, scheduler=scheduler)
        return self.stands(name)

    def stands(self, name: str) -> Pod:
        return self.server.pods[f"uid-{name}"]

    def show(self, name: str, *, node: str = "", gone: bool = False, scheduler: str = OURS) -> None:
        self.barrier.on_watch(PodChange(f"uid-{name}", "default", name, scheduler, node, gone=gone))

    def show_unreadable(self, name: str, *, node: str = "", scheduler: str = OURS) -> None:
        self.barrier.on_watch(Unreadable(Kind.POD, f"uid-{name}", "default", name, "an odd field", scheduler, node))

    def bind(self, name: str, node: str = "n1") -> None:
        pod = self.stands(name)
        self.server.bind(name, pod.uid, node, pod.metadata.resource_version)

    def is_fenced(self, name: str) -> bool:
        return any(each.type == BINDING_FENCED for each in self.stands(name).status.conditions)

    async def run(self) -> None:
        async with asyncio.timeout(PENDING_AT_MOST):
            await self.barrier.run(self.told.append)

    def begin(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.run())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def played(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story)


async def later(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PENDING_AT_MOST):
        while not true():
            await asyncio.sleep(0.01)


def test_a_pending_pod_gets_another_version_and_the_watch_need_not_show_it(world: World) -> None:
    """Its condition may be removed before anybody has seen it."""

    async def story() -> None:
        before = world.pod("a").metadata.resource_version
        world.pod("theirs", scheduler="another")
        await world.run()
        assert world.is_fenced("a")
        assert not world.is_fenced("theirs")
        with pytest.raises(Refusal):
            world.server.bind("a", "uid-a", "n1", before)

    played(story())


def test_pods_that_are_shown_on_nodes_are_not_fenced(world: World) -> None:
    async def story() -> None:
        for name in "abc":
            world.pod(name)
        world.show("a", node="n1")
        others = [PodOnNode("uid-b", "b", "n1"), PodOnNode("uid-theirs", "theirs", "n1")]
        world.barrier.on_watch(AlikePods("default", msgspec.Raw(b""), others))
        await world.run()
        assert [world.is_fenced(name) for name in "abc"] == [False, False, True]

    played(story())


def test_a_term_that_is_used_twice_fences_again(world: World) -> None:
    """A patch that changes nothing leaves the version as it is."""

    async def story() -> None:
        world.pod("a")
        await world.run()
        before = world.stands("a").metadata.resource_version
        world.barrier = world.a_barrier()
        world.show("a")
        await world.run()
        assert world.stands("a").metadata.resource_version != before

    played(story())


@pytest.mark.parametrize("scheduler", [OURS, ""])
def test_a_pod_that_cannot_be_read_is_fenced_by_its_outline(world: World, scheduler: str) -> None:
    async def story() -> None:
        world.pod("a", scheduler="another")
        world.show_unreadable("a", scheduler=scheduler)
        await world.run()
        assert world.is_fenced("a")

    played(story())


def test_a_pod_that_becomes_unreadable_after_the_listing_is_not_waited_for(world: World) -> None:
    async def story() -> None:
        world.pod("a")
        world.client.before_write = lambda name: world.show_unreadable(name)
        await world.run()
        assert world.is_fenced("a")

    played(story())


def test_an_unreadable_pod_on_a_node_needs_no_fence(world: World) -> None:
    async def story() -> None:
        world.pod("a")
        world.show_unreadable("a", node="n1")
        await world.run()
        assert world.client.writes == 0

    played(story())


def test_a_deleted_pod_is_not_waited_for(world: World) -> None:
    async def story() -> None:
        world.pod("a")
        world.server.delete_pod("uid-a")
        await world.run()

    played(story())


def test_a_pod_that_was_recreated_under_its_name_is_not_waited_for(world: World) -> None:
    async def story() -> None:
        pod = world.pod("a")
        world.server.delete_pod("uid-a")
        world.server.put_pod(replace(pod, metadata=ObjectMeta(name="a", namespace="default", uid="uid-a2")))
        await world.run()
        assert not world.server.pods["uid-a2"].status.conditions

    played(story())


@pytest.mark.parametrize("readable", [True, False])
def test_a_pod_that_was_bound_meanwhile_is_waited_for_until_the_watch_shows_its_place(
    world: World, readable: bool
) -> None:
    async def story() -> None:
        world.pod("a")
        world.client.before_write = lambda name: world.bind(name) if not world.stands(name).spec.node_name else None
        running = world.begin()
        await asyncio.sleep(3.0)
        assert not running.done()
        assert "1 are on a node" in world.told[-1]
        assert world.client.writes == 1
        if readable:
            world.show("a", node="n1")
        else:
            world.show_unreadable("a", node="n1")
        await running

    played(story())


def test_one_that_was_bound_meanwhile_and_is_gone_is_not(world: World) -> None:
    async def story() -> None:
        world.pod("a")
        world.client.before_write = lambda name: world.bind(name)
        running = world.begin()
        await later(lambda: world.client.writes == 1)
        world.server.delete_pod("uid-a")
        await running

    played(story())


def test_refusals_are_logged_shown_and_retried(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        world.pod("a")
        world.pod("b")
        world.client.refuses["a"] = 403
        running = world.begin()
        await asyncio.sleep(3.0)
        assert not running.done()
        assert world.told[-1].startswith("fenced 1 of 2 pending pods; the API server does not allow it")
        assert "needs `patch` on `pods/status`" in world.told[-1]
        world.client.refuses.clear()
        await running
        assert world.is_fenced("a")

    with caplog.at_level(logging.INFO):
        played(story())
    assert "pending pods cannot be fenced: the API server does not allow it" in caplog.text
    assert "fenced 2 of 2 pending pods" in caplog.text


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (422, 'Pod "a" is invalid: spec.containers[0].image: Required value'),
        (403, 'admission webhook "policy.example.com" denied the request: not on a Friday'),
        (403, "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"),
    ],
)
def test_a_pod_that_the_server_refuses_to_change_is_set_aside(
    world: World, caplog: pytest.LogCaptureFixture, status: int, says: str
) -> None:
    async def story() -> None:
        world.pod("a")
        world.pod("b")
        world.client.refuses["a"], world.client.says = status, says
        await world.run()
        assert world.is_fenced("b")
        assert list(world.barrier.aside) == ["uid-a"]
        assert world.client.writes == MAX_TRIES + 1
        assert any("default/a" in line or says in line for line in world.told)

    with caplog.at_level(logging.INFO):
        played(story())
    assert "fenced 1 of 2 pending pods; the API server refuses to change default/a" in caplog.text


def test_a_pod_that_was_set_aside_and_is_bound_is_set_aside_no_more(world: World) -> None:
    async def story() -> None:
        world.pod("a")
        world.client.refuses["a"] = 422
        await world.run()
        world.show("a", node="n1")
        assert not world.barrier.aside

    played(story())


def test_a_conflict_is_no_proof_that_the_pod_is_gone(world: World) -> None:
    """The API server gives up a patch with 409 where others write the same object again and again."""

    async def story() -> None:
        world.pod("a")
        world.client.refuses["a"] = 409
        running = world.begin()
        await asyncio.sleep(3.0)
        assert not running.done()
        world.client.refuses.clear()
        await running
        assert world.is_fenced("a")

    played(story())


def test_it_goes_on_where_the_server_does_not_answer_for_a_while(world: World) -> None:
    async def story() -> None:
        before = world.pod("a").metadata.resource_version
        world.transport.stalled_until = asyncio.get_running_loop().time() + 15.0
        await world.run()
        assert asyncio.get_running_loop().time() >= 15.0
        assert world.stands("a").metadata.resource_version != before

    played(story())


def test_a_thousand_pods_with_bounded_calls_and_progress(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        for number in range(1000):
            world.pod(f"p{number}")
        world.transport.stalled_until = 1.5
        await world.run()
        assert world.client.most == MAX_CALLS
        assert all(world.is_fenced(f"p{number}") for number in range(1000))
        assert world.client.writes == 1000
        assert world.told[0] == "fenced 0 of 1,000 pending pods"

    with caplog.at_level(logging.INFO):
        played(story())
    assert "fencing 1,000 pending pods first, in about 2 s" in caplog.text
    assert "fenced 1,000 of 1,000 pending pods" in caplog.text


def test_pods_created_after_the_start_are_not_fenced(world: World) -> None:
    async def story() -> None:
        world.pod("a")
        world.client.before_write = lambda name: None if "uid-late" in world.server.pods else _late(world)
        await world.run()
        assert not world.is_fenced("late")

    played(story())


def _late(world: World) -> None:
    world.pod("late")


def test_an_exception_while_it_tells_how_far_it_is_ends_the_term(world: World) -> None:
    async def story() -> None:
        world.pod("a")

        def fail(line: str) -> None:
            raise ValueError(line)

        await world.barrier.run(fail)
        with pytest.raises(Unexpected, match="fencing progress failed"):
            await world.fault.raised()

    played(story())
