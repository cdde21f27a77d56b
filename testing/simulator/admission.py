"""What the server adds to new objects and which ones it refuses, by type."""

from collections.abc import Callable

from testing.simulator.errors import Cause, invalid, invalid_value, required, unsupported_value
from testing.simulator.metadata import cannot_unmarshal, metadata_causes
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
from testing.simulator.validation import (
    claim_causes,
    coscheduling_group_causes,
    fixed_spec_causes,
    lease_causes,
    pod_group_causes,
    workload_causes,
)

CLAIMS = builtin("persistentvolumeclaims")
NAME_LABEL = "kubernetes.io/metadata.name"
HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"
_TOO_HIGH = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"


def admit_new(resource: Resource, obj: Object, priority_classes: PriorityClasses) -> None:
    """Complete a new object, or refuse it."""
    if resource is PODS:
        check_shape(obj)
        default_pod(obj, priority_classes)
    elif default := _DEFAULTS.get(resource):
        default(obj)
    causes = metadata_causes(resource, obj["metadata"])
    if rule := _RULES.get(resource):
        causes += rule(obj)
    if causes:
        raise invalid(resource, obj["metadata"]["name"], causes)


def admit_update(resource: Resource, obj: Object, old: Object) -> None:
    """Refuse a change that the type does not allow."""
    if resource is PODS:
        check_shape(obj)
        complete_spec(obj["spec"])
        for key in ("priority", "priorityClassName", "preemptionPolicy"):
            if key in old["spec"]:
                obj["spec"].setdefault(key, old["spec"][key])
    causes = metadata_causes(resource, obj["metadata"])
    if rule := _RULES.get(resource):
        causes += rule(obj)
    if resource is PODS:
        causes += pod_update_causes(obj, old)
    if resource is POD_GROUPS or resource is WORKLOADS:
        causes += fixed_spec_causes(obj, old)
    if resource is CLAIMS:
        causes += claim_causes(obj, old)
    if resource is PRIORITY_CLASSES and obj.get("value") != old.get("value"):
        causes.append(invalid_value("value", obj.get("value"), "may not be changed in an update."))
    if causes:
        raise invalid(resource, obj["metadata"]["name"], causes)


def _spec_of(obj: Object) -> Object:
    spec = obj.setdefault("spec", {})
    if not isinstance(spec, dict):
        raise cannot_unmarshal("spec", spec, "Spec")
    return spec


def _status_of(obj: Object) -> Object:
    if obj.get("status") is None:
        obj["status"] = {}
    status = obj["status"]
    if not isinstance(status, dict):
        raise cannot_unmarshal("status", status, "Status")
    return status


def _default_node(node: Object) -> None:
    _spec_of(node)
    status = _status_of(node)
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = status["capacity"]
    if not status.get("conditions"):
        since = node["metadata"]["creationTimestamp"]
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "the simulated kubelet is ready",
        }
        status["conditions"] = [{**ready, "lastHeartbeatTime": since, "lastTransitionTime": since}]


def _default_namespace(namespace: Object) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), NAME_LABEL: metadata["name"]}
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _default_priority_class(priority_class: Object) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _default_workload(workload: Object) -> None:
    spec = _spec_of(workload)
    spec.setdefault("replicas", 1)
    _status_of(workload)


def _default_claim(claim: Object) -> None:
    _spec_of(claim).setdefault("volumeMode", "Filesystem")
    _status_of(claim).setdefault("phase", "Pending")


def _default_volume(volume: Object) -> None:
    spec = _spec_of(volume)
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    _status_of(volume).setdefault("phase", "Pending")


def _default_storage_class(storage_class: Object) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _default_service(service: Object) -> None:
    spec = _spec_of(service)
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    service.setdefault("status", {"loadBalancer": {}})


def _node_causes(node: Object) -> list[Cause]:
    spec = _spec_of(node)
    status = _status_of(node)
    causes: list[Cause] = []
    taints = spec.get("taints") or []
    if not isinstance(taints, list) or not all(isinstance(taint, dict) for taint in taints):
        raise cannot_unmarshal("spec.taints", taints, "slice of objects")
    for index, taint in enumerate(taints):
        if not taint.get("key"):
            causes.append(required(f"spec.taints[{index}].key"))
        if taint.get("effect") not in TAINT_EFFECTS:
            causes.append(unsupported_value(f"spec.taints[{index}].effect", taint.get("effect"), TAINT_EFFECTS))
    for which in ("capacity", "allocatable"):
        amounts = status.get(which) or {}
        if not isinstance(amounts, dict):
            raise cannot_unmarshal(f"status.{which}", amounts, "ResourceList")
        for name, amount in amounts.items():
            causes += amount_causes(f"status.{which}.{name}", amount)
    return causes


def _priority_class_causes(priority_class: Object) -> list[Cause]:
    value = priority_class.get("value")
    name: str = priority_class["metadata"]["name"]
    if not isinstance(value, int):
        return [required("value")]
    if value > HIGHEST_USER_PRIORITY and not name.startswith(SYSTEM_PREFIX):
        return [invalid_value("value", value, _TOO_HIGH)]
    return []


def _budget_causes(budget: Object) -> list[Cause]:
    spec = _spec_of(budget)
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        return [invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")]
    return []


def _definition_causes(definition: Object) -> list[Cause]:
    spec = _spec_of(definition)
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


_DEFAULTS: dict[Resource, Callable[[Object], None]] = {
    NODES: _default_node,
    NAMESPACES: _default_namespace,
    PRIORITY_CLASSES: _default_priority_class,
    builtin("deployments", "apps"): _default_workload,
    builtin("replicasets", "apps"): _default_workload,
    builtin("statefulsets", "apps"): _default_workload,
    builtin("replicationcontrollers"): _default_workload,
    CLAIMS: _default_claim,
    builtin("persistentvolumes"): _default_volume,
    builtin("storageclasses", "storage.k8s.io"): _default_storage_class,
    builtin("services"): _default_service,
}
_RULES: dict[Resource, Callable[[Object], list[Cause]]] = {
    PODS: pod_causes,
    NODES: _node_causes,
    PRIORITY_CLASSES: _priority_class_causes,
    DISRUPTION_BUDGETS: _budget_causes,
    DEFINITIONS: _definition_causes,
    POD_GROUPS: pod_group_causes,
    WORKLOADS: workload_causes,
    COSCHEDULING_POD_GROUPS: coscheduling_group_causes,
    builtin("leases", "coordination.k8s.io"): lease_causes,
}
