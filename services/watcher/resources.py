"""The table of watched kinds, and how an object becomes a change of the stream."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from services.watcher.bodies import body_of, drop_unread, node_body, object_body, placed_body
from services.watcher.partial_objects import FINISHED_PHASES, Outline
from shared.errors import InvalidObject
from shared.kube.wire import version_of
from shared.messages.watch import OBJECT_KINDS, AlikePods, Kind, NodeChange, ObjectChange, PodChange, Unreadable
from shared.model.objects import (
    ObjectKind,
    decode_node,
    decode_object,
    decode_pod,
    is_namespaced,
    key_of,
)
from shared.model.workloads import GROUP_VERSIONS

MAX_PROBLEM_BYTES = 900
MAX_SCHEDULER_BYTES = 253
"""Longest scheduler name; the API server accepts longer ones, which belong to no scheduler."""
UNFINISHED_PODS = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
"""Finished pods occupy nothing. The server reports a pod that finishes as deleted."""

BETAS = ("v1beta2", "v1beta1")
"""Versions of resource.k8s.io before Kubernetes 1.34."""

Change = PodChange | AlikePods | NodeChange | ObjectChange


@dataclass(frozen=True, slots=True)
class WatchedResource:
    """`read` raises the error in an object; `gone` describes a deleted one.

    `required`: nothing can be scheduled without it; other kinds may be missing at the server or forbidden. `older`: API
    versions for servers that lack that of `path`.
    """

    kind: Kind
    path: str
    selector: str
    read: Callable[[msgspec.Raw, float], Change]
    gone: Callable[[Outline, float], Change]
    required: bool = True
    older: tuple[str, ...] = ()

    @property
    def plural(self) -> str:
        """The name that people know; with the group where two kinds share it."""
        parts = self.path.split("/")
        return f"{parts[-1]}.{parts[2]}" if parts[-1] == "podgroups" else parts[-1]

    @property
    def older_paths(self) -> tuple[str, ...]:
        folder, plural = self.path.rsplit("/", 1)
        group = folder.rpartition("/")[0]
        return tuple(f"{group}/{version}/{plural}" for version in self.older)


def read_pod(raw: msgspec.Raw, at: float) -> PodChange:
    pod = decode_pod(raw)
    spec, metadata = pod.spec, pod.metadata
    if spec.node_name:
        drop_unread(pod)
        body, missing = placed_body(pod)
    else:
        body, missing = body_of(pod), ""
    return PodChange(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        scheduler=_cut(spec.scheduler_name, MAX_SCHEDULER_BYTES),
        node=spec.node_name,
        finished=pod.status.phase in FINISHED_PHASES,
        body=body,
        seen_at=at,
        nominated=pod.status.nominated_node_name,
        problem=missing,
        closes=bool(missing),
    )


def pod_gone(found: Outline, at: float) -> PodChange:
    return PodChange(
        uid=found.pod_uid,
        namespace=found.namespace,
        name=found.metadata.name,
        scheduler=_cut(found.spec.scheduler_name, MAX_SCHEDULER_BYTES),
        node=found.spec.node_name,
        finished=found.finished,
        gone=True,
        seen_at=at,
    )


def read_node(raw: msgspec.Raw, at: float) -> NodeChange:
    node = decode_node(raw)
    body, missing = node_body(node)
    return NodeChange(node.name, body=body, problem=missing)


def node_gone(found: Outline, at: float) -> NodeChange:
    return NodeChange(found.metadata.name, gone=True)


def unreadable(kind: Kind, found: Outline, cause: Exception) -> Unreadable:
    is_pod = kind is Kind.POD
    has_namespace = is_pod or (kind in OBJECT_KINDS and is_namespaced(OBJECT_KINDS[kind]))
    return Unreadable(
        kind=kind,
        uid=found.pod_uid if is_pod else found.metadata.uid,
        namespace=found.namespace if has_namespace else "",
        name=found.metadata.name,
        problem=describe(cause),
        scheduler=_cut(found.spec.scheduler_name, MAX_SCHEDULER_BYTES) if is_pod else "",
        node=found.spec.node_name if is_pod else "",
    )


def describe(cause: Exception) -> str:
    """One line, without the object's name."""
    if isinstance(cause, InvalidObject):
        text = f"{cause.field}: {cause.reason}" if cause.field else cause.reason
    else:
        text = f"cannot be read: {cause or type(cause).__name__}"
    return _cut(" ".join(text.split()), MAX_PROBLEM_BYTES)


