"""How objects are shown to a client: as stored, converted to another version, or as rows of a table.

Events are stored as v1 and served as events.k8s.io/v1 as well. Versions of a custom resource differ in name only.
Tables have the columns that kubectl prints.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from testing.simulator.metadata import seconds_of
from testing.simulator.resources import EVENTS, NEW_EVENTS, ApiResource, Object, StorageKey
from testing.simulator.store import DELETED, Change, Item, at_version, encode, event_line

_STORED_NAMES = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEW_NAMES = {stored: new for new, stored in _STORED_NAMES.items()}
UNKNOWN = "<unknown>"
NONE = "<none>"


def stored_type(resource: ApiResource) -> ApiResource:
    """The type that the objects are stored as."""
    return EVENTS if resource is NEW_EVENTS else resource


def stored_form(resource: ApiResource, obj: Object) -> Object:
    """Convert a client's object to the stored version."""
    if resource is not NEW_EVENTS:
        return obj
    stored = {_STORED_NAMES.get(key, key): value for key, value in obj.items()}
    if obj.get("apiVersion") in (None, "", resource.api_version):
        stored["apiVersion"] = EVENTS.api_version
    stored.setdefault("involvedObject", {})
    return stored


def shown_form(resource: ApiResource, obj: Object) -> Object:
    """Convert a stored object to the version that the client requested."""
    if resource is NEW_EVENTS:
        obj = {_NEW_NAMES.get(key, key): value for key, value in obj.items()}
    obj["apiVersion"] = resource.api_version
    return obj


class View:
    """Objects as stored."""

    plain = True

    def __init__(self, resource: ApiResource) -> None:
        self._resource = resource
        self._typed = b""
        if resource.strategic:
            self._typed = b'{"kind":"%b","apiVersion":"%b",' % (resource.kind.encode(), resource.api_version.encode())

    def show(self, item: Item) -> bytes:
        return item.raw

    def line(self, type_: str, item: Item) -> bytes:
        return event_line(type_, self.show(item))

    def departed(self, change: Change) -> bytes:
        return change.departed()

    def listing(self, items: Sequence[Item], metadata: Object) -> bytes:
        head = b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[' % (
            self._resource.kind.encode(),
            self._resource.api_version.encode(),
            encode(metadata),
        )
        return b"%b%b]}" % (head, b",".join([self._untyped(self.show(item)) for item in items]))

    def _untyped(self, raw: bytes) -> bytes:
        """As an item of a list: only custom resources carry kind and apiVersion there."""
        typed = self._typed
        return b"{" + raw[len(typed) :] if typed and raw.startswith(typed) else raw


def view_of(resource: ApiResource) -> View:
    return DecodedView(resource) if resource.stored_as else View(resource)


class DecodedView(View):
    """Objects that are decoded in order to show them."""

    plain = False

    def show(self, item: Item) -> bytes:
        return self.show_object(item.decode())

    def departed(self, change: Change) -> bytes:
        assert change.before is not None
        return event_line(DELETED, self.show_object(at_version(change.before, change.item.version)))

    def show_object(self, obj: Object) -> bytes:
        """Converted to the version of the resource."""
        return encode(shown_form(self._resource, obj))


class PrintedTable(DecodedView):
    """Objects as rows of a table. `include` says how much of the object accompanies its row."""

    def __init__(self, resource: ApiResource, include: str, now: Callable[[], float]) -> None:
        super().__init__(resource)
        self._include = include
        self._now = now

    def show_object(self, obj: Object) -> bytes:
        return self._table([obj], {"resourceVersion": obj["metadata"]["resourceVersion"]})

    def listing(self, items: Sequence[Item], metadata: Object) -> bytes:
        return self._table([item.decode() for item in items], metadata)

    def _table(self, objects: Sequence[Object], metadata: Object) -> bytes:
        resource, now = self._resource, self._now()
        columns = (_NAME, *_COLUMNS.get(resource.storage, ()), _AGE) if resource.plural != "events" else _EVENT_COLUMNS
        shown = {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": [column.definition() for column in columns],
            "rows": [
                {"cells": [column.cell(obj, now) for column in columns], "object": self._included(obj)}
                for obj in objects
            ],
        }
        return encode(shown)

    def _included(self, obj: Object) -> Object | None:
        if self._include in ("None", "Object"):
            return obj if self._include == "Object" else None
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


@dataclass(frozen=True, slots=True)
class Column:
    """`source`: a dotted path, or a function of the object and the time."""

    name: str
    source: str | Callable[[Object, float], Any]
    otherwise: Any = NONE
    wide: bool = False
    type: str = "string"

    def definition(self) -> Object:
        shown = {"name": self.name, "type": self.type, "description": self.name, "priority": int(self.wide)}
        return {**shown, "format": "name" if self is _NAME else ""}

    def cell(self, obj: Object, now: float) -> Any:
        """A malformed object still has a row."""
        try:
            return at(obj, self.source, self.otherwise) if isinstance(self.source, str) else self.source(obj, now)
        except (AttributeError, KeyError, TypeError, ValueError):
            return UNKNOWN


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


def _count(name: str, path: str) -> Column:
    return Column(name, path, 0, type="integer")


def _joined(name: str, path: str) -> Column:
    return Column(name, lambda obj, now: ",".join(map(str, at(obj, path, []))) or NONE)


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
    return "/".join(at(volume, f"spec.claimRef.{key}", "") for key in ("namespace", "name")).strip("/")


