"""The watcher, from a (simulated) API server to a follower on a real bus: no change lost, none doubled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from services.watcher.core import WatcherCore
from services.watcher.events import Effect, Event, Received
from services.watcher.resources import RESOURCES
from shared.config.settings import ApiSettings
from shared.errors import ClusterError, Unexpected
from shared.kube.client import KubeClient
from shared.kube.listwatch import ListWatch, ObjectEvents
from shared.kube.wire import Page
from shared.messages.watch import AlikePods, Kind, KindListed, ListKind, PodChange, Relist, WatchBeat, WatchSeen
from shared.model.kinds import ObjectKind
from shared.watch import WatchReader
from testing.simulator.service import SimulatorOptions
from tests.bus.support import PATIENCE, sample
from tests.kube.support import raw_node, raw_pod, until
from tests.leadership.terms import is_next
from tests.samples import an_object, raw_object
from tests.watcher.support import World, a_world

pytestmark = pytest.mark.asyncio

GROUP_KINDS = (ObjectKind.POD_GROUP, ObjectKind.COSCHEDULING_POD_GROUP)


async def agree(world: World, *without: str) -> None:
    def expected() -> dict[tuple[Kind, str], str]:
        return {key: version for key, version in world.actual().items() if key[1] not in without}

    try:
        await until(lambda: world.follower.reader.synced and world.follower.world == expected())
    except TimeoutError:
        assert world.follower.world == expected()
        raise


def put(world: World, *pods: Any) -> None:
    for pod in pods:
        world.server.store_raw("pods", raw_pod(pod) if isinstance(pod, str) else pod)


async def delete(world: World, name: str) -> None:
    client = await KubeClient.open(ApiSettings(server=world.server.url))
    assert (await client.try_call("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")).ok
    await client.close()


async def test_a_follower_learns_the_cluster_and_its_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listed_once(monkeypatch) as world:
        world.server.store_raw("nodes", raw_node("n"))
        put(world, "a", "b", "c")
        await agree(world)
        put(world, raw_pod("a", node="n"))
        await delete(world, "b")
        put(world, raw_pod("c") | {"status": {"phase": "Succeeded"}})
        await agree(world, "c")
        assert set(world.follower.told.values()) == {1}
        assert sample(world.telemetry, "flotilla_watch_events_total", kind="pod", type="ADDED") == 3


async def test_it_is_ready_once_everything_is_listed() -> None:
    async with a_world() as world:
        world.server.faults.fail("GET", "^/api/v1/nodes", 403, times=3, reason="Forbidden")
        await until(lambda: any("403" in reason for reason in world.health.reasons()))
        plurals = tuple(resource.plural for resource in RESOURCES.values())
        assert all(reason.startswith(plurals) for reason in world.health.reasons())
        await until(lambda: world.health.reasons() == [])


async def test_a_core_that_fails_ends_its_term_and_the_next_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    handle, events = WatcherCore.handle, list[object]()

    def fail_halfway(core: WatcherCore, event: Event, now: float) -> list[Effect]:
        effects = handle(core, event, now)
        if isinstance(event, Received) and isinstance(event.what, ObjectEvents) and not events:
            events.append(event)
            raise ZeroDivisionError
        return effects

    monkeypatch.setattr(WatcherCore, "handle", fail_halfway)
    async with a_world() as world:
        put(world, "a")
        await agree(world)
        put(world, "b")
        with pytest.raises(BaseExceptionGroup) as found:
            await world.ended()
        assert found.value.subgroup(Unexpected) is not None
        put(world, "c")
        world.start()
        await agree(world)
        assert len(events) == 1


async def test_pod_groups_are_listed_once_the_server_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.watcher.service.MISSING_PAUSE", 0.1)
    async with a_world() as world:
        faults = world.server.faults
        for group in ("scheduling.k8s.io", "scheduling.x-k8s.io"):
            faults.fail("GET", f"^/apis/{group}/v1alpha./podgroups", 404, times=4, reason="NotFound")
        for kind in GROUP_KINDS:
            store(world, kind)
        await until(lambda: world.health.reasons() == [])
        await until(lambda: world.follower.reader.synced)
        await until(lambda: world.follower.objects.keys() >= {(kind, "default/x") for kind in GROUP_KINDS})
        assert world.follower.objects[ObjectKind.POD_GROUP, "default/x"] == an_object(ObjectKind.POD_GROUP)


def store(world: World, kind: ObjectKind) -> None:
    group = RESOURCES[Kind(kind.value)].path.split("/")[2]
    world.server.store_raw("podgroups", raw_object(kind, namespace="default"), group=group)


async def test_a_large_cluster_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.kube.listwatch.PAGE", 300)
    async with a_world() as world:
        put(world, *[f"p{i:04}" for i in range(700)])
        for i in range(100):
            world.server.store_raw("nodes", raw_node(f"n{i:03}"))
        await agree(world)
        assert world.follower.largest <= 256
        assert sample(world.telemetry, "flotilla_watch_listings_total", kind="pod") >= 1


async def test_wrong_credentials_are_retried() -> None:
    async with a_world(SimulatorOptions(kubelet=False, token="right"), token="right") as world:
        world.server.faults.fail("*", ".", 401, times=6, reason="Unauthorized")
        await until(lambda: any("401" in reason for reason in world.health.reasons()))
        put(world, "a")
        await agree(world)
        assert world.health.reasons() == []


async def test_watches_that_break_and_versions_that_expire_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.watch.FIRST_PATIENCE", 60.0)  # no second listing on a slow machine
    async with a_world() as world:
        put(world, "a", "b")
        await agree(world)
        asked = world.follower.relists
        world.server.close_watches()
        put(world, "c")
        await delete(world, "a")
        await agree(world)
        assert set(world.follower.told.values()) == {1}
        world.server.faults.fail("GET", "^/api/v1/pods", 503)
        world.server.close_watches()
        await delete(world, "b")
        put(world, "d")
        world.server.compact()
        await agree(world)
        assert world.follower.relists == asked


async def test_a_follower_that_missed_a_message_requests_a_listing() -> None:
    async with a_world() as world:
        put(world, "a", "b")
        await agree(world)
        world.follower.deaf = True
        await delete(world, "a")
        put(world, "c")
        await until(lambda: world.follower.missed)
        world.follower.deaf = False
        put(world, "d")
        await agree(world)
        assert world.follower.relists >= 2


async def test_a_late_follower_requests_a_listing() -> None:
    async with a_world() as world:
        put(world, "a")
        await agree(world)
        world.follower.reader = WatchReader("late")
        world.follower.world.clear()
        world.follower.carry_out(world.follower.reader.start(world.follower.now()))
        await agree(world)


async def test_followers_accept_the_new_watcher_and_refuse_the_old_one() -> None:
    async with a_world() as world:
        put(world, "a", "b")
        await agree(world)
        first = world.follower.reader.epoch
        await world.stop()
        await delete(world, "a")
        put(world, "c")
        world.start()
        await until(lambda: is_next(world.follower.reader.epoch, first))
        await agree(world)


async def test_an_unreadable_pod_is_reported_to_its_owner_once() -> None:
    async with a_world() as world:
        world.server.store_raw("nodes", raw_node("n"))
        await agree(world)
        bad = raw_pod("bad", cpu="much")
        put(
            world,
            "a",
            bad,
            raw_pod("other", cpu="much", schedulerName="theirs"),
            raw_pod("bound", node="n", cpu="much"),
        )
        put(world, "z")
        await until(lambda: world.server.stored("pods", "bad", "default")["status"].get("conditions"))
        await agree(world, "bad", "other")
        problem = "spec.containers[0].resources.requests.cpu: 'much' is not a quantity"
        condition = world.server.stored("pods", "bad", "default")["status"]["conditions"][0]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "SchedulerError",
        )
        assert condition["message"].startswith(problem)
        await until(lambda: len([one for one in world.follower.unreadable if one.name == "bad"]) >= 2)
        await until_events(world, 2)
        events = await events_of(world)
        assert sorted((e["type"], e["reason"], e["action"], e["regarding"]["name"]) for e in events) == [
            ("Warning", "FailedScheduling", "Scheduling", "bad"),
            ("Warning", "UnreadableForScheduler", "Scheduling", "bound"),
        ]
        assert all(e["note"].startswith(problem) for e in events)
        put(world, raw_pod("bad"))
        await agree(world, "other")


async def test_an_unreadable_node_is_reported_to_its_owner() -> None:
    async with a_world() as world:
        await agree(world)
        bad = raw_node("n")
        bad["status"]["allocatable"]["cpu"] = "much"
        world.server.store_raw("nodes", bad)
        await agree(world)
        await until_events(world, 1)
        (event,) = await events_of(world)
        assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Node", "n")
        assert (event["metadata"]["namespace"], event["reason"]) == ("default", "UnreadableForScheduler")
        assert event["note"].startswith("status.allocatable.cpu: 'much' is not a quantity")


async def test_a_failed_report_delays_no_other() -> None:
    async with a_world() as world:
        await agree(world)
        put(world, raw_pod("no name", cpu="much"), raw_pod("bad", cpu="much"))
        await until(lambda: world.server.stored("pods", "bad", "default")["status"].get("conditions"))


async def until_events(world: World, count: int) -> None:
    async with asyncio.timeout(10.0):
        while len(await events_of(world)) < count:
            await asyncio.sleep(0.02)


async def events_of(world: World) -> list[dict[str, Any]]:
    client = await KubeClient.open(ApiSettings(server=world.server.url))
    raw = await client.get("/apis/events.k8s.io/v1/events")
    await client.close()
    assert raw is not None
    found: list[dict[str, Any]] = msgspec.json.decode(raw)["items"]
    return found


@asynccontextmanager
async def listed_once(monkeypatch: pytest.MonkeyPatch, *pods: str) -> AsyncIterator[World]:
    """A world with these pods. However slow the machine is, no second listing is asked for."""
    monkeypatch.setattr("services.watcher.service.FOLLOWERS_PATIENCE", 60.0)
    monkeypatch.setattr("shared.watch.FIRST_PATIENCE", 60.0)
    async with a_world() as world:
        put(world, *pods)
        await until(lambda: world.follower.reader.epoch)
        assert not world.follower.reader.synced
        world.follower.bus.post("watcher.seen", WatchSeen("another", *world.follower.reader.position))
        await agree(world)
        yield world


async def test_the_first_listing_waits_for_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listed_once(monkeypatch, "a") as world:
        assert sample(world.telemetry, "flotilla_watch_listings_total", kind="pod") == 1


async def test_many_changes_arrive_in_order_exactly_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listed_once(monkeypatch) as world:
        for round_ in range(20):
            put(world, *[raw_pod(f"p{i}", priority=round_) for i in range(25)])
            if round_ % 7 == 3:
                world.server.close_watches()
            await asyncio.sleep(0)
        await agree(world)
        assert len(world.follower.told) == 500
        assert set(world.follower.told.values()) == {1}


async def test_changes_that_follow_another_share_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.watcher.service.PAUSE_PER_RATE", 10.0)
    monkeypatch.setattr("services.watcher.service.LONGEST_PAUSE", 0.3)
    async with listed_once(monkeypatch) as world:
        client = await KubeClient.open(ApiSettings(server=world.server.url))
        other = await client.stream("/api/v1/pods?watch=1", PATIENCE)
        world.follower.largest = 0
        for name in "abcdef":
            put(world, name)
            sent = b""
            while f'"name":"{name}"'.encode() not in sent:  # the server sends each change by itself
                sent = await other.read()
        await agree(world)
        assert world.follower.largest >= 4
        await client.close()


async def test_after_much_has_changed_reading_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.watcher.service.PAUSE_PER_RATE", 1000.0)
    monkeypatch.setattr("services.watcher.service.LONGEST_PAUSE", 1000.0)
    async with listed_once(monkeypatch) as world:
        large = raw_pod("large")
        large["metadata"]["annotations"] = {"much": "x" * 70_000}
        put(world, large)
        await agree(world)
        put(world, "b")
        await agree(world)


async def test_a_reused_term_is_left_for_a_later_one() -> None:
    """A Lease that was deleted begins its terms again, and those who follow would refuse the stream for good."""
    async with a_world() as world:
        put(world, "before")
        await agree(world)
        epoch, seq = world.follower.reader.position
        world.follower.bus.post("watcher.seen", WatchSeen("queue", epoch + 7, seq))
        with pytest.raises(BaseExceptionGroup) as ended:
            await world.ended()
        assert ended.group_contains(
            ClusterError, match="the Lease was deleted, or messages were forged; going on in a term above"
        )
        world.start()
        put(world, "after")
        await agree(world)
        assert world.follower.reader.position[0] > epoch + 7


async def test_reading_pauses_while_a_follower_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.watcher.flow_control.MAX_UNSEEN_BYTES", 4_000)
    monkeypatch.setattr("services.watcher.flow_control.SILENCE", 3600.0)
    async with a_world() as world:
        put(world, "before")
        await agree(world)
        world.follower.silent = True
        created = 0
        while waiting(world, created) < 20:
            assert created < 2000, "it says everything, whether anybody keeps up or not"
            put(world, f"p{created}")
            created += 1
            await asyncio.sleep(0.015)  # so that most are published in messages of their own
        world.follower.silent = False
        world.follower.say_how_far(WatchBeat(*world.follower.reader.position))
        await agree(world)
        assert sample(world.telemetry, "flotilla_watch_held_up_seconds_total") > 0


def waiting(world: World, created: int) -> int:
    """How many of these pods have not been published."""
    return created - sum((Kind.POD, f"p{number}") in world.follower.world for number in range(created))


async def test_an_old_state_from_the_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod is bound, another one is created, and a cache from before serves the watch and the lists for a while."""
    async with listed_once(monkeypatch) as world:
        world.server.store_raw("nodes", raw_node("n"))
        put(world, raw_pod("p"))
        await agree(world)
        past = world.server.cluster.store.version
        unbound = world.follower.world[Kind.POD, "p"]
        put(world, raw_pod("p", node="n"), raw_pod("q"))
        await agree(world)
        world.server.faults.show_past("/api/v1/pods", past, times=3)
        world.server.close_watches()
        await until(lambda: not world.server.faults)
        await agree(world)
        put(world, raw_pod("r"))
        await agree(world)
        assert world.follower.told["p", unbound] == 1, "it was told when it was so, and not again"
        assert sample(world.telemetry, "flotilla_watch_stale_total", kind="pod") == 3
        await until(lambda: not world.health.reasons())


