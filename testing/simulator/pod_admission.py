"""Admission of pods: defaults, priority, QoS class and validation.

Validation is lighter than a real server's: it rejects malformed pods and accepts the rest.
"""

from collections.abc import Callable, Iterator
from typing import Any

from shared.model.quantity import parse_quantity
from testing.simulator.errors import Cause, forbidden, forbidden_value, invalid_value, required, unsupported_value
from testing.simulator.metadata import cannot_unmarshal, expect, expect_objects, name_causes
from testing.simulator.resources import PODS, Object

EVICTION_SECONDS = 300
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
GATED = "Scheduling is blocked due to non-empty scheduling gates"
CLASSED_RESOURCES = ("cpu", "memory")
PriorityClasses = Callable[[str], Object | None]
"""Finds a PriorityClass by name; the empty name finds the global default."""
RESTART_POLICIES = ("Always", "OnFailure", "Never")
TOLERATION_OPERATORS = ("Equal", "Exists", "Gt", "Lt")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_LISTS = ("containers", "initContainers", "tolerations", "volumes", "schedulingGates", "topologySpreadConstraints")
_SINGLE = {
    "terminationGracePeriodSeconds": int,
    "nodeName": str,
    "schedulerName": str,
    "schedulingGroup": dict,
    "priority": int,
    "priorityClassName": str,
    "preemptionPolicy": str,
}
_MUTABLE = frozenset({"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"})
_MUTABLE_WHILE_GATED = frozenset({"nodeSelector", "affinity"})


def default_pod(pod: Object, priority_classes: PriorityClasses) -> None:
    """Set the defaults of a new pod, its priority and its status."""
    complete_spec(pod["spec"])
    spec: Object = pod["spec"]
    _prioritise(pod, spec, priority_classes)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": GATED}
        since = pod["metadata"]["creationTimestamp"]
        pod["status"]["conditions"] = [{**gated, "lastProbeTime": None, "lastTransitionTime": since}]


def complete_spec(spec: Object) -> None:
    """Set defaults that also apply to updates."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("securityContext", {})
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    for container in spec["containers"]:
        _default_container(container, spec)
    for container in spec.get("initContainers") or ():
        _default_container(container, spec)
    spec.setdefault("enableServiceLinks", True)
    _tolerate(spec)


def _default_container(container: Object, spec: Object) -> None:
    image = container.get("image") or ""
    tag = image.rpartition("/")[2].partition(":")[2]
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if spec.get("hostNetwork") and not port.get("hostPort"):
            port["hostPort"] = port["containerPort"]
    resources = container.get("resources")
    if resources is None:
        container["resources"] = {}
    elif limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _tolerate(spec: Object) -> None:
    """Tolerate a failing node for five minutes, unless the pod says otherwise."""
    tolerations: list[Object] = spec.get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": EVICTION_SECONDS}
        for key in (NOT_READY, UNREACHABLE)
        if not any(_tolerates(toleration, key) for toleration in tolerations)
    ]
    if added:
        spec["tolerations"] = [*tolerations, *added]


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")


def _prioritise(pod: Object, spec: Object, priority_classes: PriorityClasses) -> None:
    name = spec.get("priorityClassName") or ""
    found = priority_classes(name)
    if found is None and name:
        raise forbidden(PODS, pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
    value, policy = 0, "PreemptLowerPriority"
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
        value, policy = found["value"], found.get("preemptionPolicy") or policy
    for field, given, computed in (
        ("integer value of priority", spec.get("priority"), value),
        ("string value of PreemptionPolicy", spec.get("preemptionPolicy"), policy),
    ):
        if given is not None and given != computed:
            why = (
                f"the {field} ({given}) must not be provided in pod spec; priority admission controller computed "
                f"{computed} from the given PriorityClass name"
            )
            raise forbidden(PODS, pod["metadata"]["name"], why)
    spec["priority"] = value
    spec["preemptionPolicy"] = policy


def qos_class(spec: Object) -> str:
    """Guaranteed if every container's limits equal its requests, BestEffort if there are neither."""
    asked = False
    guaranteed = True
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        requests: dict[str, Any] = resources.get("requests") or {}
        limits: dict[str, Any] = resources.get("limits") or {}
        for name in CLASSED_RESOURCES:
            request, limit = requests.get(name), limits.get(name)
            asked = asked or request is not None or limit is not None
            if limit is None or (request != limit and parse_quantity(request) != parse_quantity(limit)):
                guaranteed = False
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def check_shape(pod: Object) -> None:
    """Raise if the object does not decode as a pod."""
    spec = pod.get("spec")
    if spec is None:
        spec = pod["spec"] = {}
    expect("spec", spec, dict, "PodSpec")
    for name in _LISTS:
        expect_objects(f"spec.{name}", spec.get(name))
        if spec.get(name) is None:
            spec.pop(name, None)
    spec.setdefault("containers", [])
    for name, kind in _SINGLE.items():
        expect(f"spec.{name}", spec.get(name), kind, kind.__name__)
    for field, container in _containers(spec):
        resources = container.get("resources")
        expect(f"{field}.resources", resources, dict, "ResourceRequirements")
        for which in ("requests", "limits"):
            expect(f"{field}.resources.{which}", (resources or {}).get(which), dict, "ResourceList")
        expect_objects(f"{field}.ports", container.get("ports"))
        expect(f"{field}.image", container.get("image"), str, "string")


