"""Pod groups of two APIs, seen as one kind of thing, and who belongs to them."""

from typing import Any

import pytest

from shared.errors import InvalidObject
from shared.model.objects import (
    GROUP_LABEL,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    GroupApi,
    GroupRef,
    ObjectKind,
    PodGroup,
    encode_msgpack,
    group_of,
    kind_of,
    object_from,
    object_from_msgpack,
    pod_from,
)

OURS, THEIRS = ObjectKind.POD_GROUP, ObjectKind.COSCHEDULING_POD_GROUP


def read(of: ObjectKind, spec: Any, **more: Any) -> PodGroup:
    obj = object_from(of, {"metadata": {"name": "g", "namespace": "ns"}, "spec": spec} | more)
    assert isinstance(obj, PodGroup)
    assert object_from_msgpack(encode_msgpack(obj)) == obj
    assert kind_of(obj) is of
    return obj


@pytest.mark.parametrize(
    ("kind", "spec", "least", "timeout"),
    [
        (OURS, {"schedulingPolicy": {"gang": {"minCount": 4}}}, 4, None),
        (OURS, {"schedulingPolicy": {"basic": {}}}, 0, None),
        (OURS, {}, 0, None),
        (OURS, {"schedulingPolicy": {"gang": {"minCount": -1}}}, 0, None),
        (OURS, {"minMember": 7, "scheduleTimeoutSeconds": 3}, 0, None),
        (THEIRS, {"minMember": 4, "scheduleTimeoutSeconds": 30}, 4, 30.0),
        (THEIRS, {"minMember": 4, "scheduleTimeoutSeconds": 0}, 4, None),
        (THEIRS, {}, 0, None),
    ],
)
def test_min_count_of_a_gang(kind: ObjectKind, spec: Any, least: int, timeout: float | None) -> None:
    group = read(kind, spec)
    assert (group.least, group.timeout) == (least, timeout)


def test_a_group_is_named_by_its_api_too() -> None:
    ours, theirs = read(OURS, {}), read(THEIRS, {}, apiVersion="scheduling.x-k8s.io/v1alpha1", kind="PodGroup")
    assert ours.ref == GroupRef(GroupApi.SCHEDULING, "ns/g")
    assert theirs.ref == GroupRef(GroupApi.COSCHEDULING, "ns/g")
    assert (str(ours.ref), str(theirs.ref)) == ("scheduling.k8s.io/ns/g", "scheduling.x-k8s.io/ns/g")
    assert (ours.ref.name, theirs.ref.name) == ("g", "g")


@pytest.mark.parametrize("kind", [OURS, THEIRS])
def test_an_invalid_group_is_refused_with_the_field(kind: ObjectKind) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": "many"}}, "minMember": "many"}
    with pytest.raises(InvalidObject, match=r"^PodGroup ns/g: spec\.(schedulingPolicy\.gang\.minCount|minMember)"):
        read(kind, spec)


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({}, None),
        ({"priority": 0}, None),
        ({"priority": 0, "priorityClassName": "zero"}, 0),
        ({"priority": 7}, 7),
        ({"priority": -7, "priorityClassName": "low"}, -7),
    ],
)
def test_a_priority_that_the_server_made_up_counts_as_none(spec: Any, priority: int | None) -> None:
    assert read(OURS, spec).priority == priority


@pytest.mark.parametrize(
    ("spec", "whole"),
    [
        ({}, False),
        ({"disruptionMode": "Pod"}, False),
        ({"disruptionMode": "PodGroup"}, True),
        ({"disruptionMode": {"single": {}}}, False),
        ({"disruptionMode": {"all": {}}}, True),
    ],
)
def test_the_disruption_mode_of_each_version(spec: Any, whole: bool) -> None:
    assert read(OURS, spec).is_evicted_whole is whole


def test_priority_and_preemption_policy_are_the_groups() -> None:
    group = read(OURS, {"priority": 5, "preemptionPolicy": "Never"})
    assert (group.priority, group.never_preempts) == (5, True)
    assert (read(OURS, {}).priority, read(OURS, {}).never_preempts) == (None, False)


@pytest.mark.parametrize("kind", [OURS, THEIRS])
def test_topology_constraints_are_ordered_and_a_required_one_outweighs_a_preferred_one(kind: ObjectKind) -> None:
    annotations = {REQUIRED_TOPOLOGY: "block, rack", PREFERRED_TOPOLOGY: "rack,host", "other": "x"}
    metadata = {"name": "g", "namespace": "ns", "annotations": annotations}
    spec = {"schedulingConstraints": {"topology": [{"key": "zone"}]}}
    group = read(kind, spec, metadata=metadata)
    assert [(level.key, level.preferred) for level in group.topology] == [
        ("zone", False),
        ("block", False),
        ("rack", False),
        ("host", True),
    ]
    assert "other" not in group.metadata.annotations


@pytest.mark.parametrize(
    ("keys", "problem"),
    [(",".join("abcdefghi"), "names 9 topology levels, and at most 8"), ("x" * 318, "has 1 to 317 characters")],
)
def test_a_group_with_impossible_constraints_is_refused(keys: str, problem: str) -> None:
    metadata = {"name": "g", "namespace": "ns", "annotations": {PREFERRED_TOPOLOGY: keys}}
    with pytest.raises(InvalidObject, match=problem):
        read(OURS, {}, metadata=metadata)


@pytest.mark.parametrize(
    ("labels", "spec", "expected"),
    [
        ({}, {}, None),
        ({GROUP_LABEL: ""}, {"schedulingGroup": {}}, None),
        ({GROUP_LABEL: "a"}, {}, GroupRef(GroupApi.COSCHEDULING, "ns/a")),
        ({}, {"schedulingGroup": {"podGroupName": "b"}}, GroupRef(GroupApi.SCHEDULING, "ns/b")),
        ({GROUP_LABEL: "a"}, {"schedulingGroup": {"podGroupName": "b"}}, GroupRef(GroupApi.SCHEDULING, "ns/b")),
    ],
)
def test_the_group_of_a_pod(labels: dict[str, str], spec: Any, expected: GroupRef | None) -> None:
    assert (
        group_of(pod_from({"metadata": {"name": "p", "namespace": "ns", "labels": labels}, "spec": spec})) == expected
    )
