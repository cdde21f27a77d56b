"""Pods that matter more get room on full nodes: who makes way for them, how, and what becomes of those that wait."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from testing.builders import PodBuilder, node
from tests.pipeline.corner import Corner, a_corner
from tests.pipeline.following import disruption_of, following
from tests.pipeline.ownplugins import BY_HAND, own_plugins
from tests.pipeline.support import Object, a_cluster, until
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")

PRIORITIES = {"least": 1, "little": 2, "middle": 50, "much": 100}
PATIENT = "patient"
"""A high priority class whose pods never preempt."""
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
HELD_BACK = {"metadata": {"finalizers": ["a.example/not-yet"]}}
"""Keeps a pod from going: it is terminating until it is let go."""
LET_GO = {"metadata": {"finalizers": None}}
NO_ROOM = "0/{0} nodes are available: {0} Insufficient cpu."
NO_HELP = f"{NO_ROOM.format(1)} no new claims to deallocate, preemption: {NO_ROOM.format(1)}"
"""On the only node some could make way, but not for this pod."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pipeline]:
    with own_plugins(tmp_path_factory.mktemp("plugins")) as settings:
        async with Pipeline.running(PipelineOptions(settings=settings)) as running, a_cluster(running) as cluster:
            await cluster.create_priorities(**PRIORITIES)
            await cluster.create_at(PRIORITY_CLASSES, PATIENT, value=100, preemptionPolicy="Never")
            yield running


async def has_full_nodes(corner: Corner, cpus: int, on: Mapping[str, Mapping[str, tuple[str, int]]]) -> None:
    """Each node with its pods: their name, how much they matter, and how many CPUs they take."""
    await corner.has_nodes(*(node(name).capacity(cpu=cpus, memory="64Gi") for name in on))
    for name, pods in on.items():
        for each, (importance, taken) in pods.items():
            await create(corner, corner.pod(each).request(cpu=taken).on(name), importance)
    await corner.knows(pods=sum(map(len, on.values())))


async def create(corner: Corner, made: PodBuilder, importance: str) -> None:
    await corner.cluster.create(made, priorityClassName=importance)


async def nominated(corner: Corner, name: str) -> str:
    return str((await corner.cluster.pod(corner.namespace, name))["status"].get("nominatedNodeName", ""))


async def is_nominated(corner: Corner, name: str, to: str) -> None:
    async def told() -> bool:
        return await nominated(corner, name) == to

    await until(told, f"{name} is not nominated to {to or 'nothing'}")


async def terminates(corner: Corner, name: str) -> Object:
    """Waits until it was told to go."""

    async def told() -> bool:
        return "deletionTimestamp" in (await corner.cluster.pod(corner.namespace, name))["metadata"]

    await until(told, f"{name} does not terminate")
    return await corner.cluster.pod(corner.namespace, name)


@asynccontextmanager
async def slow_to_go(corner: Corner, name: str) -> AsyncIterator[None]:
    """The pod goes once it is let go, and after this at the latest."""
    await corner.cluster.change_pod(corner.namespace, name, HELD_BACK)
    try:
        yield
    finally:
        if await corner.cluster.exists(f"/api/v1/namespaces/{corner.namespace}/pods/{name}"):
            await let_go(corner, name)


async def let_go(corner: Corner, name: str) -> None:
    await corner.cluster.change_pod(corner.namespace, name, LET_GO)


# Who makes way


