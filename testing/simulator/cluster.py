"""The cluster's state and its rules: synchronous, without HTTP.

A deleted object is removed at once, unless it has finalizers or is a pod on a node: then it gets a deletion timestamp
and remains until the finalizers are gone and the kubelet has confirmed (or the deletion is forced). Pods always get a
deletion timestamp first, so that watchers see MODIFIED before DELETED, as with a real server.
"""

from collections import deque
from collections.abc import Callable, Mapping
from random import Random

from testing.simulator.admission import admit_new, admit_update, device_claim_status_causes
from testing.simulator.errors import (
    ApiError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_value,
    not_found,
)
from testing.simulator.metadata import MAX_PREFIX, cannot_unmarshal, metadata_of, timestamp
from testing.simulator.resources import (
    DEFINITIONS,
    EVENTS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    ApiResource,
    Catalog,
    Object,
    custom_resources,
    establish,
)
from testing.simulator.store import Item, Store

INITIAL_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
GENERATED = "bcdfghjklmnpqrstvwxz2456789"
MAX_NAME_ATTEMPTS = 8
"""An API server generates up to this many names, since Kubernetes 1.32, before it reports a conflict."""
EVENT_TTL = 3600.0
DEFAULT_GRACE = 30
TOPOLOGY = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
FINISHED = frozenset({"Succeeded", "Failed"})
PROTECTION = "scheduling.k8s.io/podgroup-protection"
"""The finalizer that keeps a PodGroup until its last pod is done."""
KEPT_METADATA = (
    *("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("generateName", "generation"),
)
"""Fields that only the server writes."""


class SimulatedCluster:
    def __init__(self, *, history: int, max_events: int, clock: Callable[[], float], random: Random) -> None:
        self.store = Store(history)
        self.catalog = Catalog()
        self.clock = clock
        self.protects_groups = False
        """New PodGroups get the finalizer PROTECTION, which a controller removes."""
        self._random = random
        self._max_events = max_events
        self._events: deque[tuple[float, str, str, str]] = deque()
        for resource in self.catalog:
            if not resource.virtual:
                self.store.bucket(resource)
        for name in INITIAL_NAMESPACES:
            self.create(NAMESPACES, "", {"metadata": {"name": name}})
        for name, value in SYSTEM_PRIORITIES.items():
            self.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})

    def find(self, resource: ApiResource, namespace: str, name: str) -> Item:
        item = self.store.bucket(resource).get(namespace, name)
        if item is None:
            raise not_found(resource, name)
        return item

    def now(self) -> str:
        """The time as objects have it."""
        return timestamp(self.clock())

    def topology_of(self, node: str | None) -> dict[str, str]:
        """The topology labels that a pod inherits from its node."""
        item = self.store.bucket(NODES).get("", node) if node else None
        return {} if item is None else {key: item.labels[key] for key in TOPOLOGY if key in item.labels}

    def _priority_class(self, name: str) -> Object | None:
        classes = self.store.bucket(PRIORITY_CLASSES)
        if name:
            item = classes.get("", name)
            return None if item is None else item.decode()
        if len(classes) == len(SYSTEM_PRIORITIES):
            return None
        decoded = (item.decode() for item in classes.items())
        return next((found for found in decoded if found.get("globalDefault")), None)

    def create(self, resource: ApiResource, namespace: str, obj: Object) -> Item:
        self._check_kind(resource, obj)
        metadata = metadata_of(obj)
        self._place(resource, namespace, metadata)
        name = metadata["name"]
        if self.store.bucket(resource).get(namespace, name) is not None:
            raise already_exists(resource, name)
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink", "generation"):
            metadata.pop(key, None)
        metadata["uid"] = self.new_uid()
        metadata["creationTimestamp"] = timestamp(self.clock())
        if resource.counts_generations:
            metadata["generation"] = 1
        admit_new(resource, obj, self._priority_class)
        if resource is PODS and (at := self.topology_of(obj["spec"].get("nodeName"))):
            metadata["labels"] = {**(metadata.get("labels") or {}), **at}
        if self.protects_groups and resource.storage == POD_GROUPS.storage:
            metadata["finalizers"] = [*dict.fromkeys([*(metadata.get("finalizers") or ()), PROTECTION])]
        if self.store.dry_run:
            return self.store.put(resource, obj)
        if resource is DEFINITIONS:
            establish(obj, timestamp(self.clock()))
            self._declare(obj)
        item = self.store.put(resource, obj)
        if resource is EVENTS:
            self._trim_events(item)
        return item

    def _check_kind(self, resource: ApiResource, obj: Object) -> None:
        kind, version = obj.get("kind") or resource.kind, obj.get("apiVersion") or resource.api_version
        if kind != resource.kind or version != resource.api_version:
            wanted = f"{resource.api_version}, Kind={resource.kind}"
            raise bad_request(f"the object provided is unrecognized: it is {version}, Kind={kind}, expected {wanted}")
        obj["kind"], obj["apiVersion"] = kind, version

    def _place(self, resource: ApiResource, namespace: str, metadata: Object) -> None:
        if resource.namespaced:
            if metadata.get("namespace") not in (None, "", namespace):
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            metadata["namespace"] = namespace
            if self.store.bucket(NAMESPACES).get("", namespace) is None:
                raise not_found(NAMESPACES, namespace)
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name"):
            prefix = metadata.get("generateName")
            if not prefix:
                raise ApiError(422, "Invalid", "name or generateName is required", {"kind": resource.kind})
            metadata["name"] = self._generated(resource, metadata.get("namespace") or "", prefix[:MAX_PREFIX])

    def _generated(self, resource: ApiResource, namespace: str, prefix: str) -> str:
        """A free name, or the last one tried."""
        taken, name = self.store.bucket(resource), ""
        for _ in range(MAX_NAME_ATTEMPTS):
            name = prefix + "".join(self._random.choices(GENERATED, k=5))
            if taken.get(namespace, name) is None:
                break
        return name

    def new_uid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def _trim_events(self, item: Item) -> None:
        """Remove Events after an hour, and the oldest ones when there are too many."""
        now = self.clock()
        events = self._events
        events.append((now, item.namespace, item.name, item.uid))
        while len(events) > self._max_events or events[0][0] < now - EVENT_TTL:
            _, namespace, name, uid = events.popleft()
            old = self.store.bucket(EVENTS).get(namespace, name)
            if old is not None and old.uid == uid:
                self.store.remove(EVENTS, old.decode())

    def update(self, resource: ApiResource, item: Item, obj: Object, *, subresource: str = "") -> Item:
        """Write a new version of an object; Conflict unless it is based on the current one."""
        self._check_kind(resource, obj)
        metadata = metadata_of(obj)
        self._check_identity(resource, item, metadata)
        old = item.decode()
        metadata.pop("managedFields", None)
        metadata.pop("selfLink", None)
        for key in KEPT_METADATA:
            _keep(metadata, old["metadata"], key)
        if subresource == "status":
            status = obj.get("status") or {}
            if not isinstance(status, dict):
                raise cannot_unmarshal("status", status, f"{resource.kind}Status")
            obj = {**old, "metadata": metadata, "status": status}
            if resource is RESOURCE_CLAIMS:
                obj["metadata"] = {**old["metadata"], "resourceVersion": metadata["resourceVersion"]}
                if causes := [*device_claim_status_causes(obj, old)]:
                    raise invalid(resource, item.name, causes)
        else:
            if "status" in resource.subresources:
                _keep(obj, old, "status")
            admit_update(resource, obj, old)
        if resource.counts_generations and _intent(obj) != _intent(old):
            metadata["generation"] = (old["metadata"].get("generation") or 0) + 1
        if obj == old:
            return item
        return self.write(resource, obj)

    def write(self, resource: ApiResource, obj: Object) -> Item:
        """Write a validated object, or remove it if its last finalizer is gone and it was being deleted."""
        metadata = obj["metadata"]
        if self.store.dry_run:
            return self.store.put(resource, obj)
        if (
            metadata.get("deletionTimestamp")
            and not metadata.get("finalizers")
            and not metadata.get("deletionGracePeriodSeconds")
        ):
            return self._remove(resource, obj)
        if resource is DEFINITIONS:
            self._declare(obj)
        return self.store.put(resource, obj)

    def _check_identity(self, resource: ApiResource, item: Item, metadata: Object) -> None:
        name = metadata.get("name")
        if name and name != item.name:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({item.name})")
        if metadata.get("namespace") not in (None, "", item.namespace):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["name"] = item.name
        if item.namespace:
            metadata["namespace"] = item.namespace
        check_preconditions(resource, item, {"resourceVersion": metadata.get("resourceVersion")})
        uid = metadata.get("uid")
        if uid and uid != item.uid:
            raise invalid(resource, item.name, [invalid_value("metadata.uid", uid, "field is immutable")])

    def delete(self, resource: ApiResource, item: Item, grace: int | None = None) -> tuple[Item, bool]:
        """Returns the object's last state and whether it is gone."""
        if resource is NAMESPACES and item.name in PROTECTED_NAMESPACES:
            raise forbidden(NAMESPACES, item.name, "this namespace may not be deleted")
        obj = item.decode()
        metadata = obj["metadata"]
        seconds = _grace_of_pod(obj, grace) if resource is PODS else 0
        at_once = not seconds and not metadata.get("finalizers")
        if self.store.dry_run:
            return item, at_once
        if at_once and resource is not PODS:
            return self._remove(resource, obj), True
        before = metadata.get("deletionGracePeriodSeconds") or 0
        if not metadata.get("deletionTimestamp") or before > seconds:
            if resource.counts_generations and not metadata.get("deletionTimestamp"):
                metadata["generation"] = (metadata.get("generation") or 0) + 1
            metadata["deletionTimestamp"] = timestamp(self.clock() + seconds)
            metadata["deletionGracePeriodSeconds"] = seconds
            item = self.store.put(resource, obj)
        if not at_once:
            return item, False
        return self._remove(resource, item.decode()), True

    def _remove(self, resource: ApiResource, obj: Object) -> Item:
        if resource is NAMESPACES:
            for bucket in self.store.buckets():  # everything in it, regardless of finalizers
                if bucket.resource.namespaced:
                    for item in list(bucket.items(obj["metadata"]["name"])):
                        self.store.remove(bucket.resource, item.decode())
        last = self.store.remove(resource, obj)
        if resource is DEFINITIONS:
            self._undeclare(obj)
        return last

    def _undeclare(self, definition: Object) -> None:
        """Remove the types of a definition and all their objects."""
        for custom in custom_resources(definition):
            self.catalog.replace_custom(custom.group, custom.plural, [])
            if self.catalog.find(custom.group, custom.version, custom.plural) is None:
                for item in list(self.store.bucket(custom).items()):
                    self.store.remove(custom, item.decode())
                self.store.drop(custom)

    def _declare(self, definition: Object) -> None:
        resources = custom_resources(definition)
        if resources:
            self.catalog.replace_custom(resources[0].group, resources[0].plural, resources)
            self.store.bucket(resources[0])


def check_preconditions(resource: ApiResource, item: Item, wanted: Mapping[str, object]) -> None:
    """Conflict unless the object has the uid and resource version that the caller expects, if any."""
    uid = wanted.get("uid")
    if uid and uid != item.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {item.uid}"
        raise conflict(resource, item.name, why)
    version = wanted.get("resourceVersion")
    if version and version not in ("0", str(item.version)):
        raise conflict(resource, item.name)


def _keep(obj: Object, old: Object, key: str) -> None:
    if key in old:
        obj[key] = old[key]
    else:
        obj.pop(key, None)


def _intent(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _grace_of_pod(pod: Object, asked: int | None) -> int:
    """Only a running pod on a node gets a grace period."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in FINISHED:
        return 0
    seconds = spec.get("terminationGracePeriodSeconds") if asked is None else asked
    return max(0, seconds) if isinstance(seconds, int) else DEFAULT_GRACE
