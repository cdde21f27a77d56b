"""What the watcher's stream means to the queue."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from services.queue.events import ClusterChange, PodBound, PodGone, PodPending, PodUnreadable
from services.queue.sightings import Sightings
from services.queue.waking import ChangeKind, wakes
from shared.messages.watch import Kind, NodeChange, ObjectChange, PodChange, Unreadable
from shared.model.objects import ObjectKind, encode_msgpack, key_of
from tests.builders import NodeBuilder, PodBuilder, node, pod
from tests.queue.support import uid
from tests.samples import an_object

ADDED = ClusterChange(ChangeKind.ASSIGNED_POD_ADDED)
DELETED = ClusterChange(ChangeKind.ASSIGNED_POD_DELETED)
N = node("n").capacity(cpu=4).label(zone="a")


def pod_change(one: PodBuilder, node_name: str = "", finished: bool = False, gone: bool = False) -> PodChange:
    built = one.build()
    return PodChange(
        built.uid,
        built.namespace,
        built.name,
        built.spec.scheduler_name,
        node_name,
        finished,
        gone,
        msgspec.Raw(b"" if gone else encode_msgpack(built)),
        seen_at=7.0,
    )


def node_change(one: NodeBuilder) -> NodeChange:
    return NodeChange(one.build().name, body=msgspec.Raw(encode_msgpack(one.build())))


def test_a_pod_without_a_node_is_pending_since_the_watcher_saw_it() -> None:
    change = pod_change(pod("a").priority(3))
    assert Sightings().read(change, 9.0) == [PodPending(pod("a").priority(3).build(), 7.0, len(change.body))]


def test_a_pod_comes_to_a_node_once_and_leaves_it_once() -> None:
    sightings = Sightings()
    assert sightings.read(pod_change(pod("a"), "n"), 9.0) == [PodBound(uid("a")), ADDED]
    assert sightings.read(pod_change(pod("a"), "n"), 9.0) == []
    assert sightings.read(pod_change(pod("a"), "n", finished=True), 9.0) == [PodGone(uid("a")), DELETED]
    assert sightings.read(pod_change(pod("a"), "n", gone=True), 9.0) == [PodGone(uid("a"))]


def test_a_deleted_pod_that_had_no_node_leaves_no_room() -> None:
    assert Sightings().read(pod_change(pod("a"), gone=True), 9.0) == [PodGone(uid("a"))]


def test_what_cannot_be_read() -> None:
    sightings = Sightings()
    told = Unreadable(Kind.POD, "u", "default", "a", "wrong", "default-scheduler")
    assert sightings.read(told, 9.0) == [PodUnreadable("u", "default", "a", "default-scheduler", "wrong")]
    bound = msgspec.structs.replace(told, node="n")
    assert sightings.read(bound, 9.0) == [PodBound("u"), ADDED]
    garbled = PodChange("v", "default", "b", "default-scheduler", body=msgspec.Raw(b"\xc1"))
    (unreadable,) = sightings.read(garbled, 9.0)
    assert isinstance(unreadable, PodUnreadable) and unreadable.problem.startswith("Pod default/b: ")
    assert sightings.read(NodeChange("n", body=msgspec.Raw(b"\xc1")), 9.0) == []


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (lambda n: n, []),
        (lambda n: n.condition("Ready", "False"), []),
        (lambda n: n.capacity(cpu=8), [ChangeKind.NODE_ALLOCATABLE]),
        (lambda n: n.label(zone="b"), [ChangeKind.NODE_LABELS]),
        (lambda n: n.taint("k"), [ChangeKind.NODE_TAINTS]),
        (lambda n: n.unschedulable(), []),
        (lambda n: n.capacity(cpu=8).label(zone="b"), [ChangeKind.NODE_ALLOCATABLE, ChangeKind.NODE_LABELS]),
    ],
)
def test_changes_of_a_node(change: Callable[[NodeBuilder], NodeBuilder], kinds: list[ChangeKind]) -> None:
    sightings = Sightings()
    assert sightings.read(node_change(N), 9.0) == [ClusterChange(ChangeKind.NODE_ADDED)]
    assert sightings.read(node_change(change(N)), 9.0) == [ClusterChange(kind) for kind in kinds]


def test_a_node_that_takes_pods_again_and_one_that_goes() -> None:
    sightings = Sightings()
    sightings.read(node_change(N.unschedulable()), 9.0)
    assert sightings.read(node_change(N), 9.0) == [ClusterChange(ChangeKind.NODE_TAINTS)]
    assert sightings.read(NodeChange("n", gone=True), 9.0) == [ClusterChange(ChangeKind.NODE_DELETED)]
    assert sightings.read(NodeChange("n", gone=True), 9.0) == []
    sightings.read(node_change(N), 9.0)
    assert sightings.read(Unreadable(Kind.NODE, "", "", "n", "wrong"), 9.0) == [ClusterChange(ChangeKind.NODE_DELETED)]


def object_change(kind: ObjectKind, **metadata: Any) -> ObjectChange:
    obj = an_object(kind, **metadata)
    return ObjectChange(kind, key_of(obj), body=msgspec.Raw(encode_msgpack(obj)))


@pytest.mark.parametrize(
    ("kind", "added", "changed", "deleted"),
    [
        (ObjectKind.NAMESPACE, ChangeKind.NAMESPACE_CHANGED, ChangeKind.NAMESPACE_CHANGED, None),
        (ObjectKind.SERVICE, ChangeKind.SELECTOR_CHANGED, ChangeKind.SELECTOR_CHANGED, None),
        (ObjectKind.REPLICA_SET, ChangeKind.SELECTOR_CHANGED, ChangeKind.SELECTOR_CHANGED, None),
        (ObjectKind.REPLICATION_CONTROLLER, ChangeKind.SELECTOR_CHANGED, ChangeKind.SELECTOR_CHANGED, None),
        (ObjectKind.STATEFUL_SET, ChangeKind.SELECTOR_CHANGED, ChangeKind.SELECTOR_CHANGED, None),
        (ObjectKind.PERSISTENT_VOLUME, ChangeKind.VOLUME_ADDED, ChangeKind.VOLUME_CHANGED, None),
        (ObjectKind.PERSISTENT_VOLUME_CLAIM, ChangeKind.CLAIM_ADDED, ChangeKind.CLAIM_CHANGED, None),
        (ObjectKind.STORAGE_CLASS, ChangeKind.CLASS_ADDED, ChangeKind.CLASS_CHANGED, None),
        (ObjectKind.CSI_NODE, ChangeKind.CSI_NODE_ADDED, ChangeKind.CSI_NODE_CHANGED, None),
        (ObjectKind.CSI_DRIVER, None, ChangeKind.CSI_DRIVER_CHANGED, None),
        (ObjectKind.CSI_STORAGE_CAPACITY, ChangeKind.CAPACITY_ADDED, ChangeKind.CAPACITY_CHANGED, None),
        (ObjectKind.VOLUME_ATTACHMENT, None, None, ChangeKind.ATTACHMENT_DELETED),
        (ObjectKind.POD_DISRUPTION_BUDGET, None, None, None),
    ],
)
def test_objects_of_other_kinds(
    kind: ObjectKind, added: ChangeKind | None, changed: ChangeKind | None, deleted: ChangeKind | None
) -> None:
    def seen(change: ObjectChange | Unreadable) -> list[ChangeKind]:
        return [told.kind for told in sightings.read(change, 9.0) if isinstance(told, ClusterChange)]

    def only(expected: ChangeKind | None) -> list[ChangeKind]:
        return [] if expected is None else [expected]

    sightings = Sightings()
    key = key_of(an_object(kind))
    assert seen(object_change(kind)) == only(added)
    assert seen(object_change(kind, resourceVersion="2")) == [], "as in a listing"
    assert seen(object_change(kind, deletionTimestamp="2024-01-01T00:00:00Z")) == only(changed)
    assert seen(ObjectChange(kind, key, gone=True)) == only(deleted)
    assert seen(ObjectChange(kind, key, gone=True)) == []
    assert seen(object_change(kind)) == only(added)
    namespace = "default" if "/" in key else ""
    assert seen(Unreadable(Kind(kind.value), "u", namespace, "x", "wrong")) == only(deleted)


@pytest.mark.parametrize(
    ("plugin", "woken_by"),
    [
        (
            "VolumeBinding",
            "VOLUME_ADDED VOLUME_CHANGED CLAIM_ADDED CLAIM_CHANGED CLASS_ADDED CLASS_CHANGED CSI_NODE_ADDED "
            "CSI_NODE_CHANGED CSI_DRIVER_CHANGED CAPACITY_ADDED CAPACITY_CHANGED",
        ),
        ("VolumeRestrictions", "CLAIM_ADDED"),
        ("VolumeZone", "VOLUME_ADDED VOLUME_CHANGED CLAIM_ADDED CLAIM_CHANGED CLASS_ADDED"),
        ("NodeVolumeLimits", "CLAIM_ADDED CSI_NODE_ADDED CSI_NODE_CHANGED ATTACHMENT_DELETED"),
        ("InterPodAffinity", "NAMESPACE_CHANGED"),
        ("PodTopologySpread", "SELECTOR_CHANGED"),
        ("NodeResourcesFit", ""),
    ],
)
def test_who_waits_for_them(plugin: str, woken_by: str) -> None:
    common = {kind for kind in ChangeKind if kind.name.startswith(("NODE_", "ASSIGNED_", "TIME_"))}
    assert {kind.name for kind in set(ChangeKind) - common if wakes(plugin, kind)} == set(woken_by.split())
