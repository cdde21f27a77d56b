"""Claims, slices and classes of devices: from whichever version of resource.k8s.io the server has."""

import re
from typing import Any

import pytest

from services.watcher.resources import RESOURCES
from shared.messages.watch import Kind
from shared.model.objects import ClusterObject, ObjectKind, key_of
from tests.bus.support import sample
from tests.kube.support import until
from tests.samples import Raw, an_object, raw_object
from tests.watcher.support import World, a_world

pytestmark = pytest.mark.asyncio

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")
KINDS = (ObjectKind.RESOURCE_CLAIM, ObjectKind.RESOURCE_SLICE, ObjectKind.DEVICE_CLASS)
LATER: Any = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def shaped(kind: ObjectKind, version: str, **metadata: Any) -> Raw:
    """As that version of the API has it."""
    raw = raw_object(kind, **metadata)
    if kind is ObjectKind.RESOURCE_CLAIM:
        raw["metadata"]["namespace"] = "default"
    if version == "v1beta1" and kind is ObjectKind.RESOURCE_CLAIM:
        (request,) = raw["spec"]["devices"]["requests"]
        request |= request.pop("exactly")
    elif version == "v1beta1" and kind is ObjectKind.RESOURCE_SLICE:
        raw["spec"]["devices"] = [{"name": device.pop("name"), "basic": device} for device in raw["spec"]["devices"]]
    return raw


def store(world: World, version: str, **metadata: Any) -> None:
    for kind in KINDS:
        plural = RESOURCES[Kind(kind.value)].plural
        world.server.store_raw(plural, shaped(kind, version, **metadata), group=GROUP)


def expected(**metadata: Any) -> dict[tuple[ObjectKind, str], ClusterObject]:
    objects = [an_object(kind, **metadata) for kind in KINDS]
    return {(kind, key_of(obj)): obj for kind, obj in zip(KINDS, objects, strict=True)}


async def comes_to_know(world: World, objects: dict[tuple[ObjectKind, str], ClusterObject]) -> None:
    def known() -> dict[tuple[ObjectKind, str], ClusterObject]:
        return {slot: obj for slot, obj in world.follower.objects.items() if slot[0] in KINDS}

    try:
        await until(lambda: world.follower.reader.synced and known() == objects)
    except TimeoutError:
        assert known() == objects
        raise


def serve(world: World, *versions: str) -> None:
    """As a server that is started again as another release."""
    world.server.serve(GROUP, *versions)
    world.server.close_watches()


def counted(world: World, what: str) -> float:
    return sum(sample(world.telemetry, f"flotilla_watch_{what}_total", kind=kind.value) or 0.0 for kind in KINDS)


@pytest.mark.parametrize("version", VERSIONS)
async def test_devices_read_the_same_in_every_api_version(version: str) -> None:
    async with a_world() as world:
        world.server.serve(GROUP, version)
        store(world, version)
        await comes_to_know(world, expected())
        assert counted(world, "troubles") == 0.0
        store(world, version, **LATER)
        await comes_to_know(world, expected(**LATER))
        assert world.health.reasons() == []


async def test_without_the_api_group_the_kind_counts_as_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.watcher.service.MISSING_PAUSE", 0.1)
    async with a_world() as world:
        store(world, "v1")
        serve(world)
        await until(lambda: counted(world, "troubles") >= 2 * len(KINDS))
        await comes_to_know(world, {})
        assert world.health.reasons() == []
        world.server.serve(GROUP, "v1beta1")
        await comes_to_know(world, expected())


async def test_the_watch_resumes_after_the_server_is_upgraded_or_downgraded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with a_world() as world:
        world.server.serve(GROUP, "v1beta1")
        store(world, "v1beta1")
        await comes_to_know(world, expected())
        listed = counted(world, "listings")
        for generation, version in enumerate(("v1beta2", "v1", "v1beta1"), start=4):
            later = {"generation": generation, "deletionTimestamp": f"2026-01-0{generation}T00:00:00Z"}
            serve(world, version)
            store(world, version, **later)
            await comes_to_know(world, expected(**later))
        assert counted(world, "listings") == listed
        assert not [record for record in caplog.records if re.search(r"\b404\b", record.getMessage())]
