"""Evictions for gangs: the priorities of groups count, and what is written names the gang."""

from typing import Any

import pytest

from tests.binder.world import HIGH, World, until, world

pytestmark = pytest.mark.asyncio

GROUP = "scheduling.k8s.io"
GANG = f"{GROUP}/default/train"


def store_group(w: World, name: str, **spec: Any) -> None:
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    metadata = {"name": name, "namespace": "default", "uid": name}
    w.simulator.store_raw("podgroups", {"metadata": metadata, "spec": policy | spec}, group=GROUP)


async def failure(w: World) -> str:
    """Of an eviction of `low` on n1 for the gang of `high`."""
    w.evict(w.victim("low"), waits=False, gang=GANG)
    return (await w.evicted_of()).failure


@pytest.mark.parametrize("versions", [("v1", "v1alpha2"), ("v1", "v1beta1", "v1alpha3")], ids=["v1.36", "v1.37"])
async def test_a_gang_preempts_by_the_priority_of_its_group(versions: tuple[str, ...]) -> None:
    async with world() as w:
        w.simulator.serve(GROUP, *versions)
        store_group(w, "train", priority=5)
        w.pod("low", "n1")
        w.pod("high", nominated="n1", priority=0, group="train")
        assert await failure(w) == ""
        assert w.terminating("low")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priority": -5}, "the preemptor has priority -5, and the victim 0"),
        ({"priority": 5, "preemptionPolicy": "Never"}, "its preemptionPolicy is Never"),
        ({"priority": 0}, ""),
    ],
)
async def test_what_the_group_says_counts_though_the_pod_is_of_high_priority(spec: dict[str, Any], why: str) -> None:
    async with world() as w:
        w.simulator.serve(GROUP, "v1", "v1alpha2")
        store_group(w, "train", **spec)
        w.pod("low", "n1")
        w.pod("high", nominated="n1", group="train")
        assert why in await failure(w)
        assert w.terminating("low") is not bool(why)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priority": 5}, ""),
        ({"priority": -5}, "the preemptor has priority -5, and the victim 0"),
        ({"priority": 5, "preemptionPolicy": "Never"}, "its preemptionPolicy is Never"),
    ],
)
async def test_of_a_tree_the_root_says_what_counts(spec: dict[str, Any], why: str) -> None:
    async with world() as w:
        w.simulator.serve(GROUP, "v1", "v1beta1", "v1alpha3")
        store_group(w, "train", priority=3, parentCompositePodGroupName="mid")
        for name, more in (("mid", {"parentCompositePodGroupName": "root", "priority": 4}), ("root", spec)):
            policy = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}}
            metadata = {"name": name, "namespace": "default", "uid": name}
            w.simulator.store_raw("compositepodgroups", {"metadata": metadata, "spec": policy | more}, group=GROUP)
        w.pod("low", "n1")
        w.pod("high", nominated="n1", priority=0, group="train")
        assert why in await failure(w)
        assert w.terminating("low") is not bool(why)


@pytest.mark.parametrize("mode", ["PodGroup", "Pod"])
@pytest.mark.parametrize(("priority", "evicted"), [(1, True), (5, False)])
async def test_a_victim_is_as_important_as_its_group(priority: int, evicted: bool, mode: str) -> None:
    async with world() as w:
        w.simulator.serve(GROUP, "v1", "v1alpha2")
        store_group(w, "train", priority=5)
        store_group(w, "old", priority=priority, disruptionMode=mode)
        w.pod("low", "n1", priority=HIGH if evicted else 0, group="old")
        w.pod("high", nominated="n1", priority=0, group="train")
        assert bool(await failure(w)) is not evicted
        assert w.terminating("low") is evicted


async def test_a_victim_whose_group_cannot_be_read_counts_by_itself_as_for_the_snapshot() -> None:
    async with world() as w:
        w.simulator.serve(GROUP, "v1", "v1alpha2")
        store_group(w, "train", priority=5)
        keys = ",".join(f"example.com/k{i}" for i in range(9))  # one too many
        metadata = {"name": "old", "namespace": "default", "annotations": {"flotilla.io/required-topology": keys}}
        spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, "priority": HIGH}
        w.simulator.store_raw("podgroups", {"metadata": metadata, "spec": spec}, group=GROUP)
        w.pod("low", "n1", group="old")
        w.pod("high", nominated="n1", priority=0, group="train")
        assert await failure(w) == ""
        assert w.terminating("low")


async def test_what_is_written_names_the_gang() -> None:
    async with world() as w:
        w.simulator.serve(GROUP, "v1", "v1alpha2")
        store_group(w, "train", priority=5)
        store_group(w, "old")
        w.pod("low", "n1", group="old")
        w.pod("high", nominated="n1", group="train")
        assert await failure(w) == ""
        condition = w.condition_of("low", "DisruptionTarget") or {}
        assert condition["message"] == "default-scheduler: preempting to accommodate a higher priority podgroup"
        assert (await w.event("Preempted"))["note"] == "Preempted by podgroup default/train on node n1"
        note = (await w.event("Preempting"))["note"]
        assert note == "for podgroup default/train: evicted 1 pod(s) of lower priority from node n1: default/low"
        preemption = (await w.report_of()).preemption
        assert preemption is not None
        assert (preemption.gang, [victim.group for victim in preemption.victims]) == (GANG, ["old"])


async def test_a_group_that_cannot_be_read_stops_its_evictions() -> None:
    async with world() as w:
        w.simulator.serve(GROUP, "v1", "v1alpha2")
        store_group(w, "train", priority=5, disruptionMode=7)
        w.pod("low", "n1")
        w.pod("high", nominated="n1", group="train")
        assert "PodGroup default/train: spec.disruptionMode" in await failure(w)
        await until(lambda: not w.terminating("low"))


@pytest.mark.parametrize("mode", [{"all": {}}, {"single": {}}])
@pytest.mark.parametrize(("priority", "evicted"), [(1, True), (5, False)])
async def test_a_victim_is_as_important_as_its_tree(priority: int, evicted: bool, mode: dict[str, Any]) -> None:
    async with world() as w:
        w.simulator.serve(GROUP, "v1", "v1beta1", "v1alpha3")
        store_group(w, "train", priority=5)
        store_group(w, "old", parentCompositePodGroupName="root", priority=3)
        policy = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}
        metadata = {"name": "root", "namespace": "default", "uid": "root"}
        spec = policy | {"disruptionMode": mode, "priority": priority}
        w.simulator.store_raw("compositepodgroups", {"metadata": metadata, "spec": spec}, group=GROUP)
        w.pod("low", "n1", priority=HIGH if evicted else 0, group="old")
        w.pod("high", nominated="n1", priority=0, group="train")
        assert bool(await failure(w)) is not evicted
        assert w.terminating("low") is evicted
