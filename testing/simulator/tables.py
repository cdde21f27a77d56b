"""Tables, as kubectl prints them: the columns of each type."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from testing.simulator.metadata import seconds_of
from testing.simulator.resources import Object, Resource, StorageKey

UNKNOWN = "<unknown>"
NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    value: Callable[[Object, float], Any]
    wide: bool = False
    type: str = "string"


def table(resource: Resource, objects: Sequence[Object], metadata: Object, include: str, now: float) -> Object:
    columns = (_NAME, *_COLUMNS.get(resource.storage, ()), _AGE) if resource.plural != "events" else _EVENT_COLUMNS
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.type,
                "format": "name" if column is _NAME else "",
                "description": column.name,
                "priority": int(column.wide),
            }
            for column in columns
        ],
        "rows": [
            {"cells": [_cell(column, obj, now) for column in columns], "object": _included(obj, include)}
            for obj in objects
        ],
    }


def _cell(column: Column, obj: Object, now: float) -> Any:
    """A malformed object still has a row."""
    try:
        return column.value(obj, now)
    except (AttributeError, KeyError, TypeError, ValueError):
        return UNKNOWN


def _included(obj: Object, include: str) -> Object | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def at(obj: Any, path: str, otherwise: Any = NONE) -> Any:
    """The value at a dotted path, or `otherwise`."""
    for step in path.split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return otherwise if obj in (None, "", [], {}) else obj


def span(seconds: float) -> str:
    """A duration as kubectl prints it: 45s, 12m, 5h, 3d."""
    seconds = max(0, int(seconds))
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 600:
        return f"{seconds // 60}m{seconds % 60}s" if seconds % 60 else f"{seconds // 60}m"
    if seconds < 3 * 3600:
        return f"{seconds // 60}m"
    if seconds < 48 * 3600:
        return f"{seconds // 3600}h"
    return f"{seconds // 86400}d"


def _since(text: Any, now: float) -> str:
    try:
        return span(now - seconds_of(text))
    except (TypeError, ValueError):
        return UNKNOWN


def _path(path: str, otherwise: Any = NONE) -> Callable[[Object, float], Any]:
    return lambda obj, now: at(obj, path, otherwise)


def _count(path: str) -> Callable[[Object, float], Any]:
    return lambda obj, now: at(obj, path, 0)


def _ready_containers(pod: Object, now: float) -> str:
    statuses = at(pod, "status.containerStatuses", [])
    return f"{sum(bool(status.get('ready')) for status in statuses)}/{len(at(pod, 'spec.containers', []))}"


def _restarts(pod: Object, now: float) -> int:
    return sum(status.get("restartCount", 0) for status in at(pod, "status.containerStatuses", []))


def _pod_status(pod: Object, now: float) -> str:
    if at(pod, "metadata.deletionTimestamp", ""):
        return "Terminating"
    phase: str = at(pod, "status.reason", "") or at(pod, "status.phase", UNKNOWN)
    if phase == "Succeeded":
        return "Completed"
    gated = any(condition.get("reason") == "SchedulingGated" for condition in at(pod, "status.conditions", []))
    return "SchedulingGated" if gated and phase == "Pending" else phase


def _node_status(node: Object, now: float) -> str:
    ready = next((c.get("status") for c in at(node, "status.conditions", []) if c.get("type") == "Ready"), None)
    shown = {"True": "Ready", None: "Unknown"}.get(ready, "NotReady")
    return f"{shown},SchedulingDisabled" if at(node, "spec.unschedulable", False) else shown


def _node_roles(node: Object, now: float) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = [label.removeprefix(prefix) for label in at(node, "metadata.labels", {}) if label.startswith(prefix)]
    return ",".join(sorted(roles)) or NONE


def _node_address(node: Object, now: float) -> str:
    addresses = at(node, "status.addresses", [])
    return next((address["address"] for address in addresses if address.get("type") == "InternalIP"), NONE)


def _service_ports(service: Object, now: float) -> str:
    return (
        ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in at(service, "spec.ports", [])) or NONE
    )


def _claim(volume: Object, now: float) -> str:
    claim = at(volume, "spec.claimRef", {})
    return f"{claim['namespace']}/{claim['name']}" if claim else ""


def _ready_replicas(workload: Object, now: float) -> str:
    return f"{at(workload, 'status.readyReplicas', 0)}/{at(workload, 'spec.replicas', 0)}"


def _joined(path: str) -> Callable[[Object, float], str]:
    return lambda obj, now: ",".join(map(str, at(obj, path, []))) or NONE


def _last_seen(event: Object, now: float) -> str:
    last = at(event, "series.lastObservedTime", "") or at(event, "lastTimestamp", "") or at(event, "eventTime", "")
    return _since(last or at(event, "metadata.creationTimestamp", ""), now)


def _involved(event: Object, now: float) -> str:
    return f"{at(event, 'involvedObject.kind', '').lower()}/{at(event, 'involvedObject.name', '')}"


def _policy(group: Object, now: float) -> str:
    return ",".join(sorted(at(group, "spec.schedulingPolicy", {}))) or NONE


_NAME = Column("Name", _path("metadata.name"))
_AGE = Column("Age", lambda obj, now: _since(at(obj, "metadata.creationTimestamp"), now))
_EVENT_COLUMNS = (
    Column("Last Seen", _last_seen),
    Column("Type", _path("type")),
    Column("Reason", _path("reason")),
    Column("Object", _involved),
    Column("Source", _path("source.component", ""), wide=True),
    Column("Message", lambda event, now: str(at(event, "message", "")).strip()),
    Column("Count", lambda event, now: at(event, "series.count", 0) or at(event, "count", 1), True, "integer"),
    Column("Name", _path("metadata.name"), wide=True),
)
_COLUMNS: dict[StorageKey, tuple[Column, ...]] = {
    ("", "pods"): (
        Column("Ready", _ready_containers),
        Column("Status", _pod_status),
        Column("Restarts", _restarts, type="integer"),
        Column("IP", _path("status.podIP"), wide=True),
        Column("Node", _path("spec.nodeName"), wide=True),
        Column("Nominated Node", _path("status.nominatedNodeName"), wide=True),
    ),
    ("", "nodes"): (
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        Column("Version", _path("status.nodeInfo.kubeletVersion", "")),
        Column("Internal-IP", _node_address, wide=True),
    ),
    ("", "namespaces"): (Column("Status", _path("status.phase")),),
    ("", "services"): (
        Column("Type", _path("spec.type")),
        Column("Cluster-IP", _path("spec.clusterIP")),
        Column("External-IP", _joined("spec.externalIPs")),
        Column("Port(s)", _service_ports),
    ),
    ("", "replicationcontrollers"): (
        Column("Desired", _count("spec.replicas"), type="integer"),
        Column("Current", _count("status.replicas"), type="integer"),
        Column("Ready", _count("status.readyReplicas"), type="integer"),
    ),
    ("", "persistentvolumes"): (
        Column("Capacity", _path("spec.capacity.storage")),
        Column("Access Modes", _joined("spec.accessModes")),
        Column("Reclaim Policy", _path("spec.persistentVolumeReclaimPolicy")),
        Column("Status", _path("status.phase")),
        Column(
            "Claim",
            lambda pv, now: "/".join(at(pv, f"spec.claimRef.{k}", "") for k in ("namespace", "name")).strip("/"),
        ),
        Column("StorageClass", _path("spec.storageClassName", "")),
    ),
    ("", "persistentvolumeclaims"): (
        Column("Status", _path("status.phase")),
        Column("Volume", _path("spec.volumeName", "")),
        Column("Capacity", _path("status.capacity.storage", "")),
        Column("Access Modes", _joined("spec.accessModes")),
        Column("StorageClass", _path("spec.storageClassName", "")),
    ),
    ("", "configmaps"): (Column("Data", lambda obj, now: len(at(obj, "data", {})), type="integer"),),
    ("", "secrets"): (
        Column("Type", _path("type", "Opaque")),
        Column("Data", lambda obj, now: len(at(obj, "data", {})), type="integer"),
    ),
    ("apps", "deployments"): (
        Column("Ready", _ready_replicas),
        Column("Up-to-date", _count("status.updatedReplicas"), type="integer"),
        Column("Available", _count("status.availableReplicas"), type="integer"),
    ),
    ("apps", "replicasets"): (
        Column("Desired", _count("spec.replicas"), type="integer"),
        Column("Current", _count("status.replicas"), type="integer"),
        Column("Ready", _count("status.readyReplicas"), type="integer"),
    ),
    ("apps", "statefulsets"): (Column("Ready", _ready_replicas),),
    ("apps", "daemonsets"): (
        Column("Desired", _count("status.desiredNumberScheduled"), type="integer"),
        Column("Ready", _count("status.numberReady"), type="integer"),
    ),
    ("batch", "jobs"): (
        Column("Completions", lambda job, now: f"{at(job, 'status.succeeded', 0)}/{at(job, 'spec.completions', 1)}"),
    ),
    ("policy", "poddisruptionbudgets"): (
        Column("Min Available", _path("spec.minAvailable", "N/A")),
        Column("Max Unavailable", _path("spec.maxUnavailable", "N/A")),
        Column("Allowed Disruptions", _count("status.disruptionsAllowed"), type="integer"),
    ),
    ("storage.k8s.io", "storageclasses"): (
        Column("Provisioner", _path("provisioner")),
        Column("ReclaimPolicy", _path("reclaimPolicy")),
        Column("VolumeBindingMode", _path("volumeBindingMode")),
    ),
    ("scheduling.k8s.io", "priorityclasses"): (
        Column("Value", _count("value"), type="integer"),
        Column("Global-Default", lambda obj, now: bool(obj.get("globalDefault")), type="boolean"),
    ),
    ("scheduling.k8s.io", "podgroups"): (
        Column("Policy", _policy),
        Column("Workload", _path("spec.podGroupTemplateRef.workload.workloadName"), wide=True),
        Column("Template", _path("spec.podGroupTemplateRef.workload.podGroupTemplateName"), wide=True),
    ),
    ("scheduling.x-k8s.io", "podgroups"): (
        Column("Phase", _path("status.phase", "")),
        Column("MinMember", _path("spec.minMember", ""), type="integer"),
        Column("Running", _path("status.running", ""), type="integer"),
        Column("Succeeded", _path("status.succeeded", ""), type="integer"),
        Column("Failed", _path("status.failed", ""), type="integer"),
    ),
    ("coordination.k8s.io", "leases"): (Column("Holder", _path("spec.holderIdentity", "")),),
}
