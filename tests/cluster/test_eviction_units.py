"""What a pod counts as when it may have to go."""

from typing import Any

import pytest

from shared.cluster.eviction_units import Unit, family_of, priority_of, unit_of
from shared.model.load import PodLoad, load_of
from shared.model.objects import GROUP_LABEL, ObjectKind, PodGroup, object_from
from testing.builders import pod

POD = PodLoad("default", priority=7, group="g")


def groups(**spec: Any) -> dict[str, PodGroup]:
    group = object_from(ObjectKind.POD_GROUP, {"metadata": {"name": "g", "namespace": "default"}, "spec": spec})
    assert isinstance(group, PodGroup)
    return {group.key: group}


@pytest.mark.parametrize(
    ("spec", "unit"),
    [
        ({}, Unit(7)),
        ({"priority": 0}, Unit(7)),
        ({"priority": 0, "priorityClassName": "none"}, Unit(0)),
        ({"priority": 9}, Unit(9)),
        ({"priority": 9, "disruptionMode": "Pod"}, Unit(9)),
        ({"disruptionMode": "PodGroup"}, Unit(7, "default/g")),
        ({"priority": 3, "disruptionMode": {"all": {}}}, Unit(3, "default/g")),
    ],
)
def test_the_priority_of_a_group_counts_whether_it_goes_whole_or_not(spec: dict[str, Any], unit: Unit) -> None:
    assert unit_of(POD, groups(**spec)) == unit
    assert priority_of(POD, groups(**spec)) == unit.priority


def test_without_a_group_or_one_that_is_known_a_pod_counts_by_itself() -> None:
    assert unit_of(PodLoad("default", priority=7), groups(priority=9)) == Unit(7)
    assert unit_of(PodLoad("other", priority=7, group="g"), groups(priority=9)) == Unit(7)


def test_groups_of_one_name_and_of_different_apis_or_namespaces_are_different_families() -> None:
    made = [
        pod("p").group("g").build(),
        pod("p").label({GROUP_LABEL: "g"}).build(),
        pod("p").namespace("other").group("g").build(),
        pod("p").namespace("other").label({GROUP_LABEL: "g"}).build(),
    ]
    assert len({family_of(load_of(each), groups()) for each in made}) == 4
    both = pod("p").group("g").label({GROUP_LABEL: "h"}).build()
    assert family_of(load_of(both), groups()) == family_of(load_of(made[0]), {}), "the field has precedence"
    assert family_of(PodLoad("default"), groups()) == ""