def _cut(text: str, most: int) -> str:
    """Message fields are limited in bytes, not characters."""
    if len(text) <= most and text.isascii():
        return text
    return text.encode(errors="replace")[:most].decode(errors="ignore")


def _object(kind: ObjectKind, path: str, *, older: tuple[str, ...] = ()) -> WatchedResource:
    def read(raw: msgspec.Raw, at: float) -> ObjectChange:
        obj = decode_object(kind, raw)
        version = version_of(raw) if kind is ObjectKind.RESOURCE_CLAIM else ""
        return ObjectChange(kind, key_of(obj), body=object_body(obj), version=version)

    def gone(found: Outline, at: float) -> ObjectChange:
        name = found.metadata.name
        return ObjectChange(kind, f"{found.namespace}/{name}" if is_namespaced(kind) else name, gone=True)

    return WatchedResource(Kind(kind.value), path, "", read, gone, required=False, older=older)


_RESOURCES = (
    WatchedResource(Kind.POD, "/api/v1/pods", UNFINISHED_PODS, read_pod, pod_gone),
    WatchedResource(Kind.NODE, "/api/v1/nodes", "", read_node, node_gone),
    _object(ObjectKind.NAMESPACE, "/api/v1/namespaces"),
    _object(ObjectKind.SERVICE, "/api/v1/services"),
    _object(ObjectKind.REPLICATION_CONTROLLER, "/api/v1/replicationcontrollers"),
    _object(ObjectKind.REPLICA_SET, "/apis/apps/v1/replicasets"),
    _object(ObjectKind.STATEFUL_SET, "/apis/apps/v1/statefulsets"),
    _object(ObjectKind.PERSISTENT_VOLUME, "/api/v1/persistentvolumes"),
    _object(ObjectKind.PERSISTENT_VOLUME_CLAIM, "/api/v1/persistentvolumeclaims"),
    _object(ObjectKind.STORAGE_CLASS, "/apis/storage.k8s.io/v1/storageclasses"),
    _object(ObjectKind.CSI_NODE, "/apis/storage.k8s.io/v1/csinodes"),
    _object(ObjectKind.CSI_DRIVER, "/apis/storage.k8s.io/v1/csidrivers"),
    _object(ObjectKind.CSI_STORAGE_CAPACITY, "/apis/storage.k8s.io/v1/csistoragecapacities"),
    _object(ObjectKind.VOLUME_ATTACHMENT, "/apis/storage.k8s.io/v1/volumeattachments"),
    _object(ObjectKind.POD_DISRUPTION_BUDGET, "/apis/policy/v1/poddisruptionbudgets"),
    _object(ObjectKind.POD_GROUP, "/apis/scheduling.k8s.io/v1beta1/podgroups", older=GROUP_VERSIONS[1:]),
    _object(ObjectKind.COSCHEDULING_POD_GROUP, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"),
    _object(ObjectKind.COMPOSITE_POD_GROUP, "/apis/scheduling.k8s.io/v1alpha3/compositepodgroups"),
    _object(ObjectKind.RESOURCE_CLAIM, "/apis/resource.k8s.io/v1/resourceclaims", older=BETAS),
    _object(ObjectKind.RESOURCE_SLICE, "/apis/resource.k8s.io/v1/resourceslices", older=BETAS),
    _object(ObjectKind.DEVICE_CLASS, "/apis/resource.k8s.io/v1/deviceclasses", older=BETAS),
)
RESOURCES: Mapping[Kind, WatchedResource] = {resource.kind: resource for resource in _RESOURCES}
