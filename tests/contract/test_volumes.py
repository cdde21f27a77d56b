"""Volumes and claims, as a scheduler writes them: whole, and only if nobody has changed them meanwhile."""

from typing import Any

import pytest

from tests.contract.place import VOLUMES, Place
from tests.contract.server import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SELECTED = "volume.kubernetes.io/selected-node"


async def a_class(place: Place, name: str) -> str:
    fields: dict[str, Any] = {
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    made = await place.make(CLASSES, name, **fields)
    assert made["reclaimPolicy"] == "Delete"
    return str(made["metadata"]["name"])


async def a_volume(place: Place, name: str, of_class: str) -> Object:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}]}
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of_class,
        "persistentVolumeReclaimPolicy": "Retain",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "local": {"path": "/data"},
    }
    made = await place.make(VOLUMES, name, spec=spec)
    assert made["spec"]["volumeMode"] == "Filesystem"
    path = f"{VOLUMES}/{made['metadata']['name']}"
    available = await place.server.patch(f"{path}/status", {"status": {"phase": "Available"}})
    assert available["status"]["phase"] == "Available"
    return available


async def a_claim(place: Place, name: str, of_class: str) -> Object:
    resources = {"requests": {"storage": "5Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": of_class, "resources": resources}
    made = await place.server.post(place.claims, {"metadata": {"name": name}, "spec": spec})
    assert (made["status"]["phase"], made["spec"]["volumeMode"]) == ("Pending", "Filesystem")
    return made


async def test_a_volume_is_given_to_a_claim(place: Place) -> None:
    of_class = await a_class(place, "gives")
    volume = await a_volume(place, "given", of_class)
    claim = await a_claim(place, "given", of_class)
    meta = claim["metadata"]
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    reference |= {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    changed = {**volume, "spec": {**volume["spec"], "claimRef": reference}}
    changed["metadata"] = {**volume["metadata"], "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}
    written = await place.server.put(path, changed)
    assert written["spec"]["claimRef"]["uid"] == meta["uid"]
    assert written["status"]["phase"] == "Available"
    status = await place.server.refused(409, "Conflict", "PUT", path, changed)
    assert "the object has been modified" in status["message"]


async def test_a_claim_is_told_its_node(place: Place) -> None:
    claim = await a_claim(place, "told", "none")
    path = f"{place.claims}/told"
    changed = {**claim, "metadata": {**claim["metadata"], "annotations": {SELECTED: "n"}}}
    written = await place.server.put(path, changed)
    assert written["metadata"]["annotations"] == {SELECTED: "n"}
    status = await place.server.refused(409, "Conflict", "PUT", path, changed)
    assert status["details"] == {"name": "told", "kind": "persistentvolumeclaims"}
    assert "annotations" not in (await place.server.patch(path, {"metadata": {"annotations": None}}))["metadata"]


async def test_a_claim_is_bound_for_good(place: Place) -> None:
    claim = await a_claim(place, "bound", "none")
    path = f"{place.claims}/bound"
    written = await place.server.put(path, {**claim, "spec": {**claim["spec"], "volumeName": place.unique("v")}})
    other = {**written, "spec": {**written["spec"], "volumeName": "other"}}
    await place.server.refused(422, "Invalid", "PUT", path, other)
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}}
    patched = await place.server.patch(f"{path}/status", {"status": status})
    assert patched["status"] == status


async def test_without_a_version_the_last_word_counts(place: Place) -> None:
    """So whoever writes them must send the version that was read."""
    claim = await a_claim(place, "blind", "none")
    await place.server.patch(f"{place.claims}/blind", {"metadata": {"labels": {"a": "b"}}})
    del claim["metadata"]["resourceVersion"]
    written = await place.server.put(f"{place.claims}/blind", claim)
    assert "labels" not in written["metadata"]


async def test_a_volume_made_anew_is_not_taken_for_the_old_one(place: Place) -> None:
    claim = await a_claim(place, "anew", "none")
    path = f"{place.claims}/anew"
    await place.server.patch(path, {"metadata": {"finalizers": None}})
    await place.server.delete(path)
    await a_claim(place, "anew", "none")
    await place.server.refused(409, "Conflict", "PUT", path, claim)
