"""What a cluster does besides scheduling: kubelets, a claim controller, and a driver that publishes devices.

The controllers of Deployments and other workloads are in `workloads`, those of PodGroups in `group_controllers`.

    pod bound --kubelet--> Running --"run-seconds" later--> Succeeded
    pod deleted --kubelet--> gone
    pod with a template --claim controller--> claim of its own or of its group, named in the pod's status
    pod gone or finished --claim controller--> no longer in reservedFor; its own claims deleted
    claim reserved for no pod --claim controller--> devices given back
    node with the annotation DEVICES --driver--> ResourceSlice with that many devices, as long as the node is there

A pod bound to a node that does not exist stays as it is until the node appears.
"""

import asyncio
import contextlib
import heapq
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

from testing.simulator.claims import TEMPLATES, claim_of_group, group_name_of, is_of_group, make_claim, release_claim
from testing.simulator.cluster import FINISHED, SimulatedCluster
from testing.simulator.errors import ApiError
from testing.simulator.metadata import timestamp
from testing.simulator.resources import NODES, POD_GROUPS, PODS, ApiResource, Object, builtin
from testing.simulator.store import ADDED, DELETED, Change, Item, Listener

BATCH = 64
"""Pods and nodes handled before requests get their turn."""
MALFORMED = (ApiError, AttributeError, KeyError, TypeError, ValueError)
"""What an object raises that no controller could decode; it stays as it is."""
_NODE = PODS.field_index["spec.nodeName"]
_PHASE = PODS.field_index["status.phase"]


class Controller:
    """Carries out what is due, oldest first. Listeners make it due, at most once at a time by its key.

    They hear of every object that exists at the start, as by a list, and then of every change.
    """

    def __init__(self, cluster: SimulatedCluster, listeners: Mapping[ApiResource, Listener]) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._listeners = listeners
        self._wake = asyncio.Event()
        self._due: dict[Hashable, Callable[[], None]] = {}

    async def run(self) -> None:
        for resource, listener in self._listeners.items():
            bucket = self._store.bucket(resource)
            bucket.listeners.append(listener)
            for item in bucket.in_order():
                listener(Change(ADDED, item, None))
        try:
            while True:
                self._wake.clear()
                self._look_at_clock()
                for key in list(self._due)[:BATCH]:
                    with contextlib.suppress(*MALFORMED):
                        self._due.pop(key)()
                if self._due:
                    await asyncio.sleep(0)
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._wake.wait()
        finally:
            for resource, listener in self._listeners.items():
                self._store.bucket(resource).listeners.remove(listener)

    def _make_due(self, key: Hashable, step: Callable[[], None]) -> None:
        self._due[key] = step
        self._wake.set()

    def _look_at_clock(self) -> None:
        """Make due what has waited for this moment."""

    def _pause(self) -> float | None:
        """Seconds until the next look at the clock; None: not before a listener is called."""
        return None


RUN_SECONDS = "simulator.flotilla.io/run-seconds"
ADDRESSES = 1 << 22
MAX_SLEEP = 1.0
DEFAULT_ADDRESS = "127.0.0.1"
CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
Key = tuple[str, str, str]
"""Namespace, name and uid."""
Step = Callable[[Item, Item], None]
"""What a kubelet does about a pod on a node."""


