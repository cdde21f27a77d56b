"""Admission: default new objects and reject invalid ones, by type.

Types that a scheduler writes or reads closely are validated as by a real server; pods are in `pod_admission`.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from testing.simulator.errors import Cause, forbidden_value, invalid, invalid_value, required, unsupported_value
from testing.simulator.group_admission import (
    composite_group_causes,
    coscheduling_group_causes,
    default_group,
    later_pod_group_causes,
    pod_group_causes,
    resized_group_causes,
    workload_causes,
)
from testing.simulator.metadata import cannot_unmarshal, expect, expect_objects, metadata_causes, qualified_name_causes
from testing.simulator.pod_admission import (
    TAINT_EFFECTS,
    PriorityClasses,
    amount_causes,
    check_shape,
    complete_spec,
    default_pod,
    pod_causes,
    pod_update_causes,
)
from testing.simulator.resources import (
    COMPOSITE_POD_GROUPS,
    COSCHEDULING_POD_GROUPS,
    DEFINITIONS,
    DISRUPTION_BUDGETS,
    LATER_POD_GROUPS,
    LATER_WORKLOADS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    WORKLOADS,
    ApiResource,
    Object,
    builtin,
)
from testing.simulator.workload_admission import default_workload, template_causes

_OF_REPLICAS = tuple(builtin(plural, "apps") for plural in ("deployments", "replicasets", "statefulsets"))
_WITH_TEMPLATE = (*_OF_REPLICAS, builtin("daemonsets", "apps"), builtin("jobs", "batch"))
NAME_LABEL = "kubernetes.io/metadata.name"
SERVICES = builtin("services")
NO_PARTS: Object = {"spec": {}, "status": {}}
_WORKLOAD: Object = {"spec": {"replicas": 1}, "status": {}}
DEFAULTS: dict[ApiResource, Object] = {
    PRIORITY_CLASSES: {"preemptionPolicy": "PreemptLowerPriority"},
    **dict.fromkeys((*_OF_REPLICAS, builtin("replicationcontrollers")), _WORKLOAD),
    **dict.fromkeys(_WITH_TEMPLATE[len(_OF_REPLICAS) :], NO_PARTS),
    builtin("persistentvolumeclaims"): {"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}},
    builtin("persistentvolumes"): {
        "spec": {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"},
        "status": {"phase": "Pending"},
    },
    builtin("storageclasses", "storage.k8s.io"): {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    SERVICES: {"spec": {"type": "ClusterIP", "sessionAffinity": "None"}, "status": {"loadBalancer": {}}},
    NODES: NO_PARTS,
}
HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"
_TOO_HIGH = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
MAX_TEXT = 128
MAX_NOTE_BYTES = 1024
TYPES = ("Normal", "Warning")
DEPRECATED = ("deprecatedCount", "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedSource")
MUTABLE_CLAIM_FIELDS = frozenset({"resources", "volumeAttributesClassName"})
CLAIM_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_NAMESPACES_OF_CLUSTER_OBJECTS = frozenset({"default", "kube-system"})
IMMUTABLE_EVENT_FIELDS = (
    *("regarding", "related", "reason", "note", "type", "action", "eventTime"),
    *("reportingController", "reportingInstance", *DEPRECATED),
)
MAX_CONSUMERS = 256
"""Pods for which a claim of devices can be reserved."""
IMMUTABLE = "field is immutable"


def admit_new(resource: ApiResource, obj: Object, priority_classes: PriorityClasses) -> None:
    """Set the defaults of a new object; raise if it is invalid."""
    for key, value in DEFAULTS.get(resource, {}).items():
        if isinstance(value, dict):
            part = _part(obj, key)
            part.update({name: default for name, default in value.items() if name not in part})
        else:
            obj.setdefault(key, value)
    if resource is PODS:
        check_shape(obj)
        default_pod(obj, priority_classes)
    elif resource is NODES:
        _default_node(obj)
    elif resource is NAMESPACES:
        metadata = obj["metadata"]
        metadata["labels"] = {**(metadata.get("labels") or {}), NAME_LABEL: metadata["name"]}
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}
    elif resource is RESOURCE_CLAIMS:
        default_requests(obj)
    elif resource in (POD_GROUPS, *LATER_POD_GROUPS, COMPOSITE_POD_GROUPS):
        default_group(resource, obj, priority_classes)
    elif resource in _WITH_TEMPLATE:
        default_workload(resource, obj)
    elif resource is SERVICES:
        for port in obj["spec"].get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
    _check(resource, obj)


def admit_update(resource: ApiResource, obj: Object, old: Object) -> None:
    """Raise if the type does not allow this change."""
    if resource is PODS:
        check_shape(obj)
        complete_spec(obj["spec"])
        for key in ("priority", "priorityClassName", "preemptionPolicy"):
            if key in old["spec"]:
                obj["spec"].setdefault(key, old["spec"][key])
    _check(resource, obj, old)


def _check(resource: ApiResource, obj: Object, old: Object | None = None) -> None:
    """Raise if the object is invalid, or may not replace the old one."""
    causes = [*metadata_causes(resource, obj["metadata"])]
    if rule := _RULES.get(resource):
        causes += rule(obj)
    if old is not None and (update_rule := _UPDATE_RULES.get(resource)):
        causes += update_rule(obj, old)
    if causes:
        raise invalid(resource, obj["metadata"]["name"], causes)


def _default_node(node: Object) -> None:
    status = node["status"]
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = status["capacity"]
    if not status.get("conditions"):
        since = node["metadata"]["creationTimestamp"]
        times = {"lastHeartbeatTime": since, "lastTransitionTime": since}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status["conditions"] = [{**ready, "message": "the simulated kubelet is ready", **times}]


def default_requests(claim: Object) -> None:
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        for wanted in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if wanted is not None and wanted.setdefault("allocationMode", "ExactCount") == "ExactCount":
                wanted.setdefault("count", 1)


def device_claim_status_causes(claim: Object, old: Object) -> Iterator[Cause]:
    status, before = claim.get("status") or {}, old.get("status") or {}
    consumers, allocation = status.get("reservedFor") or [], status.get("allocation")
    if len(consumers) > MAX_CONSUMERS:
        yield Cause("status.reservedFor", "FieldValueTooMany", f"Too many: must have at most {MAX_CONSUMERS} items")
    known = {each.get("uid", "") for each in before.get("reservedFor") or ()}
    if consumers and allocation is None:
        yield forbidden_value("status.reservedFor", "may not be specified when `allocated` is not set")
    elif claim["metadata"].get("deletionTimestamp") and any(each.get("uid", "") not in known for each in consumers):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield forbidden_value("status.reservedFor", why)
    if None not in (allocation, before.get("allocation")) and allocation != before["allocation"]:
        yield invalid_value("status.allocation", allocation, IMMUTABLE)


def new_event_causes(event: Object, namespace: str) -> Iterator[Cause]:
    """Validate a new events.k8s.io/v1 Event. The deprecated fields must be unset."""
    check_micro_time("eventTime", event.get("eventTime"))
    if not event.get("eventTime"):
        yield required("eventTime")
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        text = event.get(field)
        if not text:
            yield required(field)
        elif len(text) > MAX_TEXT and field != "reportingController":
            yield invalid_value(field, "", f"can have at most {MAX_TEXT} characters")
    if event.get("reportingController"):
        yield from qualified_name_causes("reportingController", event["reportingController"])
    if len((event.get("note") or "").encode()) > MAX_NOTE_BYTES:
        yield invalid_value("message", "", f"can have at most {MAX_NOTE_BYTES} characters")
    if event.get("type") not in TYPES:
        yield invalid_value("type", "", f"has invalid value: {event.get('type')}")
    for field in DEPRECATED:
        if event.get(field):
            yield invalid_value(field, "", "needs to be unset")
    if not (event.get("regarding") or {}).get("namespace") and namespace not in _NAMESPACES_OF_CLUSTER_OBJECTS:
        yield invalid_value("involvedObject.namespace", "", "does not match event.namespace")
    yield from _series_causes(event.get("series"))


def changed_event_causes(event: Object, old: Object) -> Iterator[Cause]:
    """In an events.k8s.io/v1 Event only the series may change."""
    if event.get("series") != old.get("series"):
        yield from _series_causes(event.get("series"))
    for field in IMMUTABLE_EVENT_FIELDS:
        if (event.get(field) or None) != (old.get(field) or None):
            yield invalid_value(field, event.get(field), IMMUTABLE)


def _series_causes(series: Any) -> Iterator[Cause]:
    if series is None:
        return
    if not isinstance(series, dict) or not isinstance(series.get("count", 0), int):
        raise cannot_unmarshal("series", series, "EventSeries")
    observed = series.get("lastObservedTime")
    check_micro_time("series.lastObservedTime", observed)
    if series.get("count", 0) < 2:
        yield invalid_value("series.count", "", "should be at least 2")
    if not observed:
        yield required("series.lastObservedTime")


def lease_causes(lease: Object) -> Iterator[Cause]:
    spec = lease.get("spec") or {}
    for field in ("acquireTime", "renewTime"):
        check_micro_time(f"spec.{field}", spec.get(field))
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        yield invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def claim_causes(claim: Object, old: Object) -> Iterator[Cause]:
    """A claim's spec is immutable except for its size; its volume name is written once."""
    was, wanted = (
        {key: value for key, value in (each.get("spec") or {}).items() if key not in MUTABLE_CLAIM_FIELDS}
        for each in (old, claim)
    )
    if not was.get("volumeName"):
        wanted.pop("volumeName", None)
        was.pop("volumeName", None)
    if was != wanted:
        yield forbidden_value("spec", CLAIM_IMMUTABLE)


