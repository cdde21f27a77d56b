"""ReplicaSets: as many pods as wanted; the least useful ones go first."""

from collections import Counter

from testing.simulator.errors import ApiError
from testing.simulator.resources import PODS, Object
from testing.simulator.workloads.ownership import (
    BURST,
    Dependent,
    Ownership,
    Workload,
    failure_of,
    pod_of,
    template_of,
)

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def reconcile(ownership: Ownership, workload: Workload) -> bool:
    """Make or remove pods; returns whether there is more to do at once."""
    obj = workload.item.decode()
    template = template_of(obj)
    if template is None:
        return False
    pods = [pod for pod in workload.pods() if pod.active]
    missing = obj["spec"].get("replicas", 1) - len(pods)
    before, failures = obj.get("status") or {}, []
    try:
        for _ in range(min(missing, BURST)):
            ownership.make(PODS, workload, _named(pod_of(template), workload))
    except ApiError as error:
        failures.append(failure_of(error, before, ownership.now()))
    if missing < 0:
        for pod in least_useful(pods)[: min(-missing, BURST)]:
            ownership.remove(pod)
    counted = [pod for pod in workload.pods() if pod.active]
    ready = sum(pod.ready for pod in counted)
    status: Object = {"replicas": len(counted), "fullyLabeledReplicas": len(counted)}
    status |= {"readyReplicas": ready, "availableReplicas": ready}
    ownership.set_status(workload, {**status, "conditions": failures} if failures else status)
    return abs(missing) > BURST and not failures


def _named(pod: Object, workload: Workload) -> Object:
    pod["metadata"]["generateName"] = f"{workload.item.name}-"
    return pod


def least_useful(pods: list[Dependent]) -> list[Dependent]:
    """In the order in which they are removed: without a node, not running, cheap, beside others, and new ones first."""
    beside = Counter(pod.node for pod in pods)

    def rank(pod: Dependent) -> tuple[bool, bool, bool, int, int, int]:
        at = (bool(pod.node), pod.phase == "Running", pod.ready, _cost(pod))
        return (*at, -beside[pod.node] if pod.node else 0, -pod.order)

    return sorted(pods, key=rank)


def _cost(pod: Dependent) -> int:
    try:
        return int(pod.annotations.get(DELETION_COST, "0"))
    except ValueError:
        return 0
