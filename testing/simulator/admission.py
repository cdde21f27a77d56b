"""Admission: default new objects and reject invalid ones, by type."""

from collections.abc import Callable

from testing.simulator.errors import Cause, invalid, invalid_value
from testing.simulator.metadata import metadata_causes
from testing.simulator.pod_admission import (
    PriorityClasses,
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
    budget_causes,
    claim_causes,
    coscheduling_group_causes,
    definition_causes,
    fixed_spec_causes,
    lease_causes,
    node_causes,
    pod_group_causes,
    priority_class_causes,
    spec_of,
    status_of,
    workload_causes,
)

CLAIMS = builtin("persistentvolumeclaims")
NAME_LABEL = "kubernetes.io/metadata.name"


def admit_new(resource: Resource, obj: Object, priority_classes: PriorityClasses) -> None:
    """Set the defaults of a new object; raise if it is invalid."""
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
    """Raise if the type does not allow this change."""
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


def _default_node(node: Object) -> None:
    spec_of(node)
    status = status_of(node)
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
    spec = spec_of(workload)
    spec.setdefault("replicas", 1)
    status_of(workload)


def _default_claim(claim: Object) -> None:
    spec_of(claim).setdefault("volumeMode", "Filesystem")
    status_of(claim).setdefault("phase", "Pending")


def _default_volume(volume: Object) -> None:
    spec = spec_of(volume)
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    status_of(volume).setdefault("phase", "Pending")


def _default_storage_class(storage_class: Object) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _default_service(service: Object) -> None:
    spec = spec_of(service)
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    service.setdefault("status", {"loadBalancer": {}})


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
    NODES: node_causes,
    PRIORITY_CLASSES: priority_class_causes,
    DISRUPTION_BUDGETS: budget_causes,
    DEFINITIONS: definition_causes,
    POD_GROUPS: pod_group_causes,
    WORKLOADS: workload_causes,
    COSCHEDULING_POD_GROUPS: coscheduling_group_causes,
    builtin("leases", "coordination.k8s.io"): lease_causes,
}