def check_micro_time(field: str, value: Any) -> None:
    """A MicroTime has exactly six fractional digits; anything else does not decode."""
    if value is not None and not (isinstance(value, str) and _MICRO_TIME.fullmatch(value)):
        raise cannot_unmarshal(field, value, "MicroTime, as in 2006-01-02T15:04:05.000000Z")


def fixed_spec_causes(obj: Object, old: Object) -> Iterator[Cause]:
    """The spec of pod groups, workloads and claims of devices is immutable."""
    if obj.get("spec") != old.get("spec"):
        yield forbidden_value("spec", IMMUTABLE)


def node_causes(node: Object) -> Iterator[Cause]:
    spec, status = _part(node, "spec"), _part(node, "status")
    taints = spec.get("taints") or []
    expect_objects("spec.taints", taints)
    for index, taint in enumerate(taints):
        if not taint.get("key"):
            yield required(f"spec.taints[{index}].key")
        if taint.get("effect") not in TAINT_EFFECTS:
            yield unsupported_value(f"spec.taints[{index}].effect", taint.get("effect"), TAINT_EFFECTS)
    for which in ("capacity", "allocatable"):
        amounts = status.get(which) or {}
        expect(f"status.{which}", amounts, dict, "ResourceList")
        for name, amount in amounts.items():
            yield from amount_causes(f"status.{which}.{name}", amount)