def _ready_replicas(workload: Object, now: float) -> str:
    return f"{at(workload, 'status.readyReplicas', 0)}/{at(workload, 'spec.replicas', 0)}"


def _last_seen(event: Object, now: float) -> str:
    last = at(event, "series.lastObservedTime", "") or at(event, "lastTimestamp", "") or at(event, "eventTime", "")
    return _since(last or at(event, "metadata.creationTimestamp", ""), now)


def _involved(event: Object, now: float) -> str:
    return f"{at(event, 'involvedObject.kind', '').lower()}/{at(event, 'involvedObject.name', '')}"


_NAME = Column("Name", "metadata.name")
_AGE = Column("Age", lambda obj, now: _since(at(obj, "metadata.creationTimestamp"), now))
_EVENT_COLUMNS = (
    Column("Last Seen", _last_seen),
    Column("Type", "type"),
    Column("Reason", "reason"),
    Column("Object", _involved),
    Column("Source", "source.component", "", wide=True),
    Column("Message", lambda event, now: str(at(event, "message", "")).strip()),
    Column(
        *("Count", lambda event, now: at(event, "series.count", 0) or at(event, "count", 1)), wide=True, type="integer"
    ),
    Column("Name", "metadata.name", wide=True),
)
_DATA = Column("Data", lambda obj, now: len(at(obj, "data", {})), type="integer")
_REPLICAS = (
    _count("Desired", "spec.replicas"),
    _count("Current", "status.replicas"),
    _count("Ready", "status.readyReplicas"),
)
_COLUMNS: dict[StorageKey, tuple[Column, ...]] = {
    ("", "pods"): (
        Column("Ready", _ready_containers),
        Column("Status", _pod_status),
        Column("Restarts", _restarts, type="integer"),
        Column("IP", "status.podIP", wide=True),
        Column("Node", "spec.nodeName", wide=True),
        Column("Nominated Node", "status.nominatedNodeName", wide=True),
    ),
    ("", "nodes"): (
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        Column("Version", "status.nodeInfo.kubeletVersion", ""),
        Column("Internal-IP", _node_address, wide=True),
    ),
    ("", "namespaces"): (Column("Status", "status.phase"),),
    ("", "services"): (
        Column("Type", "spec.type"),
        Column("Cluster-IP", "spec.clusterIP"),
        _joined("External-IP", "spec.externalIPs"),
        Column("Port(s)", _service_ports),
    ),
    ("", "replicationcontrollers"): _REPLICAS,
    ("", "persistentvolumes"): (
        Column("Capacity", "spec.capacity.storage"),
        _joined("Access Modes", "spec.accessModes"),
        Column("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
        Column("Status", "status.phase"),
        Column("Claim", _claim),
        Column("StorageClass", "spec.storageClassName", ""),
    ),
    ("", "persistentvolumeclaims"): (
        Column("Status", "status.phase"),
        Column("Volume", "spec.volumeName", ""),
        Column("Capacity", "status.capacity.storage", ""),
        _joined("Access Modes", "spec.accessModes"),
        Column("StorageClass", "spec.storageClassName", ""),
    ),
    ("", "configmaps"): (_DATA,),
    ("", "secrets"): (Column("Type", "type", "Opaque"), _DATA),
    ("apps", "deployments"): (
        Column("Ready", _ready_replicas),
        _count("Up-to-date", "status.updatedReplicas"),
        _count("Available", "status.availableReplicas"),
    ),
    ("apps", "replicasets"): _REPLICAS,
    ("apps", "statefulsets"): (Column("Ready", _ready_replicas),),
    ("apps", "daemonsets"): (_count("Desired", "status.desiredNumberScheduled"), _count("Ready", "status.numberReady")),
    ("batch", "jobs"): (
        Column("Completions", lambda job, now: f"{at(job, 'status.succeeded', 0)}/{at(job, 'spec.completions', 1)}"),
    ),
    ("policy", "poddisruptionbudgets"): (
        Column("Min Available", "spec.minAvailable", "N/A"),
        Column("Max Unavailable", "spec.maxUnavailable", "N/A"),
        _count("Allowed Disruptions", "status.disruptionsAllowed"),
    ),
    ("storage.k8s.io", "storageclasses"): (
        Column("Provisioner", "provisioner"),
        Column("ReclaimPolicy", "reclaimPolicy"),
        Column("VolumeBindingMode", "volumeBindingMode"),
    ),
    ("scheduling.k8s.io", "priorityclasses"): (
        _count("Value", "value"),
        Column("Global-Default", lambda obj, now: bool(obj.get("globalDefault")), type="boolean"),
    ),
    ("scheduling.k8s.io", "podgroups"): (
        Column("Policy", lambda group, now: ",".join(sorted(at(group, "spec.schedulingPolicy", {}))) or NONE),
        Column("Workload", "spec.podGroupTemplateRef.workload.workloadName", wide=True),
        Column("Template", "spec.podGroupTemplateRef.workload.podGroupTemplateName", wide=True),
    ),
    ("scheduling.x-k8s.io", "podgroups"): (
        Column("Phase", "status.phase", ""),
        Column("MinMember", "spec.minMember", "", type="integer"),
        Column("Running", "status.running", "", type="integer"),
        Column("Succeeded", "status.succeeded", "", type="integer"),
        Column("Failed", "status.failed", "", type="integer"),
    ),
    ("coordination.k8s.io", "leases"): (Column("Holder", "spec.holderIdentity", ""),),
}
