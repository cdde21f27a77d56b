"""What NodeResourcesFit waits for."""

import pytest

from flotilla.events import Action, Resource
from shared.cluster.objects import ClusterObjects
from shared.config.args import NodeResourcesFitArgs
from shared.model.objects import DeviceClass, ObjectKind, object_from
from shared.plugins.noderesources import NodeResourcesFit
from testing.builders import NodeBuilder, PodBuilder, node, pod
from tests.plugins.hints.asking import helps

PLUGIN = NodeResourcesFit(NodeResourcesFitArgs())
GONE = (Resource.ASSIGNED_POD, Action.DELETE)
LESS = (Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
NEW = (Resource.NODE, Action.ADD)
GROWN = (Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
NEW_CLASS = (Resource.DEVICE_CLASS, Action.ADD)
OTHER_CLASS = (Resource.DEVICE_CLASS, Action.UPDATE)

GPU = "example.com/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"
P = pod("p").request(cpu=2)
PLACED = pod("q").on("n")


def device_class(resource: str | None = None) -> DeviceClass:
    raw = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": resource}}
    made = object_from(ObjectKind.DEVICE_CLASS, raw)
    assert isinstance(made, DeviceClass)
    return made


def with_classes(*classes: DeviceClass) -> ClusterObjects:
    objects = ClusterObjects()
    for each in classes:
        objects.upsert(each)
    return objects


@pytest.mark.parametrize(
    ("gone", "expected"), [(PLACED, True), (pod("q").nominated("n"), True), (pod("q").request(cpu=9), False)]
)
def test_any_pod_with_a_place_helps_when_it_is_gone(gone: PodBuilder, expected: bool) -> None:
    assert helps(PLUGIN, GONE, P, gone, None) is expected


@pytest.mark.parametrize(
    ("waiting", "before", "now", "expected"),
    [
        (P, PLACED.request(cpu=4), PLACED.request(cpu=3), True),
        (P, PLACED.request(cpu=3), PLACED.request(cpu=4), False),
        (P, PLACED.request(memory=4), PLACED.request(memory=3), False),
        (P.request(memory=1), PLACED.request(memory=4), PLACED.request(memory=3), True),
        (pod("p").request(cpu=0), PLACED.request(cpu=4), PLACED.request(cpu=3), False),
        (P, pod("q").request(cpu=4), pod("q").request(cpu=3), False),
        (P.request({GPU: 1}), PLACED.request({GPU: 2}), PLACED, True),
        (P, P.request(cpu=3), P, True),
    ],
)
def test_less_of_what_the_pod_wants_helps(
    waiting: PodBuilder, before: PodBuilder, now: PodBuilder, expected: bool
) -> None:
    assert helps(PLUGIN, LESS, waiting, before, now) is expected


N = node("n")
TWO, FOUR = N.capacity(cpu=2), N.capacity(cpu=4)


@pytest.mark.parametrize(
    ("waiting", "before", "now", "expected"),
    [
        (P, None, TWO, True),
        (P, None, N.capacity(cpu=1), False),
        (P, None, TWO.capacity(pods=0), False),
        (P, N.capacity(cpu=1), TWO, True),
        (P, TWO, FOUR, True),
        (P, FOUR, TWO, False),
        (P, FOUR, N.capacity(cpu=1), False),
        (P, FOUR, FOUR.capacity(memory=8), False),
        (P, FOUR, FOUR.capacity(pods=111), True),
        (P, FOUR, FOUR.capacity(pods=109), False),
        (pod("p"), TWO, FOUR, False),
        (pod("p"), TWO, TWO.capacity(pods=111), True),
        (P.request({GPU: 1}), FOUR, FOUR.capacity({GPU: 1}), True),
        (P.request({GPU: 0}), None, FOUR, True),
    ],
)
def test_a_node_helps_that_has_more_and_would_do_if_it_were_empty(
    waiting: PodBuilder, before: NodeBuilder | None, now: NodeBuilder, expected: bool
) -> None:
    assert helps(PLUGIN, NEW if before is None else GROWN, waiting, before, now) is expected


def test_resources_that_the_profile_ignores_are_not_ignored() -> None:
    ignoring = NodeResourcesFit(NodeResourcesFitArgs(ignored_resources=(GPU,)))
    assert not helps(ignoring, NEW, P.request({GPU: 1}), None, TWO)


@pytest.mark.parametrize(("resource", "asked"), [(GPU, GPU), (None, IMPLICIT), (GPU, IMPLICIT)])
def test_a_device_stands_in_for_a_resource_that_the_node_has_none_of(resource: str | None, asked: str) -> None:
    waiting, objects = P.request({asked: 1}), with_classes(device_class(resource))
    assert helps(PLUGIN, NEW, waiting, None, TWO, objects)
    assert helps(PLUGIN, GROWN, waiting, FOUR, TWO, objects)
    assert not helps(PLUGIN, NEW, waiting.request({asked: 2}), None, TWO.capacity({asked: 1}), objects)
    assert not helps(PLUGIN, NEW, P.request({"example.com/other": 1}), None, TWO, objects)


@pytest.mark.parametrize(
    ("waiting", "before", "now", "expected"),
    [
        (P.request({GPU: 1}), None, device_class(GPU), True),
        (P.request({GPU: 0}), None, device_class(GPU), True),
        (P, None, device_class(GPU), False),
        (P.request({IMPLICIT: 1}), None, device_class(), True),
        (P.request({IMPLICIT: 1}), device_class(), device_class(GPU), False),
        (P.request({GPU: 1}), device_class(), device_class(GPU), True),
        (P.request({GPU: 1}), device_class(GPU), device_class(GPU), False),
        (P.request({GPU: 1}), device_class(GPU), device_class(), False),
        (P.request({GPU: 1}), device_class("example.com/old"), device_class(GPU), True),
    ],
)
def test_a_class_helps_by_which_devices_become_a_resource_that_is_asked_for(
    waiting: PodBuilder, before: DeviceClass | None, now: DeviceClass, expected: bool
) -> None:
    assert helps(PLUGIN, NEW_CLASS if before is None else OTHER_CLASS, waiting, before, now) is expected
