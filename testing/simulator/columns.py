"""The columns of tables, as kubectl prints them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testing.simulator.metadata import seconds_of
from testing.simulator.resources import ApiResource, Object, StorageKey

UNKNOWN = "<unknown>"
NONE = "<none>"
_TEMPLATE_REF = "spec.podGroupTemplateRef.workload"


@dataclass(frozen=True, slots=True)
class Column:
    """`source`: a dotted path, or a function of the object and the time."""

    name: str
    source: str | Callable[[Object, float], Any]
    otherwise: Any = NONE
    wide: bool = False
    late: bool = False
    """After the age, as all wide columns are."""
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


def _of_containers(name: str, key: str) -> Column:
    """A wide column with one field of each container of a workload's template."""
    path = "spec.template.spec.containers"
    return Column(name, lambda obj, now: ",".join(each[key] for each in at(obj, path, [])) or NONE, wide=True)


def _selector(obj: Object, now: float) -> str:
    """As a label selector is typed."""
    selector = at(obj, "spec.selector", {})
    terms = [f"{key}={value}" for key, value in sorted(selector.get("matchLabels", {}).items())]
    for each in selector.get("matchExpressions", ()):
        values = f" {each['operator'].lower()} ({','.join(each['values'])})" if each.get("values") else ""
        terms.append(f"{'!' if each['operator'] == 'DoesNotExist' else ''}{each['key']}{values}")
    return ",".join(terms) or NONE


def _claim_state(claim: Object, now: float) -> str:
    states = {
        "deleted": "metadata.deletionTimestamp",
        "allocated": "status.allocation",
        "reserved": "status.reservedFor",
    }
    return ",".join(state for state, path in states.items() if at(claim, path, None)) or "pending"


def _node_selector(obj: Object, now: float) -> str:
    return ",".join(f"{key}={value}" for key, value in at(obj, "spec.template.spec.nodeSelector", {}).items()) or NONE


def _workload(group: Object, now: float) -> str:
    """Of a pod group, in the form of any version."""
    return str(at(group, "spec.workloadRef.workloadName", at(group, f"{_TEMPLATE_REF}.workloadName")))


def _template(group: Object, now: float) -> str:
    return str(at(group, "spec.workloadRef.templateName", at(group, f"{_TEMPLATE_REF}.podGroupTemplateName")))


def _job_status(job: Object, now: float) -> str:
    true = {each.get("type") for each in at(job, "status.conditions", []) if each.get("status") == "True"}
    return next((type_ for type_ in ("Complete", "Failed", "Suspended") if type_ in true), "Running")


def _job_completions(job: Object, now: float) -> str:
    succeeded, parallelism = at(job, "status.succeeded", 0), at(job, "spec.parallelism", 1)
    wanted = at(job, "spec.completions", "1" if parallelism == 1 else f"1 of {parallelism}")
    return f"{succeeded}/{wanted}"


def _job_duration(job: Object, now: float) -> str:
    start, end = at(job, "status.startTime", ""), at(job, "status.completionTime", "")
    return span((seconds_of(end) if end else now) - seconds_of(start)) if start else ""


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
_SHORT_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_ACCESS_MODES = Column(
    "Access Modes", lambda obj, now: ",".join(_SHORT_MODES.get(mode, mode) for mode in at(obj, "spec.accessModes", []))
)
_TEMPLATE = (
    _of_containers("Containers", "name"),
    _of_containers("Images", "image"),
    Column("Selector", _selector, wide=True),
)
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
        Column("Readiness Gates", "", NONE, wide=True),
    ),
    ("", "nodes"): (
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        Column("Version", "status.nodeInfo.kubeletVersion", "", late=True),
        Column("Internal-IP", _node_address, wide=True),
        Column("External-IP", "", wide=True),
        Column("OS-Image", "status.nodeInfo.osImage", UNKNOWN, wide=True),
        Column("Kernel-Version", "status.nodeInfo.kernelVersion", UNKNOWN, wide=True),
        Column("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", UNKNOWN, wide=True),
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
        _ACCESS_MODES,
        Column("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
        Column("Status", "status.phase"),
        Column("Claim", _claim),
        Column("StorageClass", "spec.storageClassName", ""),
    ),
    ("", "persistentvolumeclaims"): (
        Column("Status", "status.phase"),
        Column("Volume", "spec.volumeName", ""),
        Column("Capacity", "status.capacity.storage", ""),
        _ACCESS_MODES,
        Column("StorageClass", "spec.storageClassName", ""),
    ),
    ("", "configmaps"): (_DATA,),
    ("", "secrets"): (Column("Type", "type", "Opaque"), _DATA),
    ("apps", "deployments"): (
        Column("Ready", _ready_replicas),
        _count("Up-to-date", "status.updatedReplicas"),
        _count("Available", "status.availableReplicas"),
        *_TEMPLATE,
    ),
    ("apps", "replicasets"): (*_REPLICAS, *_TEMPLATE),
    ("apps", "statefulsets"): (Column("Ready", _ready_replicas), *_TEMPLATE[:2]),
    ("apps", "daemonsets"): (
        _count("Desired", "status.desiredNumberScheduled"),
        _count("Current", "status.currentNumberScheduled"),
        _count("Ready", "status.numberReady"),
        _count("Up-to-date", "status.updatedNumberScheduled"),
        _count("Available", "status.numberAvailable"),
        Column("Node Selector", _node_selector),
        *_TEMPLATE,
    ),
    ("batch", "jobs"): (
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        *_TEMPLATE,
    ),
    ("resource.k8s.io", "resourceclaims"): (Column("State", _claim_state),),
    ("resource.k8s.io", "resourceslices"): (
        Column("Node", "spec.nodeName", ""),
        Column("Driver", "spec.driver", ""),
        Column("Pool", "spec.pool.name", ""),
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
        Column("Workload", _workload, wide=True),
        Column("Template", _template, wide=True),
    ),
    ("scheduling.k8s.io", "compositepodgroups"): (
        Column("Policy", lambda group, now: ",".join(sorted(at(group, "spec.schedulingPolicy", {}))) or NONE),
        Column("Parent", "spec.parentCompositePodGroupName", wide=True),
        Column("Workload", _workload, wide=True),
        Column("Template", _template, wide=True),
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


def columns_of(resource: ApiResource) -> tuple[Column, ...]:
    if resource.plural == "events":
        return _EVENT_COLUMNS
    own = _COLUMNS.get(resource.storage, ())
    late = [each for each in own if each.wide or each.late]
    return (_NAME, *(each for each in own if each not in late), _AGE, *late)
