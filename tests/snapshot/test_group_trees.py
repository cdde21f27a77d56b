"""What PodGroups tell workers of the trees of groups that they are in, whatever comes first."""

import itertools
import random
from typing import Any

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import ObjectGone, ObjectSeen
from shared.cluster.eviction_units import Unit, family_of, unit_of
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, ObjectKind, PodGroup, key_of, kind_of, object_from
from shared.model.workloads import InTree

ALL: dict[str, Any] = {"all": {}}
SINGLE: dict[str, Any] = {"single": {}}


def group(name: str, parent: str = "", composite: bool = False, **spec: Any) -> ClusterObject:
    kind = ObjectKind.COMPOSITE_POD_GROUP if composite else ObjectKind.POD_GROUP
    spec = {"schedulingPolicy": {"basic": {}}} | ({"parentCompositePodGroupName": parent} if parent else {}) | spec
    return object_from(kind, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def known(core: SnapshotCore, name: str = "a") -> PodGroup:
    return core.cluster.objects.pod_groups[f"default/{name}"]


def unit(core: SnapshotCore, name: str = "a") -> Unit:
    load = PodLoad("default", group=name, priority=7)
    return unit_of(load, core.cluster.objects.pod_groups)


@pytest.mark.parametrize("order", range(6))
def test_the_highest_group_that_goes_whole_counts_whatever_comes_first(order: int) -> None:
    core = SnapshotCore(1)
    objects = [
        group("root", composite=True, disruptionMode=SINGLE, priority=3),
        group("mid", "root", composite=True, disruptionMode=ALL),
        group("low", "mid", composite=True, disruptionMode=ALL),
        group("a", "low", disruptionMode=SINGLE, priority=5),
        group("b", "root", disruptionMode=ALL),
        group("c", "root", priority=5),
    ]
    random.Random(order).shuffle(objects)
    for each in objects:
        core.handle(ObjectSeen(each), 0.0)
    assert known(core).tree == InTree(root="default/root", evicted_with="default/mid", priority=3)
    assert unit(core) == Unit(3, "compositepodgroup/default/mid")
    assert unit(core, "b") == Unit(3, "default/b")
    assert unit(core, "c") == Unit(3)
    groups = core.cluster.objects.pod_groups
    assert {family_of(PodLoad("default", group=each), groups) for each in "abc"} == {"tree default/root"}
    core.validate()


def test_a_change_above_is_published_for_all_groups_below() -> None:
    core = SnapshotCore(1)
    for each in (group("a", "mid"), group("b", "mid"), group("mid", "root", composite=True)):
        core.handle(ObjectSeen(each), 0.0)
    root = group("root", composite=True, disruptionMode=ALL)
    before = core.seq
    core.handle(ObjectSeen(root), 0.0)
    assert core.seq > before
    assert [unit(core, each).group for each in "ab"] == ["compositepodgroup/default/root"] * 2
    core.handle(ObjectSeen(root), 0.0)
    core.handle(ObjectGone(kind_of(root), key_of(root)), 0.0)
    assert [unit(core, each) for each in "ab"] == [Unit(7), Unit(7)]
    assert known(core).tree == InTree(root="default/root")
    core.handle(ObjectGone(ObjectKind.POD_GROUP, "default/b"), 0.0)
    core.handle(ObjectSeen(root), 0.0)
    assert "default/b" not in core.cluster.objects.pod_groups
    core.validate()


def test_groups_that_name_each_other_as_parents_stop_nothing() -> None:
    core = SnapshotCore(1)
    circle = [group("x", "y", composite=True), group("y", "x", composite=True, disruptionMode=ALL), group("a", "x")]
    for each in circle:
        core.handle(ObjectSeen(each), 0.0)
    assert unit(core).group == "compositepodgroup/default/y"
    core.validate()


@pytest.mark.parametrize("seed", range(4))
def test_a_random_history_ends_as_the_objects_that_are_left_say(seed: int) -> None:
    dice, core = random.Random(seed), SnapshotCore(1)
    there: dict[tuple[ObjectKind, str], ClusterObject] = {}
    for _ in range(60):
        name, parent = dice.choice("abxyz"), dice.choice(["", "x", "y", "z"])
        made = group(name, parent, composite=name in "xyz", disruptionMode=dice.choice([ALL, SINGLE]))
        slot = kind_of(made), key_of(made)
        if dice.random() < 0.3:
            there.pop(slot, None)
            core.handle(ObjectGone(*slot), 0.0)
        else:
            there[slot] = made
            core.handle(ObjectSeen(made), 0.0)
        core.validate()
    fresh = SnapshotCore(1)
    for each in itertools.chain(there.values()):
        fresh.handle(ObjectSeen(each), 0.0)
    assert core.cluster.objects.pod_groups == fresh.cluster.objects.pod_groups
