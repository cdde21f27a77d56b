"""The events of object updates, compared with kube-scheduler's."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from flotilla.events import Action, Resource
from services.queue.scheduling.cluster_event import node_events, object_events, pod_events
from shared.framework.clusterevents import NAMES, ClusterEvent
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, node_from, object_from, pod_from
from testing.builders import node, pod
from tests.samples import an_object

CASES = [msgspec.json.decode(line) for line in Path(__file__).with_name("changes.jsonl").read_text().splitlines()]
"""Observed in kube-scheduler v1.36."""
OBJECTS = {
    "PersistentVolumeClaim": ObjectKind.PERSISTENT_VOLUME_CLAIM,
    "StorageClass": ObjectKind.STORAGE_CLASS,
}


def told(events: list[ClusterEvent]) -> list[str]:
    return [f"{event.resource}/{NAMES[event.action]}" for event in events]


def events_of(kind: str, old: Any, new: Any) -> list[ClusterEvent]:
    if kind == "Node":
        return node_events(old and node_from(old), new and node_from(new))
    if kind == "Pod":
        return pod_events(old and pod_from(old), new and pod_from(new))
    return object_events(
        OBJECTS[kind], old and object_from(OBJECTS[kind], old), new and object_from(OBJECTS[kind], new)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join([case["kind"], *case["events"]]))
def test_events_are_those_of_kube_scheduler(case: dict[str, Any]) -> None:
    assert told(events_of(case["kind"], case["old"], case["new"])) == case["events"]


def of_node(before: Node | None, now: Node | None) -> list[str]:
    return told(node_events(before, now))


def test_an_uncordoned_node_may_have_other_taints_as_well() -> None:
    cordoned, other = node("n").unschedulable(), node("n").taint("k")
    assert of_node(node("n").build(), cordoned.build()) == []
    assert of_node(cordoned.build(), node("n").build()) == ["Node/UpdateNodeTaint"]
    assert of_node(cordoned.build(), other.label(a="b").build()) == [
        "Node/UpdateNodeTaint",
        "Node/UpdateNodeLabel",
        "Node/UpdateNodeTaint",
    ]


def test_the_reason_of_a_condition_is_no_event() -> None:
    ready = node("n").condition("Ready", "True")
    assert of_node(ready.build(), node("n").condition("Ready", "False").build()) == ["Node/UpdateNodeCondition"]
    assert of_node(ready.build(), ready.build()) == []


def of_pod(before: Pod | None, now: Pod | None) -> list[str]:
    return told(pod_events(before, now))


def test_an_assigned_pod_is_an_added_pod() -> None:
    assert of_pod(pod("p").build(), pod("p").on("n").label(a="b").build()) == ["AssignedPod/Add"]
    assert of_pod(None, pod("p").on("n").build()) == ["AssignedPod/Add"]
    assert of_pod(pod("p").on("n").build(), None) == ["AssignedPod/Delete"]
    assert of_pod(None, pod("p").build()) == ["UnschedulablePod/Add"]
    assert of_pod(pod("p").build(), None) == ["UnschedulablePod/Delete"]


def test_fewer_requests_of_one_resource_are_a_scale_down() -> None:
    before = pod("p").on("n").request(cpu=2, memory="1Gi").build()
    assert of_pod(before, pod("p").on("n").request(cpu=1, memory="2Gi").build()) == ["AssignedPod/UpdatePodScaleDown"]
    assert of_pod(before, pod("p").on("n").request(cpu=2).build()) == ["AssignedPod/UpdatePodScaleDown"]
    assert of_pod(before, pod("p").on("n").request(cpu=3, memory="1Gi").build()) == ["AssignedPod/Update"]


def test_removing_one_of_two_gates_is_a_general_update() -> None:
    both = pod("p").gate("a").gate("b").build()
    assert of_pod(both, pod("p").gate("a").build()) == ["UnschedulablePod/Update"]
    assert of_pod(both, pod("p").build()) == ["UnschedulablePod/UpdatePodSchedulingGatesEliminated"]


WITHOUT_REGISTRATION = {
    ObjectKind.NAMESPACE,
    ObjectKind.SERVICE,
    ObjectKind.REPLICA_SET,
    ObjectKind.REPLICATION_CONTROLLER,
    ObjectKind.STATEFUL_SET,
    ObjectKind.POD_DISRUPTION_BUDGET,
}


@pytest.mark.parametrize("kind", ObjectKind)
def test_objects_of_other_kinds(kind: ObjectKind) -> None:
    obj: ClusterObject = an_object(kind)
    events = [object_events(kind, *change) for change in ((None, obj), (obj, obj), (obj, None), (None, None))]
    if kind in WITHOUT_REGISTRATION:
        assert events == [[], [], [], []]
        return
    resources = {event.resource for each in events for event in each}
    assert len(resources) == 1
    assert Resource.ANY not in resources
    assert [[event.action for event in each] for each in events] == [[Action.ADD], [Action.UPDATE], [Action.DELETE], []]
