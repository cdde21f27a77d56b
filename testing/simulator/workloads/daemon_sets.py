"""DaemonSets: a pod for each node that fits it, which the scheduler then binds there."""

from shared.model.affinity import repel
from shared.model.codec import node_from, pod_from
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.selectors import required_node_affinity_matches
from testing.simulator.errors import ApiError
from testing.simulator.resources import NODES, PODS, Object
from testing.simulator.workloads.ownership import (
    Dependent,
    Ownership,
    Workload,
    failure_of,
    pod_of,
    template_hash,
    template_of,
)

REVISION = "controller-revision-hash"
_TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def reconcile(ownership: Ownership, workload: Workload) -> bool:
    obj = workload.item.decode()
    template = template_of(obj)
    if template is None:
        return False
    revision = template_hash(template)
    name = f"{workload.item.name}-"
    nodes = _nodes(ownership, workload, _pod(template, revision, name), revision)
    placed: dict[str, Dependent] = {}
    for pod in workload.pods():
        node = node_of(pod)
        if node in placed or node not in nodes or pod.phase in ("Succeeded", "Failed"):
            ownership.remove(pod)
        else:
            placed[node] = pod
    failures: list[Object] = []
    try:
        for node in nodes:
            if node not in placed:
                ownership.make(PODS, workload, _for_node(_pod(template, revision, name), node))
    except ApiError as error:
        failures.append(failure_of(error, obj.get("status") or {}, ownership.now()))
    _replace_one(ownership, placed, revision)
    present = {node_of(pod): pod for pod in workload.pods() if pod.active}
    ready = sum(pod.ready for pod in present.values())
    updated = sum(pod.item.labels.get(REVISION) == revision for pod in present.values())
    status: Object = {"desiredNumberScheduled": len(nodes), "currentNumberScheduled": len(present)}
    status |= {"updatedNumberScheduled": updated, "numberReady": ready, "numberAvailable": ready}
    status |= {"numberUnavailable": max(0, len(nodes) - ready), "numberMisscheduled": 0}
    ownership.set_status(workload, {**status, "conditions": failures} if failures else status)
    return False


def _nodes(ownership: Ownership, workload: Workload, model: Object, revision: str) -> list[str]:
    """The nodes that the set has a pod for."""
    known, fitting = workload.fitting, {}
    for item in ownership.cluster.store.bucket(NODES).in_order():
        key = (revision, item.name, item.version)
        fitting[key] = known[key] if key in known else belongs(model, item.decode())
    workload.fitting = fitting
    return [name for (_, name, _), fits in fitting.items() if fits]


def belongs(pod: Object, node: Object) -> bool:
    """Whether a pod of the set belongs on the node: its selector and affinity match, its taints are tolerated."""
    wanted: Pod = pod_from({**pod, "metadata": {**pod["metadata"], "name": "any"}})
    found: Node = node_from(node)
    return required_node_affinity_matches(wanted, found) and not repel(found.spec.taints, wanted.spec.tolerations)


def node_of(pod: Dependent) -> str:
    """The node that it is on, or the one that it is meant for."""
    return pod.node or target_of(pod.item.decode()["spec"])


def target_of(spec: Object) -> str:
    """The node that a pod of a DaemonSet is meant for; empty if it is of none."""
    affinity = spec.get("affinity") or {}
    for term in ((affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}).get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return ""


def _pod(template: Object, revision: str, generate: str) -> Object:
    pod = pod_of(template, labels={REVISION: revision})
    pod["metadata"]["generateName"] = generate
    tolerations = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect} for name, effect in _TOLERATED
    ]
    pod["spec"]["tolerations"] = [*(pod["spec"].get("tolerations") or ()), *tolerations]
    return pod


def _for_node(pod: Object, node: str) -> Object:
    """Add the name of the node to every term of the pod's required node affinity."""
    affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    terms = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity[_REQUIRED] = {"nodeSelectorTerms": [{**term, "matchFields": [field]} for term in terms]}
    return pod


def _replace_one(ownership: Ownership, placed: dict[str, Dependent], revision: str) -> None:
    """Remove one pod of an older template, if no pod is missing."""
    if all(pod.ready and pod.active for pod in placed.values()):
        outdated = [pod for pod in placed.values() if pod.item.labels.get(REVISION) != revision]
        if outdated:
            ownership.remove(outdated[0])