async def test_the_watcher_logs_a_server_that_never_catches_up() -> None:
    async with a_world() as world:
        put(world, raw_pod("p"))
        await agree(world)
        past = world.server.cluster.store.version
        put(world, raw_pod("q"), raw_pod("r"))
        await agree(world)
        world.server.faults.show_past("/api/v1/pods", past, times=10**6)
        world.server.close_watches()
        await until(lambda: "restart Flotilla" in world.health.checks().get("pods", ""))
        assert (Kind.POD, "q") in world.follower.world


async def test_a_watcher_without_followers_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world() as world:
        await agree(world)
        await until(lambda: world.health.reasons() == [])
        world.follower.silent = True
        monkeypatch.setattr("shared.runtime.context.PATIENCE", 0.3)
        await until(lambda: any("no queue or snapshot follows" in each for each in world.health.reasons()))
        world.follower.silent = False
        monkeypatch.undo()
        await until(lambda: world.health.reasons() == [])


async def test_one_follower_fetches_all_pages_of_one_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.watcher.service.PAGE", 30)
    async with a_world() as world:
        put(world, *[f"p{i:03}" for i in range(70)])
        await agree(world)
        listings = sample(world.telemetry, "flotilla_watch_listings_total", kind="pod")
        pages: list[KindListed] = []
        while not pages or pages[-1].following:
            pages.append(await page_of(world, "pod", pages[-1].following if pages else ""))
            await delete(world, f"p{len(pages):03}")
        assert [len(page.changes) for page in pages] == [30, 30, 10]
        assert len({page.version for page in pages}) == 1
        names = [change.name for page in pages for change in page.changes if isinstance(change, PodChange)]
        assert sorted(names) == [f"p{i:03}" for i in range(70)]
        missing = await page_of(world, "deviceclass")
        assert not (missing.changes or missing.problem)
        assert (await page_of(world, "comet")).problem == "this watcher does not know the kind"
        assert sample(world.telemetry, "flotilla_watch_listings_total", kind="pod") == listings


