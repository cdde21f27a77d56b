"""One object of each kind but nodes and pods, as API servers show it: with many fields that Flotilla does not read."""

import copy
from typing import Any

from shared.model.objects import ClusterObject, ObjectKind, object_from

Raw = dict[str, Any]

_SELECTOR = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}
_ZONES = {"key": "zone", "operator": "In", "values": ["a"]}

_PARTS: dict[ObjectKind, Raw] = {
    ObjectKind.NAMESPACE: {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    ObjectKind.SERVICE: {"spec": {"selector": {"app": "web"}, "clusterIP": "10.0.0.1", "ports": [{"port": 80}]}},
    ObjectKind.REPLICA_SET: {"spec": {"selector": _SELECTOR, "replicas": 3}, "status": {"replicas": 2}},
    ObjectKind.REPLICATION_CONTROLLER: {"spec": {"selector": {"app": "web"}, "replicas": 3}, "status": {"replicas": 2}},
    ObjectKind.STATEFUL_SET: {"spec": {"selector": _SELECTOR, "serviceName": "web"}, "status": {"replicas": 2}},
    ObjectKind.PERSISTENT_VOLUME: {
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": "c-uid"},
            "persistentVolumeReclaimPolicy": "Delete",
            "volumeMode": "Filesystem",
            "csi": {"driver": "disk.example.com", "volumeHandle": "h", "fsType": "ext4"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [_ZONES]}]}},
        },
        "status": {"phase": "Bound", "lastPhaseTransitionTime": "2024-01-01T00:00:00Z"},
    },
    ObjectKind.PERSISTENT_VOLUME_CLAIM: {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": "v",
            "resources": {"requests": {"storage": "8Gi"}},
        },
        "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}, "conditions": None},
    },
    ObjectKind.STORAGE_CLASS: {
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
        "parameters": {"type": "ssd"},
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
    },
    ObjectKind.CSI_NODE: {
        "spec": {
            "drivers": [
                {"name": "disk.example.com", "nodeID": "i-1", "topologyKeys": ["zone"], "allocatable": {"count": 5}},
                {"name": "files.example.com", "nodeID": "i-1", "topologyKeys": None},
            ]
        }
    },
    ObjectKind.CSI_DRIVER: {"spec": {"storageCapacity": True, "attachRequired": True, "fsGroupPolicy": "File"}},
    ObjectKind.CSI_STORAGE_CAPACITY: {
        "storageClassName": "fast",
        "capacity": "100Gi",
        "maximumVolumeSize": "20Gi",
        "nodeTopology": {"matchLabels": {"zone": "a"}},
    },
    ObjectKind.VOLUME_ATTACHMENT: {
        "spec": {"attacher": "disk.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
        "status": {"attached": True},
    },
    ObjectKind.POD_DISRUPTION_BUDGET: {
        "spec": {"selector": _SELECTOR, "maxUnavailable": 1},
        "status": {"disruptionsAllowed": 1, "disruptedPods": {"p": "2024-01-01T00:00:00Z"}, "currentHealthy": 2},
    },
    ObjectKind.POD_GROUP: {
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "podGroupTemplateRef": {"workload": {}}},
        "status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]},
    },
    ObjectKind.COSCHEDULING_POD_GROUP: {
        "spec": {"minMember": 3, "scheduleTimeoutSeconds": 30, "minResources": {"cpu": "3"}},
        "status": {"phase": "Pending", "running": 1},
    },
    ObjectKind.COMPOSITE_POD_GROUP: {
        "spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": 2}},
            "parentCompositePodGroupName": "root",
            "workloadRef": {"workloadName": "w", "templateName": "t"},
        },
        "status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]},
    },
    ObjectKind.RESOURCE_CLAIM: {
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": {
            "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "n", "device": "gpu-0"}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        },
    },
    ObjectKind.RESOURCE_SLICE: {
        "spec": {
            "driver": "d",
            "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "m"}}}],
        }
    },
    ObjectKind.DEVICE_CLASS: {
        "spec": {"extendedResourceName": "example.com/gpu", "selectors": [{"cel": {"expression": "true"}}]}
    },
}


def raw_object(kind: ObjectKind, name: str = "x", **metadata: Any) -> Raw:
    """As plain data; in namespace `default` if the server would have put it into one."""
    noise = {
        "creationTimestamp": "2024-01-01T00:00:00Z",
        "generation": 3,
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        "annotations": {"example.com/note": "n"},
    }
    return {"metadata": {"name": name, "uid": f"{name}-uid", **noise, **metadata}, **copy.deepcopy(_PARTS[kind])}


def an_object(kind: ObjectKind, name: str = "x", **metadata: Any) -> ClusterObject:
    return object_from(kind, raw_object(kind, name, **metadata))


def a_volume(name: str, *, claim: str = "", uid: str = "", **spec: Any) -> ClusterObject:
    """A free persistent volume, or one that is claimed by this claim (`namespace/name`)."""
    namespace, _, claim_name = claim.partition("/")
    reference = {"claimRef": {"namespace": namespace, "name": claim_name, "uid": uid}} if claim else {}
    raw = {"metadata": {"name": name}, "spec": {**spec, **reference}, "status": {"phase": "Available"}}
    return object_from(ObjectKind.PERSISTENT_VOLUME, raw)


def a_claim(name: str, *, uid: str = "", annotations: dict[str, str] | None = None, **spec: Any) -> ClusterObject:
    """A persistent volume claim of namespace `default` that is not bound, if `volumeName` says nothing else."""
    metadata = {"name": name, "uid": uid or f"{name}-uid", "annotations": annotations or {}}
    return object_from(ObjectKind.PERSISTENT_VOLUME_CLAIM, {"metadata": metadata, "spec": spec})
