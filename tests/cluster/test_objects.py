"""ClusterObjects: what is known by kind and key, found by what it says, and how changes show."""

import random

import pytest

from shared.cluster.objects import ClusterObjects
from shared.model.objects import ClusterObject, ObjectKind, key_of, kind_of
from tests.samples import a_claim, a_volume, an_object


@pytest.mark.parametrize("kind", ObjectKind)
def test_an_object_is_known_until_it_is_removed(kind: ObjectKind) -> None:
    objects, obj = ClusterObjects(), an_object(kind)
    assert objects.upsert(obj)
    assert dict(objects.of(kind)) == {key_of(obj): obj}
    assert list(objects.all()) == [obj]
    assert objects.remove(kind, key_of(obj))
    assert (len(objects), list(objects.all())) == (0, [])
    objects.validate()


def test_only_what_changes_something_raises_the_generation() -> None:
    objects, service = ClusterObjects(), an_object(ObjectKind.SERVICE)
    assert objects.generation(ObjectKind.SERVICE) == 0
    assert [objects.upsert(service), objects.upsert(an_object(ObjectKind.SERVICE))] == [True, False]
    assert (objects.generation(ObjectKind.SERVICE), objects.generation(ObjectKind.NAMESPACE)) == (1, 0)
    assert [objects.remove(ObjectKind.SERVICE, "default/x"), objects.remove(ObjectKind.SERVICE, "default/x")] == [
        True,
        False,
    ]
    assert objects.generation(ObjectKind.SERVICE) == 2


def test_each_kind_has_its_own_view() -> None:
    objects = ClusterObjects()
    for kind in ObjectKind:
        objects.upsert(an_object(kind))
    views = [
        objects.namespaces,
        objects.services,
        objects.replica_sets,
        objects.replication_controllers,
        objects.stateful_sets,
        objects.persistent_volumes,
        objects.claims,
        objects.storage_classes,
        objects.csi_nodes,
        objects.csi_drivers,
        objects.of(ObjectKind.CSI_STORAGE_CAPACITY),
        objects.volume_attachments,
        objects.disruption_budgets,
        objects.of(ObjectKind.POD_GROUP),
        objects.of(ObjectKind.COSCHEDULING_POD_GROUP),
        objects.of(ObjectKind.COMPOSITE_POD_GROUP),
        objects.devices.claims,
        objects.devices.slices,
        objects.devices.classes,
    ]
    assert [obj for view in views for obj in view.values()] == list(objects.all())
    assert [kind_of(obj) for obj in objects.all()] == list(ObjectKind)
    assert list(objects.volumes_of_claim("default/c")) == ["x"]
    assert list(objects.attachments_on("n")) == ["x"]
    assert list(objects.capacities_of_class("fast")) == ["default/x"]
    namespaced = (objects.services_in, objects.disruption_budgets_in)
    assert all(list(view("default")) == ["default/x"] and not view("other") for view in namespaced)


def test_indexes_follow_changed_objects() -> None:
    objects = ClusterObjects()
    objects.upsert(a_volume("v", storageClassName="fast"))
    objects.upsert(a_volume("v", claim="default/c", storageClassName="slow"))
    assert not objects.free_volumes_of_class("fast")
    assert not objects.free_volumes_of_class("slow")
    assert list(objects.volumes_of_claim("default/c")) == ["v"]
    objects.upsert(a_volume("v"))
    assert not objects.volumes_of_claim("default/c")
    assert list(objects.free_volumes_of_class("")) == ["v"]
    objects.validate()


@pytest.mark.parametrize("seed", range(5))
def test_indexes_agree_with_the_objects(seed: int) -> None:
    dice, objects = random.Random(seed), ClusterObjects()
    known: dict[tuple[ObjectKind, str], ClusterObject] = {}
    for _ in range(300):
        obj = _any(dice)
        slot = kind_of(obj), key_of(obj)
        if dice.random() < 0.3:
            assert objects.remove(*slot) == (known.pop(slot, None) is not None)
        else:
            assert objects.upsert(obj) == (known.get(slot) != obj)
            known[slot] = obj
        objects.validate()
    assert {(kind_of(obj), key_of(obj)): obj for obj in objects.all()} == known


def _any(dice: random.Random) -> ClusterObject:
    name, other = dice.choice("abc"), dice.choice(("", "x", "y"))
    match dice.randrange(4):
        case 0:
            return a_volume(name, claim=other and f"default/{other}", storageClassName=dice.choice(("", "fast")))
        case 1:
            return a_claim(name, volumeName=other)
        case 2:
            return an_object(ObjectKind.SERVICE, name, namespace=other or "default")
        case _:
            return an_object(dice.choice(list(ObjectKind)), name)


def test_equal_parts_are_kept_once_and_others_stay_apart() -> None:
    objects = ClusterObjects()
    for name, zone in (("a", "x"), ("b", "x"), ("c", "y")):
        claim = an_object(ObjectKind.PERSISTENT_VOLUME_CLAIM, name)
        volume = an_object(ObjectKind.PERSISTENT_VOLUME, name, labels={"zone": zone})
        assert objects.upsert(claim) and objects.upsert(volume)
        assert objects.persistent_volumes[name] == an_object(ObjectKind.PERSISTENT_VOLUME, name, labels={"zone": zone})
    a, b, c = (objects.persistent_volumes[name] for name in "abc")
    assert a.spec.node_affinity is b.spec.node_affinity is c.spec.node_affinity
    assert a.metadata.labels is b.metadata.labels is not c.metadata.labels
    claims = objects.claims
    assert claims["default/a"].spec.resources is claims["default/b"].spec.resources