def pod_causes(pod: Object) -> Iterator[Cause]:
    spec: Object = pod["spec"]
    if not spec["containers"]:
        yield required("spec.containers")
    names: set[str] = set()
    for field, container in _containers(spec):
        yield from _container_causes(field, container)
        name = container.get("name")
        if isinstance(name, str):
            if name in names:
                yield Cause(f"{field}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
            names.add(name)
    if (policy := spec.get("restartPolicy")) not in RESTART_POLICIES:
        yield unsupported_value("spec.restartPolicy", policy, RESTART_POLICIES)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield forbidden_value("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
    if (group := spec.get("schedulingGroup")) is not None:
        yield from name_causes("spec.schedulingGroup.podGroupName", group.get("podGroupName"))
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration_causes(f"spec.tolerations[{index}]", toleration)
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield from _spread_causes(f"spec.topologySpreadConstraints[{index}]", constraint)


def _containers(spec: Object) -> Iterator[tuple[str, Object]]:
    for index, container in enumerate(spec["containers"]):
        yield f"spec.containers[{index}]", container
    for index, container in enumerate(spec.get("initContainers") or ()):
        yield f"spec.initContainers[{index}]", container


def _container_causes(field: str, container: Object) -> Iterator[Cause]:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    causes = [*name_causes(f"{field}.name", container.get("name"), label=True)]
    if not container.get("image"):
        causes.append(required(f"{field}.image"))
    for which in ("requests", "limits"):
        for name, amount in (resources.get(which) or {}).items():
            causes += amount_causes(f"{field}.resources.{which}[{name}]", amount)
    yield from causes
    if causes:
        return
    for name, amount in (resources.get("requests") or {}).items():
        if name in limits and amount != limits[name] and parse_quantity(amount) > parse_quantity(limits[name]):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            yield invalid_value(f"{field}.resources.requests", amount, why)


def amount_causes(field: str, amount: Any) -> Iterator[Cause]:
    """A quantity that does not parse raises; a negative one is an invalid value."""
    try:
        negative = parse_quantity(amount) < 0
    except (ValueError, TypeError):
        raise cannot_unmarshal(field, amount, "Quantity: quantities must match the regular expression") from None
    if negative:
        yield invalid_value(field, amount, "must be greater than or equal to 0")


def _toleration_causes(field: str, toleration: Object) -> Iterator[Cause]:
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect")
    if operator not in TOLERATION_OPERATORS:
        yield unsupported_value(f"{field}.operator", operator, TOLERATION_OPERATORS)
    if effect and effect not in TAINT_EFFECTS:
        yield unsupported_value(f"{field}.effect", effect, TAINT_EFFECTS)
    if not toleration.get("key") and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid_value(f"{field}.operator", operator, why)


def _spread_causes(field: str, constraint: Object) -> Iterator[Cause]:
    skew = constraint.get("maxSkew")
    if not isinstance(skew, int) or skew <= 0:
        yield invalid_value(f"{field}.maxSkew", skew, "must be greater than zero")
    if not constraint.get("topologyKey"):
        yield required(f"{field}.topologyKey", "can not be empty")
    if (action := constraint.get("whenUnsatisfiable")) not in UNSATISFIABLE:
        yield unsupported_value(f"{field}.whenUnsatisfiable", action, UNSATISFIABLE)


def pod_update_causes(pod: Object, old: Object) -> Iterator[Cause]:
    """Most of a pod's spec is immutable. Only the first problem is named."""
    new_spec, old_spec = pod["spec"], old["spec"]
    mutable = _MUTABLE | _MUTABLE_WHILE_GATED if old_spec.get("schedulingGates") else _MUTABLE
    tolerations, gates = new_spec.get("tolerations") or [], old_spec.get("schedulingGates") or []
    if _fixed(new_spec, mutable) != _fixed(old_spec, mutable):
        yield forbidden_value("spec", IMMUTABLE)
    elif any(toleration not in tolerations for toleration in old_spec.get("tolerations") or ()):
        why = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden_value("spec.tolerations", why)
    elif any(gate not in gates for gate in new_spec.get("schedulingGates") or ()):
        yield forbidden_value("spec.schedulingGates", "only deletion is allowed, but found new scheduling gate")


def _fixed(spec: Object, mutable: frozenset[str]) -> Object:
    fixed = {key: value for key, value in spec.items() if key not in mutable and value is not None}
    for which in ("containers", "initContainers"):
        if which in fixed:
            fixed[which] = [{key: c[key] for key in c if key != "image"} for c in fixed[which]]
    return fixed
