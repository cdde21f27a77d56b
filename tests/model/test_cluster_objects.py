"""Objects other than nodes and pods: what is read of them, what is left out, and what is refused."""

import json
from typing import Any

import pytest

from shared.errors import InvalidObject
from shared.messages.watch import OBJECT_KINDS, Kind
from shared.model.objects import (
    ClusterObject,
    CSINode,
    CSIStorageCapacity,
    Namespace,
    ObjectKind,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    StorageClass,
    VolumeAttachment,
    decode_object,
    encode_json,
    encode_msgpack,
    is_namespaced,
    key_of,
    kind_of,
    object_from,
    object_from_msgpack,
)
from testing.builders import pod
from tests.samples import a_claim, a_volume, an_object, raw_object

CLUSTER_WIDE = {
    "namespace",
    "persistentvolume",
    "storageclass",
    "csinode",
    "csidriver",
    "volumeattachment",
    "resourceslice",
    "deviceclass",
}


@pytest.mark.parametrize("kind", ObjectKind)
def test_kind_and_key_survive_every_encoding(kind: ObjectKind) -> None:
    obj = an_object(kind)
    assert kind_of(obj) is kind
    assert key_of(obj) == ("x" if kind in CLUSTER_WIDE else "default/x")
    assert is_namespaced(kind) is (kind not in CLUSTER_WIDE)
    assert object_from_msgpack(encode_msgpack(obj)) == obj
    assert decode_object(kind, encode_json(obj)) == obj
    assert decode_object(kind, json.dumps(raw_object(kind)).encode()) == obj


@pytest.mark.parametrize("kind", ObjectKind)
def test_fields_that_are_not_read_make_no_difference(kind: ObjectKind) -> None:
    noise: dict[str, Any] = {"resourceVersion": "7", "annotations": {"example.com/other": "o"}, "generation": 9}
    assert an_object(kind, **noise) == an_object(kind)
    assert an_object(kind).metadata.annotations == {}
    assert b"managedFields" not in encode_json(an_object(kind))


@pytest.mark.parametrize("kind", ObjectKind)
def test_an_object_of_another_kind_or_without_a_name_is_refused(kind: ObjectKind) -> None:
    with pytest.raises(InvalidObject, match="x: kind: "):
        object_from(kind, {**raw_object(kind), "kind": "Pod"})
    with pytest.raises(InvalidObject, match=r"\(unnamed\): metadata.name: must not be empty"):
        object_from(kind, raw_object(kind, ""))
    with pytest.raises(InvalidObject, match="not JSON"):
        decode_object(kind, b"{")


def test_a_bad_field_is_named_with_the_object() -> None:
    raw = raw_object(ObjectKind.PERSISTENT_VOLUME_CLAIM, "c", namespace="ns")
    raw["spec"]["resources"]["requests"]["storage"] = "much"
    with pytest.raises(InvalidObject, match=r"PersistentVolumeClaim ns/c: spec.resources.requests.storage: "):
        object_from(ObjectKind.PERSISTENT_VOLUME_CLAIM, raw)
    volume = raw_object(ObjectKind.PERSISTENT_VOLUME, "v") | {"spec": {"capacity": 1}}
    with pytest.raises(InvalidObject, match=r"^PersistentVolume v: spec.capacity"):
        object_from(ObjectKind.PERSISTENT_VOLUME, volume)


def test_every_kind_is_watched_under_its_name() -> None:
    assert {kind.value for kind in OBJECT_KINDS} == {kind.value for kind in ObjectKind}
    assert set(Kind) - set(OBJECT_KINDS) == {Kind.POD, Kind.NODE}


def read(kind: ObjectKind) -> Any:
    return an_object(kind)