async def test_the_least_important_pod_makes_way_and_reads_why(pipeline: Pipeline) -> None:
    fillers = {"a": "little", "b": "least", "c": "little"}
    async with a_corner(pipeline, "full") as corner, following(corner.cluster, corner.namespace) as seen:
        await has_full_nodes(corner, 2, {on: {f"small-{on}": (fillers[on], 2)} for on in fillers})
        await create(corner, corner.pod("urgent").request(cpu=1), "much")
        await corner.lands("urgent", "b")
        urgent = await corner.cluster.pod("full", "urgent")
        await corner.is_said("urgent", "FailedScheduling", NO_ROOM.format(3))
        await corner.is_said("small-b", "Preempted", f"Preempted by pod {urgent['metadata']['uid']} on node b")
        assert [*seen.gone] == ["small-b"]
        why = seen.disruption_of("small-b")
        assert (why["status"], why["reason"]) == ("True", "PreemptionByScheduler")
        assert why["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
        assert seen.gone["small-b"]["metadata"]["deletionTimestamp"]
        assert seen.nominated["urgent"] == ["b"]
        await corner.knows(nominated_pods=0)


async def test_no_more_pods_make_way_than_must(pipeline: Pipeline) -> None:
    """Two small ones would have to on one node, or one large one on the other."""
    async with a_corner(pipeline, "few") as corner, following(corner.cluster, corner.namespace) as seen:
        small = {f"a{i}": ("least", 1) for i in range(4)}
        await has_full_nodes(corner, 4, {"a": small, "b": {"b0": ("least", 2), "b1": ("least", 2)}})
        for name, on, gone in (("first", "b", 1), ("second", "b", 2), ("third", "a", 4)):
            await create(corner, corner.pod(name).request(cpu=2), "much")
            await corner.lands(name, on)
            assert len(seen.gone) == gone, f"for {name}: {[*seen.gone]}"


async def test_a_budget_protects_who_matters_less(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "budget") as corner, following(corner.cluster, corner.namespace) as seen:
        budgets = "/apis/policy/v1/namespaces/budget/poddisruptionbudgets"
        guarded = {"selector": {"matchLabels": {"app": "guarded"}}, "minAvailable": 1}
        await corner.cluster.create_at(budgets, "guard", spec=guarded, status={"disruptionsAllowed": 0})
        await corner.has_nodes(*(node(name).capacity(cpu=2, memory="4Gi") for name in "ab"))
        await create(corner, corner.pod("guarded").label(app="guarded").request(cpu=2).on("a"), "least")
        await create(corner, corner.pod("other").request(cpu=2).on("b"), "middle")
        await corner.knows(pods=2)
        await create(corner, corner.pod("urgent").request(cpu=2), "much")
        await corner.lands("urgent", "b")
        assert [*seen.gone] == ["other"]


async def test_several_pods_each_get_a_node_of_their_own(pipeline: Pipeline) -> None:
    nodes = [f"n{i}" for i in range(10)]
    async with a_corner(pipeline, "several") as corner, following(corner.cluster, corner.namespace) as seen:
        await has_full_nodes(corner, 2, {on: {f"{on}-{i}": ("least", 1) for i in range(2)} for on in nodes})
        names = [f"urgent-{i}" for i in range(8)]
        for name in names:
            await create(corner, corner.pod(name).request(cpu=2), "much")
        places = {name: await corner.lands(name) for name in names}
        assert len(set(places.values())) == 8
        assert {*seen.gone} == {f"{on}-{i}" for on in places.values() for i in range(2)}
        assert {name: seen.nominated[name] for name in names} == {name: [on] for name, on in places.items()}
        await corner.knows(nominated_pods=0)


# Gangs


async def test_a_gang_gets_all_its_room_or_nobody_goes(pipeline: Pipeline) -> None:
    """Three members are too many for the nodes, whoever goes. Two are not, and wait together for the last victim."""
    groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/gang/podgroups"
    async with a_corner(pipeline, "gang") as corner, following(corner.cluster, corner.namespace) as seen:
        await has_full_nodes(corner, 3, {on: {f"{on}-{i}": ("least", 1) for i in range(3)} for on in "ab"})
        for group, least in (("large", 3), ("train", 2)):
            await corner.cluster.create_at(groups, group, spec={"schedulingPolicy": {"gang": {"minCount": least}}})
            spec = {"priorityClassName": "much", "schedulingGroup": {"podGroupName": group}}
            await corner.cluster.create(*(corner.pod(f"{group}-{i}").request(cpu=2) for i in range(least)), **spec)
            if group == "large":
                why = "preemption: no pods of lower priority make enough room for 3 members of the pod group"
                await corner.is_unschedulable("large-0", f"{NO_ROOM.format(2)} {why}")
                assert not seen.gone
        places = [await corner.lands(f"train-{i}") for i in range(2)]
        assert sorted(places) == ["a", "b"]
        assert len(seen.gone) == 4
        assert {on: sum(name.startswith(on) for name in seen.gone) for on in "ab"} == {"a": 2, "b": 2}
        assert [seen.nominated[f"train-{i}"] for i in range(2)] == [[place] for place in places]
        corner.left = {f"large-{i}" for i in range(3)}


# Who does not


async def test_a_pod_that_is_not_to_preempt_waits_and_says_so(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "never") as corner, following(corner.cluster, corner.namespace) as seen:
        await has_full_nodes(corner, 2, {"a": {"small": ("least", 2)}})
        await create(corner, corner.pod("patient").request(cpu=1), PATIENT)
        why = "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."
        await corner.is_unschedulable("patient", f"{NO_ROOM.format(1)} {why}")
        assert await nominated(corner, "patient") == ""
        await corner.cluster.delete_pod("never", "small")
        await corner.lands("patient", "a")
        assert not seen.disruption_of("small")


async def test_no_pod_of_equal_priority_is_evicted(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "equals") as corner, following(corner.cluster, corner.namespace) as seen:
        await has_full_nodes(corner, 2, {"a": {"first": ("much", 2)}})
        await create(corner, corner.pod("second").request(cpu=1), "much")
        none = "0/1 nodes are available: 1 No preemption victims found for incoming pod."
        await corner.is_unschedulable("second", f"{NO_ROOM.format(1)} no new claims to deallocate, preemption: {none}")
        assert seen.gone == {}
        corner.left = {"second"}


# Room that is kept


async def test_room_that_others_made_is_kept_until_all_have_gone(pipeline: Pipeline) -> None:
    """One victim goes at once, the other one late. Meanwhile a pod comes that needs half of the room."""
    async with a_corner(pipeline, "kept") as corner, following(corner.cluster, corner.namespace) as seen:
        await has_full_nodes(corner, 2, {"a": {"quick": ("least", 1), "slow": ("least", 1)}})
        async with slow_to_go(corner, "slow"):
            await create(corner, corner.pod("urgent").request(cpu=2), "much")
            slow = await terminates(corner, "slow")
            assert disruption_of(slow)["reason"] == "PreemptionByScheduler"
            await is_nominated(corner, "urgent", "a")

            async def quick_is_gone() -> bool:
                return "quick" in seen.gone

            await until(quick_is_gone, "no victim has gone")
            await create(corner, corner.pod("modest").request(cpu=1), "little")
            await corner.is_unschedulable("modest", NO_HELP)
            assert await nominated(corner, "urgent") == "a"
        await corner.lands("urgent", "a")
        assert await corner.node_of("modest") == ""
        corner.left = {"modest"}


async def test_a_nomination_ends_with_its_pod(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "ended") as corner:
        await has_full_nodes(corner, 2, {"a": {"slow": ("least", 2)}})
        async with slow_to_go(corner, "slow"):
            await create(corner, corner.pod("urgent").request(cpu=2), "much")
            await is_nominated(corner, "urgent", "a")
            await create(corner, corner.pod("modest").request(cpu=1), "little")
            await corner.is_unschedulable("modest", NO_HELP)
            await corner.cluster.delete_pod("ended", "urgent")
        await corner.lands("modest", "a")
        await corner.knows(nominated_pods=0)


async def test_a_pod_that_matters_more_takes_the_room_over(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "over") as corner, following(corner.cluster, corner.namespace) as seen:
        await has_full_nodes(corner, 2, {"a": {"slow": ("least", 1), "other": ("little", 1)}})
        async with slow_to_go(corner, "slow"):
            await create(corner, corner.pod("middle").request(cpu=1), "middle")
            await is_nominated(corner, "middle", "a")
            await terminates(corner, "slow")
            await create(corner, corner.pod("urgent").request(cpu=2), "much")
            await is_nominated(corner, "urgent", "a")
            await is_nominated(corner, "middle", "")
        await corner.lands("urgent", "a")
        assert {*seen.gone} == {"slow", "other"}
        assert await corner.node_of("middle") == ""
        corner.left = {"middle"}


# Pods that are not bound yet


async def test_a_pod_that_waits_for_a_permit_makes_way_and_lives_on(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "permits") as corner, following(corner.cluster, corner.namespace) as seen:
        await corner.has_nodes(node("a").capacity(cpu=2, memory="4Gi"))
        await create(corner, corner.pod("waits").label(BY_HAND).request(cpu=2), "least")
        await corner.knows(assumed_pods=1)
        await create(corner, corner.pod("urgent").request(cpu=2), "much")
        await corner.lands("urgent", "a")
        waits = await corner.cluster.pod("permits", "waits")
        assert seen.gone == {}
        assert await corner.node_of("waits") == ""
        assert not disruption_of(waits)
        urgent = await corner.cluster.pod("permits", "urgent")
        by = f"Preempted by pod {urgent['metadata']['uid']} on node a (in kube-scheduler memory)."
        await corner.is_said("waits", "Preempted", by)
        corner.left = {"waits"}
