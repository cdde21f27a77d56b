"""Volumes and claims, as a scheduler writes them: whole, and only if they have not changed meanwhile."""

from typing import Any

import pytest

from tests.contract.sandbox import VOLUMES, Sandbox
from tests.contract.server import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SELECTED = "volume.kubernetes.io/selected-node"


async def a_class(sandbox: Sandbox, name: str) -> str:
    fields: dict[str, Any] = {
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    made = await sandbox.make(CLASSES, name, **fields)
    assert made["reclaimPolicy"] == "Delete"
    return str(made["metadata"]["name"])


async def a_volume(sandbox: Sandbox, name: str, of_class: str) -> Object:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}]}
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of_class,
        "persistentVolumeReclaimPolicy": "Retain",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "local": {"path": "/data"},
    }
    made = await sandbox.make(VOLUMES, name, spec=spec)
    assert made["spec"]["volumeMode"] == "Filesystem"
    path = f"{VOLUMES}/{made['metadata']['name']}"
    available = await sandbox.server.patch(f"{path}/status", {"status": {"phase": "Available"}})
    assert available["status"]["phase"] == "Available"
    return available


async def a_claim(sandbox: Sandbox, name: str, of_class: str) -> Object:
    resources = {"requests": {"storage": "5Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": of_class, "resources": resources}
    made = await sandbox.server.post(sandbox.claims, {"metadata": {"name": name}, "spec": spec})
    assert (made["status"]["phase"], made["spec"]["volumeMode"]) == ("Pending", "Filesystem")
    return made


async def test_a_volume_is_reserved_for_a_claim(sandbox: Sandbox) -> None:
    of_class = await a_class(sandbox, "gives")
    volume = await a_volume(sandbox, "given", of_class)
    claim = await a_claim(sandbox, "given", of_class)
    meta = claim["metadata"]
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    reference |= {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    changed = {**volume, "spec": {**volume["spec"], "claimRef": reference}}
    changed["metadata"] = {**volume["metadata"], "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}
    written = await sandbox.server.put(path, changed)
    assert written["spec"]["claimRef"]["uid"] == meta["uid"]
    assert written["status"]["phase"] == "Available"
    status = await sandbox.server.refused(409, "Conflict", "PUT", path, changed)
    assert "the object has been modified" in status["message"]


async def test_a_claim_gets_the_selected_node(sandbox: Sandbox) -> None:
    claim = await a_claim(sandbox, "told", "none")
    path = f"{sandbox.claims}/told"
    changed = {**claim, "metadata": {**claim["metadata"], "annotations": {SELECTED: "n"}}}
    written = await sandbox.server.put(path, changed)
    assert written["metadata"]["annotations"] == {SELECTED: "n"}
    status = await sandbox.server.refused(409, "Conflict", "PUT", path, changed)
    assert status["details"] == {"name": "told", "kind": "persistentvolumeclaims"}
    assert "annotations" not in (await sandbox.server.patch(path, {"metadata": {"annotations": None}}))["metadata"]


async def test_the_binding_of_a_claim_is_final(sandbox: Sandbox) -> None:
    claim = await a_claim(sandbox, "bound", "none")
    path = f"{sandbox.claims}/bound"
    written = await sandbox.server.put(path, {**claim, "spec": {**claim["spec"], "volumeName": sandbox.unique("v")}})
    other = {**written, "spec": {**written["spec"], "volumeName": "other"}}
    await sandbox.server.refused(422, "Invalid", "PUT", path, other)
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}}
    patched = await sandbox.server.patch(f"{path}/status", {"status": status})
    assert patched["status"] == status


async def test_without_a_version_the_last_write_wins(sandbox: Sandbox) -> None:
    """So a writer must send the version that it has read."""
    claim = await a_claim(sandbox, "blind", "none")
    await sandbox.server.patch(f"{sandbox.claims}/blind", {"metadata": {"labels": {"a": "b"}}})
    del claim["metadata"]["resourceVersion"]
    written = await sandbox.server.put(f"{sandbox.claims}/blind", claim)
    assert "labels" not in written["metadata"]


async def test_a_recreated_volume_is_not_mistaken_for_the_old_one(sandbox: Sandbox) -> None:
    claim = await a_claim(sandbox, "recreated", "none")
    path = f"{sandbox.claims}/recreated"
    await sandbox.server.patch(path, {"metadata": {"finalizers": None}})
    await sandbox.server.delete(path)
    await a_claim(sandbox, "recreated", "none")
    await sandbox.server.refused(409, "Conflict", "PUT", path, claim)
