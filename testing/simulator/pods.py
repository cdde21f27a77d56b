"""What the server adds to a new pod before anybody sees it."""

from collections.abc import Callable
from typing import Any

from shared.model.quantity import parse_quantity
from testing.simulator.errors import forbidden
from testing.simulator.resources import PODS, Object

EVICTION_SECONDS = 300
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
GATED = "Scheduling is blocked due to non-empty scheduling gates"
CLASSED_RESOURCES = ("cpu", "memory")

PriorityClasses = Callable[[str], Object | None]
"""The class of a name; of the empty name, the one that is the default."""


def default_pod(pod: Object, priority_classes: PriorityClasses) -> None:
    """What a pod gets when it is new."""
    complete_spec(pod["spec"])
    spec: Object = pod["spec"]
    _prioritise(pod, spec, priority_classes)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": GATED}
        since = pod["metadata"]["creationTimestamp"]
        pod["status"]["conditions"] = [{**gated, "lastProbeTime": None, "lastTransitionTime": since}]


def complete_spec(spec: Object) -> None:
    """What every pod has whose author left it out."""
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
    """A pod stays for five minutes on a node that fails, unless it says otherwise."""
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
    """Guaranteed if every container has limits that equal its requests, BestEffort if none asks for anything."""
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