class Kubelets(Controller):
    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster, {PODS: self._on_pod, NODES: self._on_node})
        self._addresses = 0
        self._later: list[tuple[float, Key]] = []
        """When pods complete."""
        self._parked: dict[str, list[tuple[Key, Step]]] = {}
        """By node that does not exist: the steps that wait for it."""

    def _look_at_clock(self) -> None:
        while self._later and self._later[0][0] <= self._cluster.clock():
            self._begin(heapq.heappop(self._later)[1], self._complete)

    def _pause(self) -> float | None:
        """At most a second, because the cluster's clock may jump."""
        return min(max(0.0, self._later[0][0] - self._cluster.clock()), MAX_SLEEP) if self._later else None

    def _begin(self, key: Key, step: Step) -> None:
        self._make_due((key, step), partial(self._carry_out, key, step))

    def _on_pod(self, change: Change) -> None:
        item = change.item
        if change.type == DELETED or not item.fields[_NODE]:
            return
        key = (item.namespace, item.name, item.uid)
        if b'"deletionTimestamp"' in item.raw and "deletionTimestamp" in item.decode()["metadata"]:
            self._begin(key, self._remove)
        elif item.fields[_PHASE] == "Pending":
            self._begin(key, self._start)

    def _on_node(self, change: Change) -> None:
        """Release the steps that waited for a new node."""
        for key, step in self._parked.pop(change.item.name, ()) if change.type == ADDED else ():
            self._begin(key, step)

    def _carry_out(self, key: Key, step: Step) -> None:
        namespace, name, uid = key
        item = self._store.bucket(PODS).get(namespace, name)
        if item is None or item.uid != uid:
            return
        node = self._store.bucket(NODES).get("", item.fields[_NODE])
        if node is None:
            self._parked.setdefault(item.fields[_NODE], []).append((key, step))
        else:
            step(item, node)

    def _remove(self, item: Item, node: Item) -> None:
        self._cluster.delete(PODS, item, 0)

    def _start(self, item: Item, node: Item) -> None:
        """Set the status of a pod that starts to run."""
        if item.fields[_PHASE] != "Pending":
            return
        pod, host, now = item.decode(), _address(node), self._cluster.clock()
        spec, status, address = pod["spec"], pod["status"], host
        if not spec.get("hostNetwork"):
            self._addresses = number = (self._addresses + 1) % ADDRESSES
            address = f"10.{128 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"
        at = timestamp(now)
        status |= {"phase": "Running", "startTime": at}
        status |= {"hostIP": host, "hostIPs": [{"ip": host}], "podIP": address, "podIPs": [{"ip": address}]}
        _set_conditions(status, at, ready=True)
        _set_containers(pod, {"running": {"startedAt": at}}, running=True)
        text = (pod["metadata"].get("annotations") or {}).get(RUN_SECONDS)
        with contextlib.suppress(ValueError):
            if text is not None:
                key = (item.namespace, item.name, item.uid)
                heapq.heappush(self._later, (now + max(0.0, float(text)), key))
        self._store.put(PODS, pod)

    def _complete(self, item: Item, node: Item) -> None:
        """Set the status of a pod whose containers have all succeeded."""
        if item.fields[_PHASE] in FINISHED:
            return
        pod, at = item.decode(), timestamp(self._cluster.clock())
        status = pod["status"]
        status["phase"] = "Succeeded"
        _set_conditions(status, at, ready=False)
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": status.get("startTime"), "finishedAt": at}
        _set_containers(pod, {"terminated": ended}, running=False)
        self._store.put(PODS, pod)


def _set_containers(pod: Object, state: Object, *, running: bool) -> None:
    statuses = []
    for container in pod["spec"].get("containers") or ():
        image = container.get("image", "")
        status = {"name": container.get("name", ""), "image": image, "imageID": image, "restartCount": 0}
        statuses.append({**status, "ready": running, "started": running, "state": state})
    pod["status"]["containerStatuses"] = statuses


def _set_conditions(status: Object, at: str, *, ready: bool) -> None:
    others = [condition for condition in status.get("conditions") or () if condition.get("type") not in CONDITIONS]
    conditions = []
    for type_ in CONDITIONS:
        condition = {"type": type_, "status": "True", "lastProbeTime": None, "lastTransitionTime": at}
        if not ready and type_ != "Initialized":
            condition |= {"status": "False", "reason": "PodCompleted"}
        conditions.append(condition)
    status["conditions"] = [*conditions, *others]


def _address(node: Item) -> str:
    if b'"InternalIP"' not in node.raw:
        return DEFAULT_ADDRESS
    addresses: list[Object] = (node.decode().get("status") or {}).get("addresses") or []
    return next((str(found["address"]) for found in addresses if found.get("type") == "InternalIP"), DEFAULT_ADDRESS)


DEVICES = "simulator.flotilla.io/devices"
"""Annotation of a node: how many devices it has."""
MODEL = "simulator.flotilla.io/device-model"
"""Annotation of a node: its devices' attribute `model`."""
MEMORY = "simulator.flotilla.io/device-memory"
"""Annotation of a node: its devices' capacity `memory`."""
DRIVER = "gpu.example.com"
MAX_DEVICES = 128
"""Of one slice, as the API server allows."""

SLICES = builtin("resourceslices", "resource.k8s.io")


