"""Pods of users, scheduled by a whole pipeline: where they land, what owners are told, what helps those that wait."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.model.workloads import GROUP_LABEL
from testing.builders import NodeBuilder, expr, node
from tests.pipeline.corner import a_corner, condition_of, unfit, waiting
from tests.pipeline.support import Object, until, value_of
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline() -> AsyncIterator[Pipeline]:
    async with Pipeline.running(PipelineOptions()) as running:
        yield running


def small(name: str) -> NodeBuilder:
    return node(name).capacity(cpu=2, memory="4Gi")


def room_for(pods: int) -> Object:
    amounts = {"cpu": "2", "memory": "4Gi", "pods": str(pods)}
    return {"status": {"capacity": amounts, "allocatable": amounts}}


# Resources


async def test_a_pod_that_does_not_fit_waits_for_a_node_on_which_it_does(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "resources") as corner:
        await corner.has_nodes(small("a"), small("b"))
        await corner.cluster.create(corner.pod("big").request(cpu=3, memory="6Gi"))
        await corner.is_unschedulable("big", unfit(2, "2 Insufficient cpu, 2 Insufficient memory"))
        await corner.cluster.create(node("large").capacity(cpu=4, memory="8Gi"))
        await corner.lands("big", "large")
        await corner.is_said("big", "Scheduled", "Successfully assigned resources/big to large")


async def test_a_pod_on_a_node_counts_however_large_it_is(pipeline: Pipeline) -> None:
    """Larger than a message of the watcher may be, by what is read of pods."""
    async with a_corner(pipeline, "large") as corner:
        await corner.has_nodes(small("a"))
        image = "registry.example.com/" + "i" * 2000
        many = [{"name": f"c{i}", "image": image} for i in range(400)]
        many[0]["resources"] = {"requests": {"cpu": "1500m"}}  # type: ignore[assignment]
        await corner.cluster.create(corner.pod("huge"), nodeName="a", containers=many)
        await corner.knows(nodes=1, pods=1)
        await corner.cluster.create(corner.pod("second").request(cpu=1))
        await corner.is_unschedulable("second", unfit(1, "1 Insufficient cpu", victimless=1))
        await corner.cluster.delete_pod("large", "huge")
        await corner.lands("second", "a")


async def test_a_pod_that_is_deleted_frees_its_room(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "room") as corner:
        await corner.has_nodes(small("a"))
        await corner.cluster.create(corner.pod("first").request(cpu=2))
        await corner.lands("first", "a")
        await corner.cluster.create(corner.pod("second").request(cpu=1))
        await corner.is_unschedulable("second", unfit(1, "1 Insufficient cpu", victimless=1))
        await corner.cluster.delete_pod("room", "first")
        await corner.lands("second", "a")


async def test_a_node_that_grows_has_room(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "growth") as corner:
        await corner.has_nodes(small("a").capacity(pods=1))
        await corner.cluster.create(corner.pod("first"))
        await corner.lands("first", "a")
        await corner.cluster.create(corner.pod("second"))
        await corner.is_unschedulable("second", unfit(1, "1 Too many pods", victimless=1))
        await corner.cluster.change_node("a", room_for(2), "status")
        await corner.lands("second", "a")


async def test_extended_resources_are_counted_one_by_one(pipeline: Pipeline) -> None:
    gpu = {"example.com/gpu": 1}
    async with a_corner(pipeline, "gpus") as corner:
        await corner.has_nodes(small("plain"), small("gpus").capacity({"example.com/gpu": 2}))
        names = [f"p{i}" for i in range(3)]
        await corner.cluster.create(*(corner.pod(name).request(gpu).limit(gpu) for name in names[:2]))
        for name in names[:2]:
            await corner.lands(name, "gpus")
        await corner.cluster.create(corner.pod(names[2]).request(gpu).limit(gpu))
        await corner.is_unschedulable(names[2], unfit(2, "2 Insufficient example.com/gpu", victimless=1))
        corner.left = {names[2]}


async def test_balanced_use_is_preferred(pipeline: Pipeline) -> None:
    """Both nodes are equally full on the whole; on one of them the pod evens out what is used."""
    async with a_corner(pipeline, "balance") as corner:
        nodes = {"cpu-used": (8, "2Gi"), "memory-used": (2, "8Gi")}
        for name, (cpu, memory) in nodes.items():
            busy = corner.pod(f"on-{name}").request(cpu=cpu, memory=memory).on(name)
            await corner.cluster.create(node(name).capacity(cpu=10, memory="10Gi"), busy)
        await corner.knows(nodes=2, pods=2)
        await corner.cluster.create(corner.pod("p").request(cpu=2, memory="100Mi"))
        await corner.lands("p", "memory-used")


# Which nodes a pod may be on


async def test_a_pod_that_was_made_for_a_node_takes_its_room(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "made-for") as corner:
        await corner.cluster.create(
            small("a"), corner.pod("fixed").request(cpu=2).on("a"), corner.pod("p").request(cpu=1)
        )
        await corner.is_unschedulable("p", unfit(1, "1 Insufficient cpu", victimless=1))
        assert await corner.cluster.events_of("made-for", "fixed", "Scheduled") == []
        corner.left = {"p"}


async def test_a_host_port_is_taken_once_a_node(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "ports") as corner:
        await corner.has_nodes(small("a"), small("b"))
        await corner.cluster.create(*(corner.pod(f"p{i}").host_port(8080) for i in range(2)))
        assert {await corner.lands("p0"), await corner.lands("p1")} == {"a", "b"}
        await corner.cluster.create(corner.pod("other").host_port(8081), corner.pod("p2").host_port(8080))
        await corner.lands("other")
        reason = "node(s) didn't have free ports for the requested pod ports"
        await corner.is_unschedulable("p2", unfit(2, f"2 {reason}", victimless=2))
        freed = await corner.node_of("p0")
        await corner.cluster.delete_pod("ports", "p0")
        await corner.lands("p2", freed)


async def test_selectors_and_affinity_choose_nodes(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "affinity") as corner:
        await corner.has_nodes(*(small(zone).label(zone=zone) for zone in "abc"))
        await corner.cluster.create(
            corner.pod("selects").node_selector(zone="b"),
            corner.pod("requires").require_node(expr("zone", "NotIn", "a", "b")),
            corner.pod("prefers").prefer_node(100, expr("zone", "In", "a")),
            corner.pod("nowhere").node_selector(zone="d"),
        )
        await corner.lands("selects", "b")
        await corner.lands("requires", "c")
        await corner.lands("prefers", "a")
        reason = "node(s) didn't match Pod's node affinity/selector"
        await corner.is_unschedulable("nowhere", unfit(3, f"3 {reason}"))
        await corner.cluster.change_node("c", {"metadata": {"labels": {"zone": "d"}}})
        await corner.lands("nowhere", "c")


async def test_taints_repel_until_they_go(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "taints") as corner:
        await corner.has_nodes(small("a").taint("dedicated", "batch"), small("b").taint("bad", effect="NoExecute"))
        await corner.cluster.create(corner.pod("tolerates").tolerate("dedicated", "batch"), corner.pod("p"))
        await corner.lands("tolerates", "a")
        await corner.is_unschedulable("p", unfit(2, "2 node(s) had untolerated taint(s)"))
        await corner.cluster.change_node("b", {"spec": {"taints": None}})
        await corner.lands("p", "b")


async def test_a_soft_taint_repels_only_where_there_is_a_choice(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "soft-taints") as corner:
        await corner.has_nodes(small("a").taint("old", effect="PreferNoSchedule"), small("b"))
        await corner.cluster.create(corner.pod("p").request(cpu=2))
        await corner.lands("p", "b")
        await corner.cluster.create(corner.pod("q").request(cpu=2))
        await corner.lands("q", "a")


async def test_a_cordoned_node_is_left_alone(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "cordon") as corner:
        await corner.has_nodes(small("a").unschedulable())
        await corner.cluster.create(corner.pod("p"))
        await corner.is_unschedulable("p", unfit(1, "1 node(s) were unschedulable"))
        await corner.cluster.change_node("a", {"spec": {"unschedulable": None}})
        await corner.lands("p", "a")


async def test_images_attract(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "images") as corner:
        await corner.has_nodes(small("a"), small("b").image("big:1", 900 * MIB), small("c"))
        await corner.cluster.create(*(corner.pod(f"p{i}").container("big", image="big:1") for i in range(2)))
        await corner.lands("p0", "b")


async def test_without_a_node_that_is_said(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "no-nodes") as corner:
        await corner.cluster.create(corner.pod("p"))
        await corner.is_unschedulable("p", "no nodes available to schedule pods")
        await corner.has_nodes(small("a"))
        await corner.lands("p", "a")


# The queue


async def test_under_scarcity_the_more_important_pods_are_first(pipeline: Pipeline) -> None:
    """All three are queued at once, when the group exists that they name: no pod backs off meanwhile."""
    async with a_corner(pipeline, "priority") as corner:
        await corner.cluster.create_priorities(low=1, middle=10, high=100)
        await corner.has_nodes(small("a"))
        for name in ("low", "high", "middle"):
            waiting_pod = corner.pod(name).request(cpu=2).label({GROUP_LABEL: "all"})
            await corner.cluster.create(waiting_pod, priorityClassName=name)
        await until(lambda: gated(pipeline, 3), "not all pods are gated")
        await corner.cluster.create_at(GROUPS.format("priority"), "all", spec={"minMember": 1})
        await corner.lands("high", "a")
        for name in ("middle", "low"):
            await corner.is_unschedulable(name, unfit(1, "1 Insufficient cpu", victimless=1))
        await corner.cluster.create(small("b"), small("c"))
        for name in ("middle", "low"):
            await corner.lands(name, "b", "c")


async def gated(pipeline: Pipeline, count: int) -> bool:
    answer = await pipeline.ask("queue", "/metrics")
    return answer is not None and value_of(answer.body, "scheduler_pending_pods", queue="gated") == count


async def test_a_gated_pod_waits_for_its_gates(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "gates") as corner:
        await corner.has_nodes(small("a"))
        await corner.cluster.create(corner.pod("gated").gate("a.example/x").gate("a.example/y"))
        await corner.cluster.create(corner.pod("after"))
        await corner.lands("after", "a")
        assert condition_of(await corner.cluster.pod("gates", "gated"), "SchedulingGated")
        await corner.cluster.change_pod("gates", "gated", {"spec": {"schedulingGates": [{"name": "a.example/y"}]}})
        await corner.cluster.create(corner.pod("later"))
        await corner.lands("later", "a")
        assert await corner.node_of("gated") == ""
        await corner.cluster.change_pod("gates", "gated", {"spec": {"schedulingGates": None}})
        await corner.lands("gated", "a")
        assert await corner.cluster.events_of("gates", "gated", "FailedScheduling") == []


async def test_pods_of_another_scheduler_are_left_alone(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "others") as corner:
        await corner.has_nodes(small("a"))
        await corner.cluster.create(corner.pod("theirs").scheduler("other"), corner.pod("ours"))
        await corner.lands("ours", "a")
        theirs = await corner.cluster.pod("others", "theirs")
        assert not theirs["spec"].get("nodeName")
        assert not theirs["status"].get("conditions")
        assert await corner.cluster.events_of("others", "theirs", "FailedScheduling") == []


@pytest.mark.parametrize("gated", [False, True], ids=["unschedulable", "gated"])
async def test_a_pod_that_is_deleted_while_it_waits_is_forgotten(gated: bool, pipeline: Pipeline) -> None:
    namespace = "deleted-gated" if gated else "deleted"
    async with a_corner(pipeline, namespace) as corner:
        made = corner.pod("p").request(cpu=3)
        await corner.has_nodes(small("a"))
        await corner.cluster.create(made.gate("a.example/x") if gated else made)
        if not gated:
            await corner.is_unschedulable("p", unfit(1, "1 Insufficient cpu"))
        await until(lambda: waiting(pipeline, 1), "the pod does not wait")
        await corner.cluster.delete_pod(namespace, "p")
        await until(lambda: waiting(pipeline, 0), "the pod still waits")


async def test_pods_that_are_deleted_while_they_are_scheduled_leave_nothing(pipeline: Pipeline) -> None:
    async with a_corner(pipeline, "short-lived") as corner:
        await corner.has_nodes(small("a"))
        for i in range(20):
            await corner.cluster.create(corner.pod(f"p{i}").request(cpu="1500m"))
            await corner.cluster.delete_pod("short-lived", f"p{i}")
        await corner.cluster.create(corner.pod("last").request(cpu=2))
        await corner.lands("last", "a")
