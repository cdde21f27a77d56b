"""What the watcher's stream means to the queue."""

from collections.abc import Callable

import msgspec
import pytest

from services.queue.events import ClusterChange, PodBound, PodGone, PodPending, PodUnreadable
from services.queue.sightings import Sightings
from services.queue.waking import ChangeKind
from shared.messages.watch import Kind, NodeChange, PodChange, Unreadable
from shared.model.objects import encode_msgpack
from tests.builders import NodeBuilder, PodBuilder, node, pod
from tests.queue.support import uid

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
