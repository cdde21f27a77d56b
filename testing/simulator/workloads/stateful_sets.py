"""StatefulSets: pods with numbers, made, removed and replaced in order."""

from testing.simulator.errors import ApiError
from testing.simulator.resources import PODS, Object, builtin
from testing.simulator.workloads.ownership import (
    BURST,
    Dependent,
    Ownership,
    Workload,
    failure_of,
    pod_of,
    template_hash,
    template_of,
)

CLAIMS = builtin("persistentvolumeclaims")
REVISION = "controller-revision-hash"


def reconcile(ownership: Ownership, workload: Workload) -> bool:
    obj = workload.item.decode()
    template = template_of(obj)
    if template is None:
        return False
    spec = obj["spec"]
    revision = f"{workload.item.name}-{template_hash(template)}"
    first = (spec.get("ordinals") or {}).get("start", 0)
    wanted = range(first, first + spec.get("replicas", 1))
    failures: list[Object] = []
    try:
        _step(ownership, workload, spec, wanted, revision)
    except ApiError as error:
        failures.append(failure_of(error, obj.get("status") or {}, ownership.now()))
    pods = [pod for pod in workload.pods() if pod.active]
    updated = sum(pod.item.labels.get(REVISION) == revision for pod in pods)
    ready = sum(pod.ready for pod in pods)
    current = revision if updated == len(pods) else (obj.get("status") or {}).get("currentRevision", revision)
    status: Object = {"replicas": len(pods), "readyReplicas": ready, "availableReplicas": ready}
    status |= {"currentReplicas": updated if current == revision else len(pods) - updated, "updatedReplicas": updated}
    status |= {"currentRevision": current, "updateRevision": revision, "collisionCount": 0}
    ownership.set_status(workload, {**status, "conditions": failures} if failures else status)
    return False


def _step(ownership: Ownership, workload: Workload, spec: Object, wanted: range, revision: str) -> None:
    """Take the next step towards the pods that are wanted; the change that it makes leads to the one after."""
    in_order = spec.get("podManagementPolicy") != "Parallel"
    present = {number: pod for pod in workload.pods() if (number := _number(workload, pod)) is not None}
    made = 0
    for number in wanted:
        pod = present.get(number)
        if pod is None and made < BURST:
            _make(ownership, workload, spec, number, revision)
            made += 1
        elif pod is not None and not pod.active and not pod.deleting:
            ownership.remove(pod)
        if in_order and (pod is None or not pod.ready or not pod.active):
            return
    surplus = sorted((number for number in present if number not in wanted), reverse=True)
    for number in surplus[:1] if in_order else surplus:
        if present[number].active:
            ownership.remove(present[number])
    if surplus or len(present) < len(wanted) or not all(present[number].ready for number in wanted):
        return
    strategy = spec.get("updateStrategy") or {}
    from_number = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    for number in reversed(wanted):
        if number < from_number or strategy.get("type") == "OnDelete":
            return
        if present[number].item.labels.get(REVISION) != revision:
            ownership.remove(present[number])
            return


def _number(workload: Workload, pod: Dependent) -> int | None:
    name, _, number = pod.item.name.rpartition("-")
    return int(number) if name == workload.item.name and number.isdecimal() else None


def _make(ownership: Ownership, workload: Workload, spec: Object, number: int, revision: str) -> None:
    name = f"{workload.item.name}-{number}"
    labels = {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(number)}
    pod = pod_of(spec["template"], labels={**labels, REVISION: revision})
    pod["metadata"]["name"] = pod["spec"]["hostname"] = name
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    for claim in spec.get("volumeClaimTemplates") or ():
        volume = claim["metadata"]["name"]
        claimed = f"{volume}-{name}"
        if ownership.cluster.store.bucket(CLAIMS).get(workload.item.namespace, claimed) is None:
            metadata = {"name": claimed, "labels": (claim["metadata"].get("labels") or {})}
            made: Object = {"metadata": metadata, "spec": claim["spec"]}
            ownership.cluster.create(CLAIMS, workload.item.namespace, made)
        volumes[volume] = {"name": volume, "persistentVolumeClaim": {"claimName": claimed}}
    if volumes:
        pod["spec"]["volumes"] = list(volumes.values())
    ownership.make(PODS, workload, pod)
