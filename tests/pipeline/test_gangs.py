"""Gangs, through a whole pipeline: all members of a gang are bound, or none is."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import NamedTuple

import pytest
import pytest_asyncio

from testing.builders import PodBuilder, node
from tests.pipeline.corner import Corner, a_corner, condition_of
from tests.pipeline.support import Object, until, value_of
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Api(NamedTuple):
    """One of the two ways to say what belongs together."""

    name: str
    folder: str
    spec: Callable[[int], Object]
    """A member of a group with this minimum."""
    label: str | None
    """By which pods name their group; none: by a field."""


KUBERNETES = Api(
    "kubernetes",
    "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups",
    lambda least: {"schedulingPolicy": {"gang": {"minCount": least}}},
    None,
)
COSCHEDULING = Api(
    "coscheduling",
    "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups",
    lambda least: {"minMember": least, "scheduleTimeoutSeconds": 1},
    "scheduling.x-k8s.io/pod-group",
)
BOTH = pytest.mark.parametrize("api", [KUBERNETES, COSCHEDULING], ids=lambda api: api.name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline() -> AsyncIterator[Pipeline]:
    async with Pipeline.running(PipelineOptions()) as running:
        yield running


class Gangs:
    """The groups of a corner and their members: those of `web` are called web-0, web-1 and so on."""

    def __init__(self, corner: Corner, api: Api) -> None:
        self._corner = corner
        self._api = api

    async def found(self, group: str, least: int) -> None:
        folder = self._api.folder.format(self._corner.namespace)
        await self._corner.cluster.create_at(folder, group, spec=self._api.spec(least))

    async def join(self, group: str, count: int, *, first: int = 0, cpu: int = 1) -> None:
        for i in range(first, first + count):
            made = self._corner.pod(f"{group}-{i}").request(cpu=cpu)
            await self._create(made, group)

    async def nodes_of(self, group: str) -> list[str]:
        """Of its members that are bound."""
        listed = await self._corner.cluster.get(f"/api/v1/namespaces/{self._corner.namespace}/pods")
        members = (each for each in listed["items"] if each["metadata"]["name"].startswith(f"{group}-"))
        return [each["spec"]["nodeName"] for each in members if each["spec"].get("nodeName")]

    async def lands(self, group: str, count: int) -> None:
        """All of its members are bound."""

        async def is_bound() -> bool:
            return len(await self.nodes_of(group)) == count

        await until(is_bound, f"not all {count} of {group} are bound")

    async def leave(self, group: str, count: int) -> None:
        for i in range(count):
            await self._corner.cluster.delete_pod(self._corner.namespace, f"{group}-{i}")

    async def _create(self, made: PodBuilder, group: str) -> None:
        if self._api.label is None:
            await self._corner.cluster.create(made, schedulingGroup={"podGroupName": group})
        else:
            await self._corner.cluster.create(made.label({self._api.label: group}))


async def queued(pipeline: Pipeline, place: str, count: int) -> bool:
    answer = await pipeline.ask("queue", "/metrics")
    return answer is not None and value_of(answer.body, "scheduler_pending_pods", queue=place) == count


@BOTH
async def test_members_wait_until_enough_have_come(api: Api, pipeline: Pipeline) -> None:
    """First the group is unknown, then it has too few members; later members are decided alone."""
    async with a_corner(pipeline, f"few-{api.name}") as corner:
        gangs = Gangs(corner, api)
        await corner.has_nodes(*(node(name).capacity(cpu=2, memory="8Gi") for name in "ab"))
        await gangs.join("web", 2)
        await until(lambda: queued(pipeline, "gated", 2), "they do not wait for their group")
        await gangs.found("web", 3)
        await corner.cluster.create(corner.pod("other"))
        await corner.lands("other")
        assert await gangs.nodes_of("web") == []
        if api is COSCHEDULING:
            await is_told(corner, "web-0", "2 of its pods exist, and at least 3 are needed")
        await gangs.join("web", 1, first=2)
        await gangs.lands("web", 3)
        await gangs.join("web", 1, first=3)
        await gangs.lands("web", 4)


async def is_told(corner: Corner, name: str, what: str) -> None:
    async def told() -> bool:
        condition = condition_of(await corner.cluster.pod(corner.namespace, name), "Unschedulable")
        events = await corner.cluster.events_of(corner.namespace, name, "FailedScheduling")
        return condition.endswith(what) and any(note.endswith(what) for note in events)

    await until(told, f"{name} is not told: {what}")


@BOTH
async def test_of_two_gangs_that_fit_one_at_a_time_one_waits_for_the_other(api: Api, pipeline: Pipeline) -> None:
    async with a_corner(pipeline, f"rivals-{api.name}") as corner:
        gangs = Gangs(corner, api)
        await corner.has_nodes(*(node(name).capacity(cpu=2, memory="8Gi") for name in "abc"))
        for group in ("one", "two"):
            await gangs.found(group, 4)
        for i in range(4):
            for group in ("one", "two"):
                await gangs.join(group, 1, first=i)
        await until(lambda: queued(pipeline, "unschedulable", 4), "no gang waits")
        bound = {group: len(await gangs.nodes_of(group)) for group in ("one", "two")}
        assert sorted(bound.values()) == [0, 4]
        first, second = sorted(bound, key=bound.__getitem__, reverse=True)
        await gangs.leave(first, 4)
        await gangs.lands(second, 4)


async def test_many_gangs_are_placed_as_room_comes_and_never_in_part(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "many") as corner:
        gangs = Gangs(corner, COSCHEDULING)
        await corner.has_nodes(*(node(f"n{i}").capacity(cpu=4, memory="8Gi") for i in range(4)))
        waiting = {f"gang{i}" for i in range(6)}
        for group in sorted(waiting):
            await gangs.found(group, 5)
            await gangs.join(group, 5)
        bound: dict[str, int] = {}

        async def others_rest(resting: int) -> bool:
            bound.clear()
            bound.update({group: len(await gangs.nodes_of(group)) for group in waiting})
            is_whole = sorted(bound.values()) == [0] * resting + [5] * (len(waiting) - resting)
            return is_whole and await queued(pipeline, "unschedulable", 5 * resting)

        for resting in (3, 2, 1, 0):
            await until(partial(others_rest, resting), "not as many gangs are placed as fit")
            placed = max(bound, key=bound.__getitem__)
            await gangs.leave(placed, 5)
            waiting.remove(placed)


async def test_a_gang_that_grows_or_loses_a_member_stays_in_its_rack(pipeline: Pipeline) -> None:
    """Two of four members fit beyond the minimum where the first ones are, and a replacement goes there as well."""
    async with a_corner(pipeline, "elastic") as corner:
        gangs = Gangs(corner, KUBERNETES)
        racks = {name: f"rack-{name[0]}" for name in ("a1", "a2", "b1", "b2")}
        await corner.has_nodes(
            *(node(name).label(rack=rack).capacity(cpu=2, memory="8Gi") for name, rack in racks.items())
        )
        spec = KUBERNETES.spec(2) | {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
        await corner.cluster.create_at(KUBERNETES.folder.format(corner.namespace), "web", spec=spec)
        await gangs.join("web", 2)
        await gangs.lands("web", 2)
        (rack,) = {racks[name] for name in await gangs.nodes_of("web")}
        await gangs.join("web", 3, first=2)
        await gangs.lands("web", 4)
        await until(lambda: queued(pipeline, "unschedulable", 1), "the fifth member does not wait")
        await gangs.leave("web", 1)
        await gangs.lands("web", 4)
        assert {racks[name] for name in await gangs.nodes_of("web")} == {rack}
