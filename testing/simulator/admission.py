"""Admission: default new objects and reject invalid ones, by type.

Types that a scheduler writes or reads closely are validated as by a real server; pods are in `pod_admission`.
"""

import re
from collections.abc import Callable
from typing import Any

from testing.simulator.errors import Cause, forbidden_value, invalid, invalid_value, required, unsupported_value
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
    COSCHEDULING_POD_GROUPS,
    DEFINITIONS,
    DISRUPTION_BUDGETS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    WORKLOADS,
    Object,
    Resource,
    builtin,
)

NAME_LABEL = "kubernetes.io/metadata.name"
SERVICES = builtin("services")
_WORKLOAD: Object = {"spec": {"replicas": 1}, "status": {}}
DEFAULTS: dict[Resource, Object] = {
    PRIORITY_CLASSES: {"preemptionPolicy": "PreemptLowerPriority"},
    builtin("deployments", "apps"): _WORKLOAD,
    builtin("replicasets", "apps"): _WORKLOAD,
    builtin("statefulsets", "apps"): _WORKLOAD,
    builtin("replicationcontrollers"): _WORKLOAD,
    builtin("persistentvolumeclaims"): {"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}},
    builtin("persistentvolumes"): {
        "spec": {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"},
        "status": {"phase": "Pending"},
    },
    builtin("storageclasses", "storage.k8s.io"): {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    SERVICES: {"spec": {"type": "ClusterIP", "sessionAffinity": "None"}, "status": {"loadBalancer": {}}},
    NODES: {"spec": {}, "status": {}},
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
MAX_TEMPLATES = 8
IMMUTABLE = "field is immutable"


def admit_new(resource: Resource, obj: Object, priority_classes: PriorityClasses) -> None:
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
    elif resource is SERVICES:
        for port in obj["spec"].get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
    _check(resource, obj)


def admit_update(resource: Resource, obj: Object, old: Object) -> None:
    """Raise if the type does not allow this change."""
    if resource is PODS:
        check_shape(obj)
        complete_spec(obj["spec"])
        for key in ("priority", "priorityClassName", "preemptionPolicy"):
            if key in old["spec"]:
                obj["spec"].setdefault(key, old["spec"][key])
    _check(resource, obj, old)


def _check(resource: Resource, obj: Object, old: Object | None = None) -> None:
    """Raise if the object is invalid, or may not replace the old one."""
    causes = metadata_causes(resource, obj["metadata"])
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


def new_event_causes(event: Object, namespace: str) -> list[Cause]:
    """Validate a new events.k8s.io/v1 Event. The deprecated fields must be unset."""
    causes: list[Cause] = []
    check_micro_time("eventTime", event.get("eventTime"))
    if not event.get("eventTime"):
        causes.append(required("eventTime"))
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        text = event.get(field)
        if not text:
            causes.append(required(field))
        elif len(text) > MAX_TEXT and field != "reportingController":
            causes.append(invalid_value(field, "", f"can have at most {MAX_TEXT} characters"))
    if event.get("reportingController"):
        causes += qualified_name_causes("reportingController", event["reportingController"])
    if len((event.get("note") or "").encode()) > MAX_NOTE_BYTES:
        causes.append(invalid_value("message", "", f"can have at most {MAX_NOTE_BYTES} characters"))
    if event.get("type") not in TYPES:
        causes.append(invalid_value("type", "", f"has invalid value: {event.get('type')}"))
    causes += [invalid_value(field, "", "needs to be unset") for field in DEPRECATED if event.get(field)]
    if not (event.get("regarding") or {}).get("namespace") and namespace not in _NAMESPACES_OF_CLUSTER_OBJECTS:
        causes.append(invalid_value("involvedObject.namespace", "", "does not match event.namespace"))
    return causes + _series_causes(event.get("series"))


def changed_event_causes(event: Object, old: Object) -> list[Cause]:
    """In an events.k8s.io/v1 Event only the series may change."""
    causes = _series_causes(event.get("series")) if event.get("series") != old.get("series") else []
    return causes + [
        invalid_value(field, event.get(field), IMMUTABLE)
        for field in IMMUTABLE_EVENT_FIELDS
        if (event.get(field) or None) != (old.get(field) or None)
    ]


def _series_causes(series: Any) -> list[Cause]:
    if series is None:
        return []
    if not isinstance(series, dict) or not isinstance(series.get("count", 0), int):
        raise cannot_unmarshal("series", series, "EventSeries")
    observed = series.get("lastObservedTime")
    check_micro_time("series.lastObservedTime", observed)
    causes = [] if series.get("count", 0) >= 2 else [invalid_value("series.count", "", "should be at least 2")]
    return causes if observed else [*causes, required("series.lastObservedTime")]


def lease_causes(lease: Object) -> list[Cause]:
    spec = lease.get("spec") or {}
    for field in ("acquireTime", "renewTime"):
        check_micro_time(f"spec.{field}", spec.get(field))
    causes: list[Cause] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes


def claim_causes(claim: Object, old: Object) -> list[Cause]:
    """A claim's spec is immutable except for its size; its volume name is written once."""
    was, wanted = _immutable_part(old), _immutable_part(claim)
    if not was.get("volumeName"):
        wanted.pop("volumeName", None)
        was.pop("volumeName", None)
    return [] if was == wanted else [Cause("spec", "FieldValueForbidden", f"Forbidden: {CLAIM_IMMUTABLE}")]


def _immutable_part(claim: Object) -> Object:
    return {key: value for key, value in (claim.get("spec") or {}).items() if key not in MUTABLE_CLAIM_FIELDS}


def check_micro_time(field: str, value: Any) -> None:
    """A MicroTime has exactly six fractional digits; anything else does not decode."""
    if value is not None and not (isinstance(value, str) and _MICRO_TIME.fullmatch(value)):
        raise cannot_unmarshal(field, value, "MicroTime, as in 2006-01-02T15:04:05.000000Z")


def pod_group_causes(group: Object) -> list[Cause]:
    """Validate a PodGroup of scheduling.k8s.io."""
    return policy_causes("spec.schedulingPolicy", spec_of(group).get("schedulingPolicy"))


def workload_causes(workload: Object) -> list[Cause]:
    templates = spec_of(workload).get("podGroupTemplates")
    if not templates:
        return [required("spec.podGroupTemplates")]
    expect_objects("spec.podGroupTemplates", templates, "slice of PodGroupTemplate")
    causes: list[Cause] = []
    if len(templates) > MAX_TEMPLATES:
        message = f"must have at most {MAX_TEMPLATES} items"
        causes.append(invalid_value("spec.podGroupTemplates", len(templates), message))
    for index, template in enumerate(templates):
        where = f"spec.podGroupTemplates[{index}]"
        if not template.get("name"):
            causes.append(required(f"{where}.name"))
        causes += policy_causes(f"{where}.schedulingPolicy", template.get("schedulingPolicy"))
    return causes


def policy_causes(where: str, policy: Any) -> list[Cause]:
    """Exactly one policy must be set, and a gang needs a positive minCount."""
    expect(where, policy, dict, "PodGroupSchedulingPolicy")
    policy = policy or {}
    named = [name for name in ("basic", "gang") if policy.get(name) is not None]
    if len(named) != 1:
        return [invalid_value(where, ", ".join(named), "must specify exactly one of: `basic`, `gang`")]
    gang = policy.get("gang")
    if gang is None:
        return []
    expect(f"{where}.gang", gang, dict, "GangSchedulingPolicy")
    return _count_causes(f"{where}.gang.minCount", gang.get("minCount") or 0)


def coscheduling_group_causes(group: Object) -> list[Cause]:
    """Validate a PodGroup of scheduling.x-k8s.io as its CustomResourceDefinition does."""
    spec = spec_of(group)
    causes = [] if spec.get("minMember") is None else _count_causes("spec.minMember", spec["minMember"])
    timeout = spec.get("scheduleTimeoutSeconds")
    if timeout is not None and not _is_integer(timeout):
        causes.append(invalid_value("spec.scheduleTimeoutSeconds", timeout, "must be of type integer"))
    return causes


def fixed_spec_causes(obj: Object, old: Object) -> list[Cause]:
    """The spec of pod groups and workloads of scheduling.k8s.io is immutable."""
    return [] if obj.get("spec") == old.get("spec") else [forbidden_value("spec", IMMUTABLE)]


def _count_causes(where: str, count: Any) -> list[Cause]:
    if not _is_integer(count):
        raise cannot_unmarshal(where, count, "int32")
    return [] if count >= 1 else [invalid_value(where, count, "must be greater than or equal to 1")]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def node_causes(node: Object) -> list[Cause]:
    spec, status = spec_of(node), status_of(node)
    causes: list[Cause] = []
    taints = spec.get("taints") or []
    expect_objects("spec.taints", taints)
    for index, taint in enumerate(taints):
        if not taint.get("key"):
            causes.append(required(f"spec.taints[{index}].key"))
        if taint.get("effect") not in TAINT_EFFECTS:
            causes.append(unsupported_value(f"spec.taints[{index}].effect", taint.get("effect"), TAINT_EFFECTS))
    for which in ("capacity", "allocatable"):
        amounts = status.get(which) or {}
        expect(f"status.{which}", amounts, dict, "ResourceList")
        for name, amount in amounts.items():
            causes += amount_causes(f"status.{which}.{name}", amount)
    return causes


def priority_class_causes(priority_class: Object) -> list[Cause]:
    value = priority_class.get("value")
    name: str = priority_class["metadata"]["name"]
    if not isinstance(value, int):
        return [required("value")]
    if value > HIGHEST_USER_PRIORITY and not name.startswith(SYSTEM_PREFIX):
        return [invalid_value("value", value, _TOO_HIGH)]
    return []


def budget_causes(budget: Object) -> list[Cause]:
    spec = spec_of(budget)
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        return [invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")]
    return []


def definition_causes(definition: Object) -> list[Cause]:
    spec = spec_of(definition)
    causes = [required(f"spec.{key}") for key in ("group", "names", "scope", "versions") if not spec.get(key)]
    if causes:
        return causes
    names, versions = spec["names"], spec["versions"]
    if not isinstance(names, dict) or not names.get("plural") or not names.get("kind"):
        return [required("spec.names.plural"), required("spec.names.kind")]
    if not isinstance(versions, list) or not all(isinstance(v, dict) and v.get("name") for v in versions):
        return [required("spec.versions[0].name")]
    expected = f"{names['plural']}.{spec['group']}"
    name = definition["metadata"]["name"]
    if name != expected:
        return [invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')]
    return []


def priority_class_update_causes(priority_class: Object, old: Object) -> list[Cause]:
    value = priority_class.get("value")
    return [] if value == old.get("value") else [invalid_value("value", value, "may not be changed in an update.")]


def spec_of(obj: Object) -> Object:
    """The spec, created if absent; raises if it is not an object."""
    return _part(obj, "spec")


def status_of(obj: Object) -> Object:
    return _part(obj, "status")


def _part(obj: Object, name: str) -> Object:
    if name == "status" and obj.get(name) is None:
        obj[name] = {}
    part = obj.setdefault(name, {})
    if not isinstance(part, dict):
        raise cannot_unmarshal(name, part, name.capitalize())
    return part


_RULES: dict[Resource, Callable[[Object], list[Cause]]] = {
    PODS: pod_causes,
    NODES: node_causes,
    PRIORITY_CLASSES: priority_class_causes,
    DISRUPTION_BUDGETS: budget_causes,
    DEFINITIONS: definition_causes,
    POD_GROUPS: pod_group_causes,
    WORKLOADS: workload_causes,
    COSCHEDULING_POD_GROUPS: coscheduling_group_causes,
    builtin("leases", "coordination.k8s.io"): lease_causes,
}
_UPDATE_RULES: dict[Resource, Callable[[Object, Object], list[Cause]]] = {
    PODS: pod_update_causes,
    POD_GROUPS: fixed_spec_causes,
    WORKLOADS: fixed_spec_causes,
    builtin("persistentvolumeclaims"): claim_causes,
    PRIORITY_CLASSES: priority_class_update_causes,
}