class DeviceControllers(Controller):
    def __init__(self, cluster: SimulatedCluster) -> None:
        waited_for = {TEMPLATES: self._on_waited_for, POD_GROUPS: self._on_waited_for}
        super().__init__(cluster, {PODS: self._on_pod, NODES: self._on_node, **waited_for})
        self._parked: dict[tuple[str, str, str], dict[str, Item]] = {}
        """By kind, namespace and name: the pods that wait for a template, or for a group that has its claims."""

    def _on_pod(self, change: Change) -> None:
        if b'"resourceClaim' in change.item.raw or b'"extendedResourceClaimStatus"' in change.item.raw:
            self._note_pod(change.item)

    def _note_pod(self, item: Item) -> None:
        self._make_due((PODS, item.namespace, item.name), partial(self._look_at_pod, item))

    def _on_node(self, change: Change) -> None:
        if DEVICES.encode() in change.item.raw:
            self._make_due((NODES, change.item.name), partial(self._look_at_node, change.item))

    def _on_waited_for(self, change: Change) -> None:
        if change.type != DELETED:
            key = (change.item.decode()["kind"], change.item.namespace, change.item.name)
            for item in self._parked.pop(key, {}).values():
                self._note_pod(item)

    # Claims

    def _look_at_pod(self, item: Item) -> None:
        present = self._store.bucket(PODS).get(item.namespace, item.name)
        if present is None or present.uid != item.uid or present.fields[_PHASE] in FINISHED:
            self._release(item.decode())
            return
        pod = present.decode()
        status = pod.setdefault("status", {})
        named: list[Object] = list(status.get("resourceClaimStatuses") or [])
        known = {each["name"] for each in named}
        for use in pod["spec"].get("resourceClaims") or ():
            if use.get("resourceClaimTemplateName") is None or use["name"] in known:
                continue
            if (name := self._claim_for(present, pod, use)) is not None:
                named.append({"name": use["name"], "resourceClaimName": name})
        if len(named) > len(known):
            status["resourceClaimStatuses"] = named
            self._store.put(PODS, pod)

    def _claim_for(self, pod: Item, of: Object, use: Object) -> str | None:
        """The name of the claim that the pod gets for this use; None if it must wait for a group or a template."""
        if group_name := group_name_of(of):
            group = self._store.bucket(POD_GROUPS).get(pod.namespace, group_name)
            if group is None or is_of_group(use, group.decode()):
                made_name = None if group is None else claim_of_group(group.decode(), use["name"])
                if made_name is None:
                    self._park(POD_GROUPS, group_name, pod)
                return made_name
        made = make_claim(self._cluster, pod, use["name"], use["resourceClaimTemplateName"])
        if made is None:
            self._park(TEMPLATES, use["resourceClaimTemplateName"], pod)
            return None
        return made.name

    def _park(self, resource: ApiResource, name: str, pod: Item) -> None:
        self._parked.setdefault((resource.kind, pod.namespace, name), {})[pod.uid] = pod

    def _release(self, pod: Object) -> None:
        namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
        status = pod.get("status") or {}
        names = [use.get("resourceClaimName") for use in pod["spec"].get("resourceClaims") or ()]
        names += [each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()]
        names.append((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
        for name in dict.fromkeys(filter(None, names)):
            release_claim(self._cluster, namespace, name, uid)

    # The driver

    def _look_at_node(self, item: Item) -> None:
        """Publish the node's devices, or take them back with the node."""
        name = f"{item.name}-{DRIVER}"
        published = self._store.bucket(SLICES).get("", name)
        present = self._store.bucket(NODES).get("", item.name)
        annotations: Any = {} if present is None else present.decode()["metadata"].get("annotations") or {}
        try:
            count = min(int(annotations.get(DEVICES, 0)), MAX_DEVICES)
        except ValueError:
            count = 0
        if count <= 0:
            if published is not None:
                self._cluster.delete(SLICES, published)
            return
        devices = [_device(number, annotations) for number in range(count)]
        if published is None:
            pool = {"name": item.name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": DRIVER, "pool": pool, "nodeName": item.name, "devices": devices}
            self._cluster.create(SLICES, "", {"metadata": {"name": name}, "spec": spec})
            return
        obj = published.decode()
        if obj["spec"]["devices"] != devices:
            obj["spec"]["devices"] = devices
            obj["spec"]["pool"]["generation"] += 1
            self._cluster.update(SLICES, published, obj)


def _device(number: int, annotations: Object) -> Object:
    device: Object = {"name": f"gpu-{number}", "attributes": {"index": {"int": number}}}
    if MODEL in annotations:
        device["attributes"]["model"] = {"string": annotations[MODEL]}
    if MEMORY in annotations:
        device["capacity"] = {"memory": {"value": annotations[MEMORY]}}
    return device
