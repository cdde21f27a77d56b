"""Pod groups of whichever version the server has, and what becomes of the watch when it has another one."""

import re

import pytest

from services.watcher.resources import RESOURCES
from shared.messages.watch import Kind
from shared.model.objects import ObjectKind, PodGroup
from tests.bus.support import sample
from tests.kube.support import until
from tests.watcher.support import World, a_world

GROUP = "scheduling.k8s.io"
V1_36, V1_37 = ("v1", "v1alpha2"), ("v1", "v1beta1", "v1alpha3")
OLD_MODE: object = "PodGroup"
NEW_MODE: object = {"all": {}}


def put(world: World, name: str, mode: object) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": mode, "priority": 4}
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    world.server.store_raw("podgroups", body, group=GROUP)


def known(world: World) -> dict[str, tuple[int, bool, int | None]]:
    objects = world.follower.objects.items()
    return {
        key: (obj.least, obj.is_evicted_whole, obj.priority)
        for (kind, key), obj in objects
        if kind is ObjectKind.POD_GROUP and isinstance(obj, PodGroup)
    }


def restart_as(world: World, versions: tuple[str, ...]) -> None:
    world.server.serve(GROUP, *versions)
    world.server.close_watches()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("versions", "mode"),
    [(V1_36, OLD_MODE), (V1_37, NEW_MODE), (("v1alpha3",), NEW_MODE)],
    ids=["v1.36", "v1.37", "v1alpha3"],
)
async def test_groups_of_every_version_are_read(versions: tuple[str, ...], mode: object) -> None:
    async with a_world() as world:
        world.server.serve(GROUP, *versions)
        put(world, "g", mode)
        await until(lambda: known(world) == {"default/g": (2, True, 4)})
        await until(lambda: world.health.reasons() == [])


@pytest.mark.asyncio
async def test_a_version_that_vanishes_gives_way_to_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    async with a_world() as world:
        put(world, "old", OLD_MODE)
        await until(lambda: set(known(world)) == {"default/old"})
        restart_as(world, V1_37)
        put(world, "new", NEW_MODE)
        await until(lambda: set(known(world)) == {"default/old", "default/new"})
        restart_as(world, V1_36)
        put(world, "newest", OLD_MODE)
        await until(lambda: "default/newest" in known(world))
        assert not [record for record in caplog.records if re.search(r"\b404\b", record.getMessage())]
        assert sample(world.telemetry, "flotilla_watch_listings_total", kind="podgroup") == 1.0


def test_the_newest_version_is_asked_for_first() -> None:
    groups = RESOURCES[Kind.POD_GROUP]
    assert [path.split("/")[3] for path in (groups.path, *groups.older_paths)] == ["v1beta1", "v1alpha3", "v1alpha2"]