def test_fields_that_plugins_read_are_kept() -> None:
    volume: PersistentVolume = read(ObjectKind.PERSISTENT_VOLUME)
    assert volume.spec.csi is not None and volume.spec.csi.volume_handle == "h"
    assert volume.spec.node_affinity is not None and volume.spec.node_affinity.required is not None
    assert volume.spec.claim_ref is not None and volume.spec.claim_ref.key == "default/c"
    assert (volume.status.phase, volume.spec.capacity["storage"].value) == ("Bound", 10 << 30)
    claim: PersistentVolumeClaim = read(ObjectKind.PERSISTENT_VOLUME_CLAIM)
    assert (claim.spec.volume_name, claim.spec.storage_class_name, claim.storage_class) == ("v", "", "")
    storage_class: StorageClass = read(ObjectKind.STORAGE_CLASS)
    assert storage_class.allowed_topologies[0].match_label_expressions[0].values == ["a", "b"]
    node: CSINode = read(ObjectKind.CSI_NODE)
    assert [driver.allocatable and driver.allocatable.count for driver in node.spec.drivers] == [5, None]
    capacity: CSIStorageCapacity = read(ObjectKind.CSI_STORAGE_CAPACITY)
    assert capacity.maximum_volume_size is not None and capacity.maximum_volume_size.value == 20 << 30
    attachment: VolumeAttachment = read(ObjectKind.VOLUME_ATTACHMENT)
    assert attachment.spec.source.persistent_volume_name == "v"
    budget: PodDisruptionBudget = read(ObjectKind.POD_DISRUPTION_BUDGET)
    assert (budget.status.disruptions_allowed, list(budget.status.disrupted_pods)) == (1, ["p"])


def test_labels_owners_and_annotations_are_kept_where_they_are_read() -> None:
    labels = {"team": "a"}
    namespace, service = an_object(ObjectKind.NAMESPACE, labels=labels), an_object(ObjectKind.SERVICE, labels=labels)
    assert isinstance(namespace, Namespace)
    assert (namespace.labels, service.metadata.labels) == (labels, {})
    owner = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}]
    assert an_object(ObjectKind.PERSISTENT_VOLUME_CLAIM, ownerReferences=owner).metadata.owner_references[0].uid == "u"
    bound = {"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n"}
    claim = an_object(ObjectKind.PERSISTENT_VOLUME_CLAIM, annotations={**bound, "a": "b"})
    assert isinstance(claim, PersistentVolumeClaim)
    assert (claim.metadata.annotations, claim.fully_bound, claim.selected_node) == (bound, True, "n")


@pytest.mark.parametrize(
    ("volume", "is_bound"),
    [
        (a_volume("v"), False),
        (a_volume("v", claim="default/c"), True),
        (a_volume("v", claim="default/c", uid="c-uid"), True),
        (a_volume("v", claim="default/c", uid="another"), False),
        (a_volume("v", claim="other/c"), False),
    ],
)
def test_which_claim_a_volume_is_bound_to(volume: ClusterObject, is_bound: bool) -> None:
    claim = a_claim("c")
    assert isinstance(volume, PersistentVolume) and isinstance(claim, PersistentVolumeClaim)
    assert volume.is_bound_to(claim) is is_bound


def test_the_class_of_old_annotations_counts_before_the_field() -> None:
    beta = {"volume.beta.kubernetes.io/storage-class": "old"}
    claim = a_claim("c", annotations=beta, storageClassName="new")
    volume = an_object(ObjectKind.PERSISTENT_VOLUME, annotations=beta)
    assert isinstance(volume, PersistentVolume) and isinstance(claim, PersistentVolumeClaim)
    assert (claim.storage_class, volume.storage_class) == ("old", "old")


@pytest.mark.parametrize(
    ("text", "started"),
    [(None, None), ("1970-01-01T00:01:00Z", 60.0), ("1970-01-01T00:01:00", 60.0), ("yesterday", None)],
)
def test_start_time_of_a_pod(text: str | None, started: float | None) -> None:
    built = pod("p").build()
    status = type(built.status)(start_time=text)
    assert type(built)(metadata=built.metadata, spec=built.spec, status=status).started == started
