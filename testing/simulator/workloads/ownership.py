"""Which objects belong to which workload, and how a controller makes and removes them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import msgspec

from testing.simulator.cluster import FINISHED, GENERATED, SimulatedCluster
from testing.simulator.errors import ApiError
from testing.simulator.pod_admission import complete_spec
from testing.simulator.resources import PODS, ApiResource, Object, builtin
from testing.simulator.store import DELETED, Change, Item, encode

DEPLOYMENTS = builtin("deployments", "apps")
REPLICA_SETS = builtin("replicasets", "apps")
STATEFUL_SETS = builtin("statefulsets", "apps")
DAEMON_SETS = builtin("daemonsets", "apps")
JOBS = builtin("jobs", "batch")
WORKLOADS = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS)
OWNED = (PODS, REPLICA_SETS)
"""Types whose objects belong to a workload."""
BURST = 500
"""Pods that one look at a workload makes or removes at most, as in a real controller manager."""
_OWNER = b'"ownerReferences"'


class _Reference(msgspec.Struct):
    uid: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    owner_references: list[_Reference] | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str | None = None
    conditions: list[_Condition] | None = None


class _Owned(msgspec.Struct, rename="camel"):
    """The part of an object that its owner's controller looks at."""

    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


_decode = msgspec.json.Decoder(_Owned).decode


@dataclass(frozen=True, slots=True)
class Dependent:
    """An object that belongs to a workload. `order`: when it was first seen."""

    resource: ApiResource
    item: Item
    order: int
    node: str
    phase: str
    ready: bool
    deleting: bool
    annotations: dict[str, str]

    @property
    def active(self) -> bool:
        """Whether it counts as a replica."""
        return not self.deleting and self.phase not in FINISHED


@dataclass(slots=True)
class Workload:
    """A workload that exists, and what belongs to it, by type and name."""

    resource: ApiResource
    item: Item
    dependents: dict[tuple[str, str], Dependent] = field(default_factory=dict)
    fitting: dict[tuple[str, str, int], bool] = field(default_factory=dict)
    """Of a DaemonSet: whether pods of this revision belong on this node of this version."""

    def pods(self) -> list[Dependent]:
        return [each for each in self.dependents.values() if each.resource is PODS]

    def replica_sets(self) -> list[Dependent]:
        return [each for each in self.dependents.values() if each.resource is REPLICA_SETS and not each.deleting]


class Ownership:
    """The workloads that exist, by uid."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.workloads: dict[str, Workload] = {}
        self._seen = 0

    def note_workload(self, resource: ApiResource, change: Change) -> Workload | None:
        """Returns the workload whose dependents are to be removed, if this one is gone."""
        item = change.item
        known = self.workloads.get(item.uid)
        if change.type == DELETED:
            return self.workloads.pop(item.uid, None)
        if known is None:
            self.workloads[item.uid] = Workload(resource, item)
        else:
            known.item = item
        return None

    def note_dependent(self, resource: ApiResource, change: Change) -> Iterator[Workload]:
        """Yields the workloads that it belongs to."""
        item = change.item
        if not self.workloads or _OWNER not in item.raw:
            return
        seen = _decode(item.raw)
        for reference in seen.metadata.owner_references or ():
            owner = self.workloads.get(reference.uid)
            if owner is None:
                continue
            key = (resource.plural, item.name)
            before = owner.dependents.pop(key, None)
            if change.type != DELETED:
                self._seen += 1
                order = self._seen if before is None or before.item.uid != item.uid else before.order
                owner.dependents[key] = _dependent(resource, item, seen, order)
            yield owner

    # What controllers do

    def make(self, resource: ApiResource, owner: Workload, obj: Object) -> Item:
        """Create an object that belongs to the workload and to no other."""
        item = owner.item
        reference: Object = {"apiVersion": owner.resource.api_version, "kind": owner.resource.kind, "name": item.name}
        reference |= {"uid": item.uid, "controller": True, "blockOwnerDeletion": True}
        obj["metadata"]["ownerReferences"] = [reference]
        return self.cluster.create(resource, item.namespace, obj)

    def remove(self, dependent: Dependent, grace: int | None = None) -> None:
        """Delete it, unless it is gone or another one has its name."""
        found = self.cluster.store.bucket(dependent.resource).get(dependent.item.namespace, dependent.item.name)
        if found is not None and found.uid == dependent.item.uid:
            self.cluster.delete(dependent.resource, found, grace)

    def set_status(self, workload: Workload, status: Object) -> None:
        obj = workload.item.decode()
        status = {"observedGeneration": obj["metadata"].get("generation", 1), **status}
        if obj.get("status") != status:
            obj["status"] = status
            self.cluster.store.put(workload.resource, obj)

    def now(self) -> str:
        return self.cluster.now()


def _dependent(resource: ApiResource, item: Item, seen: _Owned, order: int) -> Dependent:
    status = seen.status or _Status()
    return Dependent(
        resource,
        item,
        order,
        node=(seen.spec and seen.spec.node_name) or "",
        phase=status.phase or "",
        ready=any(each.type == "Ready" and each.status == "True" for each in status.conditions or ()),
        deleting=seen.metadata.deletion_timestamp is not None,
        annotations=seen.metadata.annotations or {},
    )


def orphan(cluster: SimulatedCluster, owner: Item) -> None:
    """Have nothing belong to this object any more, so that its deletion leaves everything."""
    for resource in OWNED:
        for item in list(cluster.store.bucket(resource).items(owner.namespace)):
            if owner.uid.encode() not in item.raw:
                continue
            obj = item.decode()
            references: list[Object] = obj["metadata"].get("ownerReferences") or []
            left = [each for each in references if each.get("uid") != owner.uid]
            if left != references:
                obj["metadata"]["ownerReferences"] = left
                cluster.store.put(resource, obj)


def pod_of(template: Object, *, labels: Object | None = None) -> Object:
    """A new pod as the template says; with further labels."""
    metadata = template.get("metadata") or {}
    return {
        "metadata": {
            "labels": {**(metadata.get("labels") or {}), **(labels or {})},
            "annotations": dict(metadata.get("annotations") or {}),
        },
        "spec": msgspec.json.decode(encode(template["spec"])),
    }


def template_of(obj: Object) -> Object | None:
    """None: this workload makes no pods."""
    template: Any = obj["spec"].get("template")
    return template if isinstance(template, dict) and isinstance(template.get("spec"), dict) else None


def template_hash(template: Object) -> str:
    """The same for templates that mean the same, and like one of a real controller manager."""
    pod = _without_nulls(msgspec.json.decode(encode(template)))
    complete_spec(pod["spec"])
    digits = str(crc32(msgspec.json.encode(pod, order="deterministic")))
    return "".join(GENERATED[ord(digit) % len(GENERATED)] for digit in digits)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def condition(
    status: Object, type_: str, value: bool, reason: str, message: str, now: str, *, updates: bool = False
) -> Object:
    """A condition whose time of transition is that of its last change; `updates`: it has that of an update as well."""
    wanted = {"type": type_, "status": str(value), "reason": reason, "message": message}
    before: Object = next((each for each in status.get("conditions") or () if each.get("type") == type_), {})
    if wanted.items() <= before.items():
        return before
    since = before.get("lastTransitionTime", now) if before.get("status") == wanted["status"] else now
    return {**wanted, **({"lastUpdateTime": now} if updates else {}), "lastTransitionTime": since}


def failure_of(error: ApiError, before: Object, now: str) -> Object:
    """The condition that says why pods cannot be made."""
    return condition(before, "ReplicaFailure", True, "FailedCreate", error.message, now)
