"""Kubernetes manifests as objects to decide on: pods, the pods of workloads, nodes, and other objects that matter.

Objects are completed and checked as an API server would when they are created.
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from shared.errors import UserError
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, is_namespaced, node_from, object_from, pod_from
from shared.model.pod import PodResourceClaimStatus
from testing.simulator.admission import admit_new
from testing.simulator.resources import NODES, PODS

Object = dict[str, Any]

CREATED = "2000-01-01T00:00:00Z"
"""Of every object that is made here; no decision between pods of one question depends on it."""
UID = "whatif"
"""Begins the uids of objects that are made here."""
MAX_PODS = 100_000
"""Pods of one question, with all replicas."""
_KINDS = {
    "Namespace": ObjectKind.NAMESPACE,
    "Service": ObjectKind.SERVICE,
    "PersistentVolume": ObjectKind.PERSISTENT_VOLUME,
    "PersistentVolumeClaim": ObjectKind.PERSISTENT_VOLUME_CLAIM,
    "StorageClass": ObjectKind.STORAGE_CLASS,
    "CSINode": ObjectKind.CSI_NODE,
    "CSIDriver": ObjectKind.CSI_DRIVER,
    "CSIStorageCapacity": ObjectKind.CSI_STORAGE_CAPACITY,
    "VolumeAttachment": ObjectKind.VOLUME_ATTACHMENT,
    "PodDisruptionBudget": ObjectKind.POD_DISRUPTION_BUDGET,
    "CompositePodGroup": ObjectKind.COMPOSITE_POD_GROUP,
    "ResourceClaim": ObjectKind.RESOURCE_CLAIM,
    "ResourceSlice": ObjectKind.RESOURCE_SLICE,
    "DeviceClass": ObjectKind.DEVICE_CLASS,
}
"""Objects that decisions depend on, besides pods, nodes, workloads and pod groups."""
_OWNERS = {
    "ReplicaSet": ObjectKind.REPLICA_SET,
    "ReplicationController": ObjectKind.REPLICATION_CONTROLLER,
    "StatefulSet": ObjectKind.STATEFUL_SET,
}
"""Workloads whose selectors spread their pods."""
_WORKLOADS = ("Deployment", *_OWNERS, "Job")
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
TAKEN = ("Pod", "Node", "List", "PriorityClass", "PodGroup", "ResourceClaimTemplate", *_WORKLOADS, *_KINDS)


@dataclass(slots=True)
class Manifests:
    pods: list[Pod] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    objects: list[ClusterObject] = field(default_factory=list)


def read(name: str, values: Iterable[object], namespace: str = "default") -> Manifests:
    """What these documents create. UserError if they contain anything else, or something invalid."""
    reader = _Reader(namespace)
    parts = [part for value in values for part in _items(name, value)]
    for part in parts:
        if part["kind"] == "PriorityClass":
            reader.priorities[str(part["metadata"].get("name"))] = part
        elif part["kind"] == "ResourceClaimTemplate":
            key = part["metadata"].get("namespace", namespace), part["metadata"].get("name")
            reader.claim_templates[key] = part
    for part in parts:
        try:
            reader.add(copy.deepcopy(part))
        except UserError as cause:
            raise UserError(f"{name}: {part['kind']} {part['metadata'].get('name', '')}: {cause}") from None
        except (AttributeError, KeyError, TypeError, ValueError) as cause:
            why = f"has another form than the API's ({type(cause).__name__}: {cause})"
            raise UserError(f"{name}: {part['kind']} {part['metadata'].get('name', '')}: {why}") from None
    return reader.found


def _items(name: str, value: object) -> Iterator[Object]:
    """The objects of a document, those of lists each by itself."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise UserError(f"{name}: expected Kubernetes objects, each with apiVersion, kind and metadata")
    kind = value["kind"]
    if kind.endswith("List") and isinstance(value.get("items"), list):
        for item in value["items"]:
            if isinstance(item, dict):
                item = {"kind": kind.removesuffix("List")} | item
            yield from _items(name, item)
        return
    if kind == "DaemonSet":
        raise UserError(f"{name}: DaemonSet: its pods belong to their nodes; ask about its Pod with a node affinity")
    if kind not in TAKEN:
        raise UserError(f"{name}: {kind} does not matter to a scheduler here; taken are {', '.join(TAKEN)}")
    if not isinstance(value.get("metadata"), dict):
        raise UserError(f"{name}: {kind}: metadata: is missing")
    yield value


