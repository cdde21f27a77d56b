"""What a cluster does about devices besides scheduling: a claim controller, and a driver for nodes that ask for one.

pod with a template --controller--> claim of its own, named in the pod's status
pod gone or finished --controller--> no longer in reservedFor; unreserved: devices given back; its own claim deleted
node with the annotation DEVICES --driver--> ResourceSlice with so many devices, as long as the node is there
"""

import asyncio
import contextlib
from typing import Any

from testing.simulator.cluster import FINISHED, SimulatedCluster
from testing.simulator.errors import ApiError
from testing.simulator.kubelet import BATCH, MALFORMED
from testing.simulator.resources import NODES, PODS, ApiResource, Object
from testing.simulator.store import ADDED, Change, Item

DEVICES = "simulator.flotilla.io/devices"
"""Annotation of a node: how many devices it has."""
MODEL = "simulator.flotilla.io/device-model"
"""Annotation of a node: its devices' attribute `model`."""
MEMORY = "simulator.flotilla.io/device-memory"
"""Annotation of a node: its devices' capacity `memory`."""
DRIVER = "gpu.example.com"
MOST_DEVICES = 128
"""Of one slice, as the API server allows."""

GROUP, VERSION = "resource.k8s.io", "v1"
FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_PHASE = PODS.field_index["status.phase"]


class DeviceControllers:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._pods, self._nodes = cluster.store.bucket(PODS), cluster.store.bucket(NODES)
        self._claims, self._templates, self._slices = map(
            self._resource, ("resourceclaims", "resourceclaimtemplates", "resourceslices")
        )
        self._wake = asyncio.Event()
        self._changed: dict[tuple[ApiResource, str, str], Item] = {}
        """Pods and nodes to look at, by namespace and name: their last versions."""
        self._parked: dict[tuple[str, str], dict[str, Item]] = {}
        """By template that does not exist: the pods that wait for it."""

    def _resource(self, plural: str) -> ApiResource:
        found = self._cluster.catalog.find(GROUP, VERSION, plural)
        assert found is not None
        return found

    async def run(self) -> None:
        watched = (
            (self._pods, self._on_pod),
            (self._nodes, self._on_node),
            (self._cluster.store.bucket(self._templates), self._on_template),
        )
        for bucket, listener in watched:
            bucket.listeners.append(listener)
        try:
            while True:
                self._wake.clear()
                for key, item in list(self._changed.items())[:BATCH]:
                    del self._changed[key]
                    with contextlib.suppress(ApiError, *MALFORMED):
                        self._look_at_node(item) if key[0] is NODES else self._look_at_pod(item)
                await (asyncio.sleep(0) if self._changed else self._wake.wait())
        finally:
            for bucket, listener in watched:
                bucket.listeners.remove(listener)

    def _on_pod(self, change: Change) -> None:
        if b'"resourceClaim' in change.item.raw or b'"extendedResourceClaimStatus"' in change.item.raw:
            self._note(PODS, change.item)

    def _on_node(self, change: Change) -> None:
        if DEVICES.encode() in change.item.raw:
            self._note(NODES, change.item)

    def _on_template(self, change: Change) -> None:
        if change.type == ADDED:
            for item in self._parked.pop((change.item.namespace, change.item.name), {}).values():
                self._note(PODS, item)

    def _note(self, resource: ApiResource, item: Item) -> None:
        self._changed[resource, item.namespace, item.name] = item
        self._wake.set()

    # Claims

    def _look_at_pod(self, item: Item) -> None:
        present = self._pods.get(item.namespace, item.name)
        if present is None or present.uid != item.uid or present.fields[_PHASE] in FINISHED:
            self._release(item.decode())
            return
        pod = present.decode()
        status = pod.setdefault("status", {})
        named: list[Object] = list(status.get("resourceClaimStatuses") or [])
        known = {each["name"] for each in named}
        for use in pod["spec"].get("resourceClaims") or ():
            template = use.get("resourceClaimTemplateName")
            if template is None or use["name"] in known:
                continue
            made = self._make_claim(present, use["name"], template)
            if made is not None:
                named.append({"name": use["name"], "resourceClaimName": made.name})
        if len(named) > len(known):
            status["resourceClaimStatuses"] = named
            self._cluster.store.put(PODS, pod)

    def _make_claim(self, pod: Item, name: str, template: str) -> Item | None:
        found = self._cluster.store.bucket(self._templates).get(pod.namespace, template)
        if found is None:
            self._parked.setdefault((pod.namespace, template), {})[pod.uid] = pod
            return None
        inner = found.decode()["spec"]
        metadata: Object = dict(inner.get("metadata") or {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), POD_CLAIM_NAME: name}
        metadata["generateName"] = f"{pod.name}-{name}-"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        metadata["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        return self._cluster.create(self._claims, pod.namespace, {"metadata": metadata, "spec": inner["spec"]})

    def _release(self, pod: Object) -> None:
        namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
        status = pod.get("status") or {}
        names = [use.get("resourceClaimName") for use in pod["spec"].get("resourceClaims") or ()]
        names += [each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()]
        names.append((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
        for name in dict.fromkeys(filter(None, names)):
            item = self._cluster.store.bucket(self._claims).get(namespace, name)
            if item is not None:
                self._release_claim(item, uid)

    def _release_claim(self, item: Item, pod_uid: str) -> None:
        claim = item.decode()
        status, metadata = claim.get("status") or {}, claim["metadata"]
        reserved: list[Object] = status.get("reservedFor") or []
        left = [each for each in reserved if each.get("uid") != pod_uid]
        if reserved and not left:
            claim["status"] = {}
            metadata["finalizers"] = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
        elif reserved:
            claim["status"] = {**status, "reservedFor": left}
        item = self._cluster.write(self._claims, claim) if reserved else item
        if any(owner.get("uid") == pod_uid for owner in metadata.get("ownerReferences") or ()):
            self._cluster.delete(self._claims, item)

    # The driver

    def _look_at_node(self, item: Item) -> None:
        """Publish the node's devices, or take them back with the node."""
        name = f"{item.name}-{DRIVER}"
        published = self._cluster.store.bucket(self._slices).get("", name)
        present = self._nodes.get("", item.name)
        annotations: Any = {} if present is None else present.decode()["metadata"].get("annotations") or {}
        try:
            count = min(int(annotations.get(DEVICES, 0)), MOST_DEVICES)
        except ValueError:
            count = 0
        if count <= 0:
            if published is not None:
                self._cluster.delete(self._slices, published)
            return
        devices = [_device(number, annotations) for number in range(count)]
        if published is None:
            pool = {"name": item.name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": DRIVER, "pool": pool, "nodeName": item.name, "devices": devices}
            self._cluster.create(self._slices, "", {"metadata": {"name": name}, "spec": spec})
            return
        obj = published.decode()
        if obj["spec"]["devices"] != devices:
            obj["spec"]["devices"] = devices
            obj["spec"]["pool"]["generation"] += 1
            self._cluster.update(self._slices, published, obj)


def _device(number: int, annotations: Object) -> Object:
    device: Object = {"name": f"gpu-{number}", "attributes": {"index": {"int": number}}}
    if MODEL in annotations:
        device["attributes"]["model"] = {"string": annotations[MODEL]}
    if MEMORY in annotations:
        device["capacity"] = {"memory": {"value": annotations[MEMORY]}}
    return device
