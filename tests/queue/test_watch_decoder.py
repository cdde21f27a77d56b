"""The events that WatchDecoder makes of the watcher's stream."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from flotilla.events import Action, Resource
from services.queue.assigned_pods import AssignedPods
from services.queue.events import GroupUnreadable, PodBound, PodGone, PodPending, PodStale, PodUnreadable, WatchEvent
from services.queue.scheduling.cluster_event import ClusterChange, node_events, pod_events
from services.queue.watch_decoder import NodeCache, WatchDecoder
from shared.cluster.objects import ClusterObjects
from shared.framework.clusterevents import NAMES, ClusterEvent
from shared.messages.watch import Kind, NodeChange, ObjectChange, PodChange, Unreadable
from shared.model.devices import ResourceClaim, ResourceClaimStatus
from shared.model.kinds import GROUP_KINDS, STILL_COUNTED
from shared.model.objects import (
    Container,
    ContainerStatus,
    GroupApi,
    GroupRef,
    Node,
    ObjectKind,
    Pod,
    PodStatus,
    ResourceRequirements,
    Volume,
    encode_msgpack,
    key_of,
    node_from,
    pod_from,
)
from testing.builders import NodeBuilder, PodBuilder, node, pod, resource_list, selector
from tests.samples import an_object

CASES = [json.loads(line) for line in Path(__file__).with_name("changes.jsonl").read_text().splitlines()]
N = node("n").capacity(cpu=4).label(zone="a")
A = pod("a").on("n").label(app="web").request(cpu=1)


def uid(name: str) -> str:
    return f"default/{name}"


def pod_change(one: PodBuilder | Pod, finished: bool = False, gone: bool = False) -> PodChange:
    built = one if isinstance(one, Pod) else one.build()
    return PodChange(
        built.uid,
        built.namespace,
        built.name,
        built.spec.scheduler_name,
        built.spec.node_name,
        finished,
        gone,
        msgspec.Raw(b"" if gone else encode_msgpack(built)),
        seen_at=7.0,
    )


def node_change(one: NodeBuilder | Node) -> NodeChange:
    built = one if isinstance(one, Node) else one.build()
    return NodeChange(built.name, body=msgspec.Raw(encode_msgpack(built)))


def events(seen: list[WatchEvent]) -> list[str]:
    changes = [one.event for one in seen if isinstance(one, ClusterChange)]
    return [f"{event.resource}/{NAMES[event.action]}" for event in changes]


def only(seen: list[WatchEvent]) -> ClusterChange:
    """The one change, with its objects as hints get them."""
    changes = [one for one in seen if isinstance(one, ClusterChange)]
    assert len(changes) == 1
    return ClusterChange(changes[0].event, changes[0].before, changes[0].now)


# Pods


def test_a_pod_without_a_node_is_pending_since_the_queue_read_it() -> None:
    change = pod_change(pod("a").priority(3))
    assert WatchDecoder().decode(change, 9.0) == [PodPending(pod("a").priority(3).build(), 9.0, change.body)]


def test_a_pod_is_assigned_once_and_deleted_once() -> None:
    decoder = WatchDecoder()
    added = ClusterChange(ClusterEvent(Resource.ASSIGNED_POD, Action.ADD), None, A.build())
    deleted = ClusterChange(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), A.build(), None)
    told = decoder.decode(pod_change(A), 9.0)
    assert only(told) == added
    assert told[1:] == [PodBound(uid("a"))]
    assert decoder.decode(pod_change(A), 9.0) == []
    told = decoder.decode(pod_change(A, finished=True), 9.0)
    assert told[:1] == [PodGone(uid("a"), finished=True)]
    assert only(told) == deleted
    assert decoder.decode(pod_change(A, gone=True), 9.0) == [PodGone(uid("a"))]


def test_a_deleted_pod_without_a_node_frees_no_room() -> None:
    assert WatchDecoder().decode(pod_change(pod("a"), gone=True), 9.0) == [PodGone(uid("a"))]


def test_updates_of_an_assigned_pod_are_events() -> None:
    decoder = WatchDecoder()
    decoder.decode(pod_change(A), 9.0)
    labelled = only(decoder.decode(pod_change(A.label(app="db")), 9.0))
    assert labelled == ClusterChange(
        ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL), A.build(), A.label(app="db").build()
    )
    assert events(decoder.decode(pod_change(A.request(cpu="500m")), 9.0)) == [
        "AssignedPod/UpdatePodLabel",
        "AssignedPod/UpdatePodScaleDown",
    ]


def test_changes_that_no_hint_sees_are_no_events() -> None:
    decoder = WatchDecoder()
    decoder.decode(pod_change(A), 9.0)
    running = A.phase("Running").started("2024-01-01T00:00:00Z").condition("Ready").owner("ReplicaSet", "r")
    assert decoder.decode(pod_change(running), 9.0) == []
    built = running.build()
    annotated = msgspec.structs.replace(built.metadata, annotations={"a": "b"}, resource_version="7")
    assert decoder.decode(pod_change(msgspec.structs.replace(built, metadata=annotated)), 9.0) == []


def test_an_in_place_resize_may_be_a_scale_down() -> None:
    def granted(cpu: int) -> PodBuilder:
        resources = ResourceRequirements(requests=resource_list(cpu=cpu))
        return A.with_status(PodStatus(container_statuses=[ContainerStatus(name="", resources=resources)]))

    assert A.build().spec.containers == [Container(resources=ResourceRequirements(requests=resource_list(cpu=1)))]
    decoder = WatchDecoder()
    decoder.decode(pod_change(granted(3)), 9.0)
    assert events(decoder.decode(pod_change(granted(2)), 9.0)) == ["AssignedPod/UpdatePodScaleDown"]


def test_equal_parts_of_pods_are_shared() -> None:
    decoder = WatchDecoder()
    constraint = selector(app="web")
    pods = [
        pod(f"p{number}")
        .on(f"n{number % 2}")
        .label(app="web")
        .require_no_pods("zone", constraint)
        .volume(Volume(name=f"token-{number}"))
        for number in range(5)
    ]
    told = [only(decoder.decode(pod_change(one), 9.0)).now for one in pods]
    assert [one.key for one in told] == [one.build().key for one in pods]
    assert [one.spec.node_name for one in told] == ["n0", "n1", "n0", "n1", "n0"]
    assert len({id(one.spec.affinity) for one in told}) == 1
    assert len({id(one.metadata.labels) for one in told}) == 1
    assert all(not one.spec.volumes for one in told), "a volume with only a name affects no hint"
    assert all(one.spec.affinity == pods[0].build().spec.affinity for one in told)


def test_volumes_are_not_shared() -> None:
    decoder = WatchDecoder()
    pods = [pod(name).on("n").claim(f"data-{name}") for name in ("web-0", "web-1")]
    told = [only(decoder.decode(pod_change(one), 9.0)).now for one in pods]
    assert [one.spec for one in told] == [one.build().spec for one in pods]


def test_different_pods_stay_different_when_shared_parts_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.queue.assigned_pods.MAX_PARTS", 2)
    assigned = AssignedPods()
    pods = [pod(f"p{number}").on("n").request(cpu=number % 7).label(number=str(number % 5)) for number in range(50)]
    for one in pods:
        versions = assigned.update(pod_change(one))
        assert versions is not None
        assert (versions[0], versions[1].pod()) == (None, one.build())
        assert assigned.update(pod_change(one)) is None
    deleted = [assigned.delete(one.build().uid) for one in pods]
    assert [one.pod() for one in deleted if one is not None] == [one.build() for one in pods]
    assert len(assigned) == 0


@pytest.mark.parametrize("case", [case for case in CASES if case["kind"] == "Pod" and case["old"] and case["new"]])
def test_assigned_pods_keep_what_hints_read(case: dict[str, Any]) -> None:
    old, new = (pod_from(case[which]) for which in ("old", "new"))
    if not old.spec.node_name:
        return
    decoder = WatchDecoder()
    decoder.decode(pod_change(old), 9.0)
    told = events(decoder.decode(pod_change(new), 9.0))
    assert told == case["events"] or (told == [] and case["events"] == ["AssignedPod/Update"])


# Unreadable objects


def test_unreadable_pods() -> None:
    decoder = WatchDecoder()
    bad = Unreadable(Kind.POD, "u", "ns", "a", "requests are odd", scheduler="s")
    assert decoder.decode(bad, 9.0) == [PodUnreadable("u", "ns", "a", "s", "requests are odd")]
    broken = PodChange(uid("b"), "default", "b", "s", body=msgspec.Raw(b"\xc1"))
    told = decoder.decode(broken, 9.0)
    assert isinstance(told[0], PodUnreadable)
    assert told[0].problem.startswith("Pod default/b: ")
    assert decoder.decode(NodeChange("n", body=msgspec.Raw(b"\xc1")), 9.0) == []
    assert decoder.decode(ObjectChange(ObjectKind.SERVICE, "default/x", body=msgspec.Raw(b"\xc1")), 9.0) == []


def test_an_unreadable_group_is_told_and_taken_back() -> None:
    decoder = WatchDecoder()
    ref = GroupRef(GroupApi.COSCHEDULING, "ns/g")
    bad = Unreadable(Kind.COSCHEDULING_POD_GROUP, "u", "ns", "g", "9 levels")
    gone = ObjectChange(ObjectKind.COSCHEDULING_POD_GROUP, "ns/g", gone=True)
    assert decoder.decode(gone, 9.0) == []
    assert decoder.decode(bad, 9.0) == [GroupUnreadable(ref, "9 levels")]
    assert decoder.decode(gone, 9.0) == [GroupUnreadable(ref, "")]
    assert decoder.decode(gone, 9.0) == []
    decoder.decode(bad, 9.0)
    group = object_change(ObjectKind.COSCHEDULING_POD_GROUP, name="g", namespace="ns")
    assert decoder.decode(group, 9.0)[0] == GroupUnreadable(ref, "")


@pytest.mark.parametrize(
    "change",
    [
        Unreadable(Kind.POD, "u", "ns", "a", "requests are odd", node="n"),
        PodChange("u", "ns", "a", node="n", body=msgspec.Raw(b"\xc1")),
        PodChange("u", "ns", "a", node="n", body=msgspec.Raw(msgspec.msgpack.encode({"metadata": {"labels": 1}}))),
    ],
)
def test_an_unreadable_assigned_pod_counts_on_its_node(change: PodChange | Unreadable) -> None:
    decoder = WatchDecoder()
    nothing_else = pod("a", "ns").uid("u").on("n").build().spec.node_name
    told = decoder.decode(change, 9.0)
    assert told[1:] == [PodBound("u")]
    assert only(told).now.key == "ns/a"
    assert only(told).now.spec.node_name == nothing_else
    assert decoder.decode(change, 9.0) == []
    assert events(decoder.decode(PodChange("u", "ns", "a", gone=True), 9.0)) == ["AssignedPod/Delete"]


def test_the_last_readable_version_of_a_pod_counts() -> None:
    decoder = WatchDecoder()
    decoder.decode(pod_change(A), 9.0)
    assert decoder.decode(Unreadable(Kind.POD, uid("a"), "default", "a", "odd", node="n"), 9.0) == []
    assert decoder.decode(pod_change(A), 9.0) == []
    assert only(decoder.decode(pod_change(A, gone=True), 9.0)).before == A.build()


# Nodes


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda n: n, []),
        (lambda n: n.image("i", 7), []),
        (lambda n: n.condition("Ready", "False"), ["Node/UpdateNodeCondition"]),
        (lambda n: n.capacity(cpu=8), ["Node/UpdateNodeAllocatable"]),
        (lambda n: n.label(zone="b"), ["Node/UpdateNodeLabel"]),
        (lambda n: n.taint("k"), ["Node/UpdateNodeTaint"]),
        (lambda n: n.unschedulable(), []),
        (lambda n: n.capacity(cpu=8).label(zone="b"), ["Node/UpdateNodeAllocatable", "Node/UpdateNodeLabel"]),
    ],
)
def test_updates_of_a_node_are_events(change: Callable[[NodeBuilder], NodeBuilder], told: list[str]) -> None:
    decoder = WatchDecoder()
    added = ClusterChange(ClusterEvent(Resource.NODE, Action.ADD), None, N.build())
    assert decoder.decode(node_change(N), 9.0) == [added]
    assert events(decoder.decode(node_change(change(N)), 9.0)) == told


def test_an_uncordoned_node_and_a_deleted_one() -> None:
    decoder = WatchDecoder()
    decoder.decode(node_change(N.unschedulable()), 9.0)
    again = only(decoder.decode(node_change(N), 9.0))
    assert again.event == ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
    assert (again.before, again.now) == (N.unschedulable().build(), N.build())
    gone = ClusterChange(ClusterEvent(Resource.NODE, Action.DELETE), N.build(), None)
    assert decoder.decode(NodeChange("n", gone=True), 9.0) == [gone]
    assert decoder.decode(NodeChange("n", gone=True), 9.0) == []
    decoder.decode(node_change(N), 9.0)
    assert decoder.decode(Unreadable(Kind.NODE, "", "", "n", "wrong"), 9.0) == []
    assert decoder.decode(NodeChange("n", gone=True), 9.0) == [gone]


@pytest.mark.parametrize("case", [case for case in CASES if case["kind"] == "Node" and case["old"] and case["new"]])
def test_nodes_keep_what_hints_read(case: dict[str, Any]) -> None:
    old, new = (node_from(case[which]) for which in ("old", "new"))
    decoder = WatchDecoder(annotations=True)
    decoder.decode(node_change(old), 9.0)
    assert events(decoder.decode(node_change(new), 9.0)) == case["events"]


def test_nodes_annotations_are_kept_only_if_a_plugin_awaits_them() -> None:
    annotated = msgspec.structs.replace(
        N.build(), metadata=msgspec.structs.replace(N.build().metadata, annotations={"a": "1"}, resource_version="2")
    )
    for annotations, told in ((False, []), (True, ["Node/UpdateNodeAnnotation"])):
        decoder = WatchDecoder(annotations=annotations)
        decoder.decode(node_change(N), 9.0)
        assert events(decoder.decode(node_change(annotated), 9.0)) == told
    nodes = NodeCache()
    assert nodes.update("n", encode_msgpack(annotated)) == (None, N.build())
    assert nodes.update("n", encode_msgpack(N.build())) is None
    assert nodes.delete("n") == N.build()
    assert len(nodes) == 0


# Objects of other kinds


def object_change(kind: ObjectKind, **metadata: Any) -> ObjectChange:
    obj = an_object(kind, **metadata)
    return ObjectChange(kind, key_of(obj), body=msgspec.Raw(encode_msgpack(obj)))


@pytest.mark.parametrize("kind", [kind for kind in ObjectKind if kind is not ObjectKind.POD_DISRUPTION_BUDGET])
def test_objects_of_other_kinds(kind: ObjectKind) -> None:
    decoder = WatchDecoder()
    key = key_of(an_object(kind))
    known = decoder.objects.of(kind)

    def actions(change: ObjectChange | Unreadable) -> list[Action]:
        return [told.event.action for told in decoder.decode(change, 9.0) if isinstance(told, ClusterChange)]

    registered = kind in {*WATCHED, *GROUP_KINDS}
    assert actions(object_change(kind)) == [Action.ADD] * registered
    assert known[key] == an_object(kind)
    assert actions(object_change(kind, resourceVersion="2")) == [], "as in a listing"
    assert actions(object_change(kind, deletionTimestamp="2024-01-01T00:00:00Z")) == [Action.UPDATE] * registered
    assert known[key].metadata.deletion_timestamp is not None
    frees_devices = [Action.UPDATE] * (kind is ObjectKind.RESOURCE_CLAIM)
    assert actions(ObjectChange(kind, key, gone=True)) == [Action.DELETE] * registered + frees_devices
    assert not known
    assert actions(ObjectChange(kind, key, gone=True)) == []
    assert actions(object_change(kind)) == [Action.ADD] * registered
    namespace = "default" if "/" in key else ""
    gone = [] if kind in STILL_COUNTED else [Action.DELETE] * registered
    assert actions(Unreadable(Kind(kind.value), "u", namespace, "x", "wrong")) == gone


def test_a_version_without_a_node_of_an_assigned_pod_is_stale() -> None:
    """A stale cache shows the pod as it was before it was bound."""
    decoder = WatchDecoder()
    before = pod("a").request(cpu=1)
    assert [type(seen) for seen in decoder.decode(pod_change(before), 9.0)] == [PodPending]
    decoder.decode(pod_change(A), 9.0)
    assert decoder.decode(pod_change(before), 9.0) == [PodStale("default/a")]
    assert decoder.decode(Unreadable(Kind.POD, uid("a"), "default", "a", "wrong"), 9.0) == [PodStale("default/a")]
    decoder.decode(pod_change(A, gone=True), 9.0)
    assert [type(seen) for seen in decoder.decode(pod_change(before), 9.0)] == [PodPending], "that one is gone"


def test_an_unreadable_node_is_no_event() -> None:
    decoder = WatchDecoder()
    decoder.decode(node_change(N), 9.0)
    assert decoder.decode(Unreadable(Kind.NODE, "", "", "n", "wrong"), 9.0) == []
    assert decoder.decode(node_change(N), 9.0) == []


WATCHED = {
    ObjectKind.PERSISTENT_VOLUME: Resource.PERSISTENT_VOLUME,
    ObjectKind.PERSISTENT_VOLUME_CLAIM: Resource.PERSISTENT_VOLUME_CLAIM,
    ObjectKind.STORAGE_CLASS: Resource.STORAGE_CLASS,
    ObjectKind.CSI_NODE: Resource.CSI_NODE,
    ObjectKind.CSI_DRIVER: Resource.CSI_DRIVER,
    ObjectKind.CSI_STORAGE_CAPACITY: Resource.CSI_STORAGE_CAPACITY,
    ObjectKind.VOLUME_ATTACHMENT: Resource.VOLUME_ATTACHMENT,
    ObjectKind.RESOURCE_CLAIM: Resource.RESOURCE_CLAIM,
    ObjectKind.RESOURCE_SLICE: Resource.RESOURCE_SLICE,
    ObjectKind.DEVICE_CLASS: Resource.DEVICE_CLASS,
}


def test_the_given_objects_are_updated() -> None:
    objects = ClusterObjects()
    WatchDecoder(objects).decode(object_change(ObjectKind.NAMESPACE), 9.0)
    assert len(objects) == 1


@pytest.mark.parametrize("kind", WATCHED)
def test_events_carry_the_objects(kind: ObjectKind) -> None:
    decoder = WatchDecoder()
    obj, resource = an_object(kind), WATCHED[kind]
    changed = an_object(kind, deletionTimestamp="2024-01-01T00:00:00Z")
    assert only(decoder.decode(object_change(kind), 9.0)) == ClusterChange(
        ClusterEvent(resource, Action.ADD), None, obj
    )
    update = only(decoder.decode(object_change(kind, deletionTimestamp="2024-01-01T00:00:00Z"), 9.0))
    assert update == ClusterChange(ClusterEvent(resource, Action.UPDATE), obj, changed)
    deleted, *more = decoder.decode(ObjectChange(kind, key_of(obj), gone=True), 9.0)
    assert deleted == ClusterChange(ClusterEvent(resource, Action.DELETE), changed, None)
    for change in more:  # the claim's devices are free, too
        assert isinstance(changed, ResourceClaim)
        freed = replace(changed, status=ResourceClaimStatus())
        assert change == ClusterChange(ClusterEvent(resource, Action.UPDATE), changed, freed)


def test_disruption_budgets_are_ignored() -> None:
    decoder = WatchDecoder()
    assert decoder.decode(object_change(ObjectKind.POD_DISRUPTION_BUDGET), 9.0) == []
    assert len(decoder.objects) == 0


def test_events_agree_with_the_objects() -> None:
    """The events of an update follow from the objects that they carry."""
    decoder = WatchDecoder()
    for change in (node_change(N), pod_change(A), node_change(N.taint("k")), pod_change(A.label(app="db"))):
        for told in decoder.decode(change, 9.0):
            if isinstance(told, ClusterChange):
                of = node_events if told.event.resource is Resource.NODE else pod_events
                assert told.event in of(told.before, told.now)