class _Reader:
    def __init__(self, namespace: str) -> None:
        self.found = Manifests()
        self.priorities: dict[str, Object] = {}
        self.claim_templates: dict[tuple[str, str], Object] = {}
        self._namespace = namespace
        self._pods = 0

    def add(self, obj: Object) -> None:
        kind, metadata = obj["kind"], obj["metadata"]
        if kind == "Pod":
            self._add_pod(obj)
        elif kind == "Node":
            self.found.nodes.append(read_node(obj))
        elif kind in _WORKLOADS:
            self._add_workload(kind, obj)
        elif kind == "PodGroup":
            coscheduling = str(obj.get("apiVersion", "")).startswith("scheduling.x-k8s.io")
            group = ObjectKind.COSCHEDULING_POD_GROUP if coscheduling else ObjectKind.POD_GROUP
            metadata.setdefault("namespace", self._namespace)
            self.found.objects.append(object_from(group, obj))
        elif kind not in ("PriorityClass", "ResourceClaimTemplate"):
            self._add_object(_KINDS[kind], obj)

    def _add_object(self, kind: ObjectKind, obj: Object) -> None:
        metadata = obj["metadata"]
        if is_namespaced(kind):
            metadata.setdefault("namespace", self._namespace)
        metadata.setdefault("uid", f"{UID}-{kind}-{metadata.get('namespace', '')}/{metadata.get('name')}")
        self.found.objects.append(object_from(kind, obj))

    def _add_pod(self, obj: Object) -> None:
        self._pods += 1
        if self._pods > MAX_PODS:
            raise UserError(f"more than {MAX_PODS} pods in one question")
        metadata = obj["metadata"]
        metadata.setdefault("namespace", self._namespace)
        if not metadata.get("name"):
            metadata["name"] = f"{metadata.get('generateName') or 'pod-'}{self._pods}"
        metadata["uid"] = f"{UID}-{self._pods}"
        metadata["creationTimestamp"] = CREATED
        for part in ("resourceVersion", "deletionTimestamp", "managedFields"):
            metadata.pop(part, None)
        obj.pop("status", None)
        spec = obj.setdefault("spec", {})
        priority, policy = spec.pop("priority", None), spec.pop("preemptionPolicy", None)
        admit_new(PODS, obj, lambda name: self._priority_class(name, priority, policy))
        made = self._make_claims(metadata, spec)
        pod = pod_from(obj)
        self.found.pods.append(replace(pod, status=replace(pod.status, resource_claim_statuses=made)))

    def _make_claims(self, metadata: Object, spec: Object) -> list[PodResourceClaimStatus]:
        """What controllers make for a pod: claims of its ephemeral volumes, and of devices, which its status names."""
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }

        def make(kind: ObjectKind, name: str, template: Object) -> str:
            name = f"{metadata['name']}-{name}"
            given = {**(template.get("metadata") or {}), "name": name, "namespace": metadata["namespace"]}
            self._add_object(kind, copy.deepcopy({**template, "metadata": {**given, "ownerReferences": [owner]}}))
            return name

        for volume in spec.get("volumes") or ():
            if volume.get("ephemeral"):
                template = volume["ephemeral"]["volumeClaimTemplate"]
                make(ObjectKind.PERSISTENT_VOLUME_CLAIM, volume["name"], template)
        made = []
        for use in spec.get("resourceClaims") or ():
            found = self.claim_templates.get((metadata["namespace"], use.get("resourceClaimTemplateName", "")))
            if found is not None:
                name = make(ObjectKind.RESOURCE_CLAIM, use["name"], found["spec"])
                made.append(PodResourceClaimStatus(name=use["name"], resource_claim_name=name))
        return made

    def _priority_class(self, name: str, priority: int | None, policy: str | None) -> Object | None:
        """A pod that was written by an API server has its numbers, too, which then count."""
        given = self.priorities.get(name)
        if given is not None:
            return given
        value = _SYSTEM_PRIORITIES.get(name, priority)
        if value is None and name:
            why = "add the class to the file, or spec.priority"
            raise UserError(f"the value of PriorityClass {name} is not known: {why}")
        if value is None and policy is None:
            return None
        return {"metadata": {"name": name}, "value": value or 0, "preemptionPolicy": policy or "PreemptLowerPriority"}

    def _add_workload(self, kind: str, obj: Object) -> None:
        metadata, spec = obj["metadata"], obj["spec"]
        name, namespace = metadata["name"], metadata.setdefault("namespace", self._namespace)
        template, count = spec["template"], _replicas(kind, spec)
        owner, uid = kind, f"{UID}-{kind}-{namespace}-{name}"
        if kind == "Deployment":
            owner = "ReplicaSet"
            obj = {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": spec.get("selector")}}
        if owner in _OWNERS:
            self.found.objects.append(object_from(_OWNERS[owner], obj | {"kind": owner}))
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": name, "uid": uid, "controller": True}
        for i in range(count):
            pod = copy.deepcopy(template)
            made = pod.setdefault("metadata", {})
            made |= {"name": f"{name}-{i}", "namespace": namespace, "ownerReferences": [reference]}
            if kind == "StatefulSet":
                self._claim(spec.get("volumeClaimTemplates") or (), pod, namespace)
            self._add_pod(pod)

    def _claim(self, templates: Iterable[Object], pod: Object, namespace: str) -> None:
        """The claims that a StatefulSet makes for a pod."""
        for template in templates:
            volume = template["metadata"]["name"]
            name = f"{volume}-{pod['metadata']['name']}"
            claim = {**copy.deepcopy(template), "metadata": {**template["metadata"], "name": name}}
            claim["metadata"]["namespace"] = namespace
            self._add_object(ObjectKind.PERSISTENT_VOLUME_CLAIM, claim)
            volumes = pod["spec"].setdefault("volumes", [])
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": name}})


def read_node(obj: Object) -> Node:
    metadata = obj["metadata"]
    metadata["creationTimestamp"] = CREATED
    metadata.setdefault("uid", f"{UID}-{metadata.get('name')}")
    metadata.setdefault("labels", {}).setdefault("kubernetes.io/hostname", metadata.get("name"))
    obj.setdefault("spec", {})
    obj.setdefault("status", {})
    admit_new(NODES, obj, lambda _: None)
    return node_from(obj)


def _replicas(kind: str, spec: Object) -> int:
    if kind == "Job":
        parallel, completions = spec.get("parallelism", 1), spec.get("completions")
        count = parallel if completions is None else min(parallel, completions)
    else:
        count = spec.get("replicas", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_PODS:
        raise UserError(f"spec: {count!r} is no number of pods from 0 to {MAX_PODS}")
    return count
