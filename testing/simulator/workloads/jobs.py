"""Jobs: pods that run until enough of them have succeeded."""

from testing.simulator.controllers import RUN_SECONDS
from testing.simulator.errors import ApiError
from testing.simulator.resources import PODS, Object
from testing.simulator.workloads.ownership import (
    BURST,
    Dependent,
    Ownership,
    Workload,
    condition,
    failure_of,
    pod_of,
    template_of,
)
from testing.simulator.workloads.replica_sets import least_useful

JOB_SECONDS = "10"
"""How long a pod of a Job runs unless an annotation of its template says otherwise."""
INDEX = "batch.kubernetes.io/job-completion-index"


def reconcile(ownership: Ownership, workload: Workload) -> bool:
    obj = workload.item.decode()
    template, before = template_of(obj), obj.get("status") or {}
    if template is None or any(each["type"] == "Complete" for each in before.get("conditions") or ()):
        return False
    spec, now = obj["spec"], ownership.now()
    pods = workload.pods()
    active = [pod for pod in pods if pod.active]
    succeeded = max(before.get("succeeded", 0), sum(pod.phase == "Succeeded" for pod in pods))
    completions = spec.get("completions")
    parallelism = 0 if spec.get("suspend") else spec.get("parallelism", 1)
    left = (0 if succeeded else parallelism) if completions is None else completions - succeeded
    wanted = len(active) if completions is None and succeeded else min(parallelism, left)
    conditions: list[Object] = []
    try:
        numbers = _free_numbers(pods, completions) if spec.get("completionMode") == "Indexed" else None
        for _ in range(min(wanted - len(active), BURST)):
            ownership.make(PODS, workload, _pod(template, workload, None if numbers is None else numbers.pop(0)))
    except ApiError as error:
        conditions.append(failure_of(error, before, now))
    if len(active) > wanted:
        for pod in least_useful(active)[: len(active) - wanted]:
            ownership.remove(pod)
    active = [pod for pod in workload.pods() if pod.active]
    if spec.get("suspend"):
        conditions.append(condition(before, "Suspended", True, "JobSuspended", "Job suspended", now))
    status: Object = {"active": len(active), "ready": sum(pod.ready for pod in active), "succeeded": succeeded}
    status |= {"startTime": before.get("startTime") or now, "uncountedTerminatedPods": {}, "terminating": 0}
    if left <= 0 and not active:
        status["completionTime"] = now
        why = ("CompletionsReached", "Reached expected number of succeeded pods", now)
        conditions += [condition(before, type_, True, *why) for type_ in ("SuccessCriteriaMet", "Complete")]
    ownership.set_status(workload, {**status, "conditions": conditions} if conditions else status)
    return wanted - len(active) > 0 and not conditions


def _free_numbers(pods: list[Dependent], completions: int) -> list[int]:
    """The completion indexes that no pod has, except pods that failed or are being deleted."""
    taken = {pod.annotations.get(INDEX) for pod in pods if pod.active or pod.phase == "Succeeded"}
    return [number for number in range(completions) if str(number) not in taken]


def _pod(template: Object, workload: Workload, number: int | None) -> Object:
    labels = {} if number is None else {INDEX: str(number)}
    pod = pod_of(template, labels=labels)
    pod["metadata"]["annotations"] = {RUN_SECONDS: JOB_SECONDS, **pod["metadata"]["annotations"], **labels}
    name = workload.item.name
    pod["metadata"]["generateName"] = f"{name}-" if number is None else f"{name}-{number}-"
    return pod
