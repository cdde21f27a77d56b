"""Provisions volumes for claims of the simulator's own storage classes, and removes them with their claims.

    claim without a class --> the default class, if there is one
    claim of our provisioner --> a volume in the zone of the selected node; at once, if the class binds at once
    claim deleted --> its volume deleted

Claims of other provisioners are left alone, as in a cluster whose provisioner is away.
"""

from functools import partial

from testing.simulator.cluster import TOPOLOGY, SimulatedCluster
from testing.simulator.controllers import Controller
from testing.simulator.resources import NODES, Object, builtin
from testing.simulator.store import Change, Item

PROVISIONER = "disk.example.com"
CLASSES = builtin("storageclasses", "storage.k8s.io")
CLAIMS = builtin("persistentvolumeclaims")
VOLUMES = builtin("persistentvolumes")
IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_DONE = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}


class VolumeProvisioner(Controller):
    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster, {CLAIMS: self._on_claim})

    def _on_claim(self, change: Change) -> None:
        if len(self._store.bucket(CLASSES)):
            self._make_due((change.item.namespace, change.item.name), partial(self._look_at, change.item))

    def _look_at(self, item: Item) -> None:
        present = self._store.bucket(CLAIMS).get(item.namespace, item.name)
        if present is None or present.uid != item.uid:
            volume = self._store.bucket(VOLUMES).get("", _volume_name(item))
            if volume is not None:
                self._cluster.delete(VOLUMES, volume)
            return
        claim = present.decode()
        spec, metadata = claim["spec"], claim["metadata"]
        if spec.get("volumeName") or metadata.get("deletionTimestamp"):
            return
        if spec.get("storageClassName") is None:
            self._give_default_class(claim)
        found = self._store.bucket(CLASSES).get("", spec.get("storageClassName") or "")
        storage_class: Object = {} if found is None else found.decode()
        node = (metadata.get("annotations") or {}).get(SELECTED_NODE)
        waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer" and node is None
        if storage_class.get("provisioner") == PROVISIONER and not waits:
            self._provision(present, claim, node)

    def _give_default_class(self, claim: Object) -> None:
        for item in self._store.bucket(CLASSES).in_order():
            if (item.decode()["metadata"].get("annotations") or {}).get(IS_DEFAULT) == "true":
                claim["spec"]["storageClassName"] = item.name
                self._store.put(CLAIMS, claim)
                return

    def _provision(self, item: Item, claim: Object, node: str | None) -> None:
        spec, name = claim["spec"], _volume_name(item)
        capacity = {"storage": ((spec.get("resources") or {}).get("requests") or {}).get("storage", "1Gi")}
        volume: Object = {
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
            "spec": {
                "capacity": capacity,
                "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": spec["storageClassName"],
                "claimRef": {
                    "kind": "PersistentVolumeClaim",
                    "apiVersion": "v1",
                    "namespace": item.namespace,
                    "name": item.name,
                    "uid": item.uid,
                },
                "csi": {"driver": PROVISIONER, "volumeHandle": name},
            },
            "status": {"phase": "Bound"},
        }
        found = self._store.bucket(NODES).get("", node or "")
        if found is not None and TOPOLOGY[1] in found.labels:
            requirement = {"key": TOPOLOGY[1], "operator": "In", "values": [found.labels[TOPOLOGY[1]]]}
            volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}
        self._cluster.create(VOLUMES, "", volume)
        spec["volumeName"] = name
        claim["metadata"]["annotations"] = {**(claim["metadata"].get("annotations") or {}), **_DONE}
        claim["status"] = {"phase": "Bound", "accessModes": volume["spec"]["accessModes"], "capacity": capacity}
        self._store.put(CLAIMS, claim)


def _volume_name(claim: Item) -> str:
    return f"pvc-{claim.uid}"