def priority_class_causes(priority_class: Object) -> Iterator[Cause]:
    value, name = priority_class.get("value"), priority_class["metadata"]["name"]
    if not isinstance(value, int):
        yield required("value")
    elif value > HIGHEST_USER_PRIORITY and not name.startswith(SYSTEM_PREFIX):
        yield invalid_value("value", value, _TOO_HIGH)


def budget_causes(budget: Object) -> Iterator[Cause]:
    spec = _part(budget, "spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")


def definition_causes(definition: Object) -> Iterator[Cause]:
    """Only the first problem is named, except for missing fields."""
    spec, name = _part(definition, "spec"), definition["metadata"]["name"]
    missing = [key for key in ("group", "names", "scope", "versions") if not spec.get(key)]
    if missing:
        yield from (required(f"spec.{key}") for key in missing)
        return
    names, versions = spec["names"], spec["versions"]
    if not isinstance(names, dict) or not names.get("plural") or not names.get("kind"):
        yield required("spec.names.plural")
        yield required("spec.names.kind")
    elif not isinstance(versions, list) or not all(isinstance(v, dict) and v.get("name") for v in versions):
        yield required("spec.versions[0].name")
    elif name != f"{names['plural']}.{spec['group']}":
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def priority_class_update_causes(priority_class: Object, old: Object) -> Iterator[Cause]:
    value = priority_class.get("value")
    if value != old.get("value"):
        yield invalid_value("value", value, "may not be changed in an update.")


def _part(obj: Object, name: str) -> Object:
    """The spec or the status, created if absent; raises if it is not an object."""
    if name == "status" and obj.get(name) is None:
        obj[name] = {}
    part = obj.setdefault(name, {})
    if not isinstance(part, dict):
        raise cannot_unmarshal(name, part, name.capitalize())
    return part


_RULES: dict[ApiResource, Callable[[Object], Iterator[Cause]]] = {
    PODS: pod_causes,
    NODES: node_causes,
    PRIORITY_CLASSES: priority_class_causes,
    DISRUPTION_BUDGETS: budget_causes,
    DEFINITIONS: definition_causes,
    POD_GROUPS: pod_group_causes,
    **dict.fromkeys(LATER_POD_GROUPS, later_pod_group_causes),
    COMPOSITE_POD_GROUPS: composite_group_causes,
    **dict.fromkeys((WORKLOADS, *LATER_WORKLOADS), workload_causes),
    COSCHEDULING_POD_GROUPS: coscheduling_group_causes,
    builtin("leases", "coordination.k8s.io"): lease_causes,
    **dict.fromkeys(_WITH_TEMPLATE, template_causes),
}
_UPDATE_RULES: dict[ApiResource, Callable[[Object, Object], Iterator[Cause]]] = {
    PODS: pod_update_causes,
    POD_GROUPS: fixed_spec_causes,
    **dict.fromkeys((*LATER_POD_GROUPS, COMPOSITE_POD_GROUPS), resized_group_causes),
    WORKLOADS: fixed_spec_causes,
    RESOURCE_CLAIMS: fixed_spec_causes,
    builtin("persistentvolumeclaims"): claim_causes,
    PRIORITY_CLASSES: priority_class_update_causes,
}