async def test_a_listing_is_of_use_though_the_watch_shows_more_while_it_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    list_page = ListWatch.page

    async def late(listwatch: ListWatch, limit: int, following: str) -> Page:
        page = await list_page(listwatch, limit, following)
        put(world, "later")
        await until(lambda: (Kind.POD, "later") in world.follower.world)
        return page

    async with a_world() as world:
        put(world, "a")
        await agree(world)
        monkeypatch.setattr(ListWatch, "page", late)
        page = await page_of(world, "pod")
        assert (page.problem, [change.name for change in page.changes if isinstance(change, PodChange)]) == ("", ["a"])


async def page_of(world: World, kind: str, following: str = "") -> KindListed:
    request = ListKind(kind, following)
    return await world.follower.bus.request("watcher.list", request, KindListed, timeout=PATIENCE)


async def test_a_page_of_large_objects_is_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.watcher.service.HALF_A_MESSAGE", 2_000)
    async with a_world() as world:
        put(world, *[f"p{i:03}" for i in range(10)])
        await agree(world)
        page = await page_of(world, "pod")
        assert 1 <= len(page.changes) < 10 and page.following


async def test_alike_pods_are_told_so_while_every_follower_reads_that() -> None:
    async with a_world() as world:
        put(world, "before")
        await agree(world)
        world.follower.read_alike()
        world.follower.carry_out([Relist("follower", alike=True)])
        pods = [raw_pod(name, node="n") for name in "ab"]
        put(world, *pods)
        await until(lambda: world.follower.by_name == {"a": "n", "b": "n"})
        world.follower.bus.post("watcher.seen", WatchSeen("of the last release", *world.follower.reader.position))
        await a_page(world, alike=False)  # by now the watcher has heard it
        put(world, raw_pod("c", node="n"))
        await until(lambda: (Kind.POD, "c") in world.follower.world)
        assert "c" not in world.follower.by_name


async def test_a_page_has_alike_pods_for_who_reads_them() -> None:
    async with a_world() as world:
        put(world, *(raw_pod(name, node="n") for name in "ab"))
        await agree(world)
        for alike, types in ((True, [AlikePods]), (False, [PodChange, PodChange])):
            page = await a_page(world, alike=alike)
            assert [type(change) for change in page.changes] == types


async def a_page(world: World, *, alike: bool) -> KindListed:
    request = ListKind(Kind.POD.value, alike=alike)
    return await world.follower.bus.request("watcher.list", request, KindListed, timeout=PATIENCE)
