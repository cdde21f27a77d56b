"""Bindings, evictions, scale, and the token and access reviews.

Access reviews know non-resource paths (`/metrics`), about which components ask before they answer, and resources.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from testing.simulator.cluster import FINISHED, SimulatedCluster, check_preconditions
from testing.simulator.errors import (
    ApiError,
    bad_request,
    conflict,
    disruption_refused,
    invalid,
    required,
    unsupported_value,
)
from testing.simulator.metadata import metadata_of, timestamp
from testing.simulator.resources import DISRUPTION_BUDGETS, PODS, ApiResource, Object, builtin
from testing.simulator.selectors import selector_test
from testing.simulator.store import Item

BUSY_SECONDS = 10
"""Retry-After of an eviction whose budget has just changed."""
TOKEN_REVIEWS = builtin("tokenreviews", "authentication.k8s.io")
ACCESS_REVIEWS = builtin("subjectaccessreviews", "authorization.k8s.io")
OWN_ACCESS_REVIEWS = builtin("selfsubjectaccessreviews", "authorization.k8s.io")


def bind(cluster: SimulatedCluster, namespace: str, name: str, binding: Object) -> None:
    """Assign a pod to a node. The node need not even exist."""
    metadata = metadata_of(binding)
    if metadata.get("name") not in (None, "", name):
        raise bad_request(f"name in URL does not match name in Binding object: {name} and {metadata['name']}")
    node = _target(binding)
    item = cluster.find(PODS, namespace, name)
    check_preconditions(PODS, item, metadata)
    pod = item.decode()
    spec, status = pod["spec"], pod.setdefault("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        raise _unbindable(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _unbindable(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _unbindable(name, f"pod {name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = node
    status.pop("nominatedNodeName", None)
    labels = {**(metadata.get("labels") or {}), **cluster.topology_of(node)}
    for key, added in (("labels", labels), ("annotations", metadata.get("annotations"))):
        if added:
            pod["metadata"][key] = {**(pod["metadata"].get(key) or {}), **added}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    scheduled["lastTransitionTime"] = timestamp(cluster.clock())
    others = [condition for condition in status.get("conditions") or () if condition.get("type") != "PodScheduled"]
    status["conditions"] = [*others, scheduled]
    cluster.store.put(PODS, pod)


def _target(binding: Object) -> str:
    target = binding.get("target")
    if not isinstance(target, dict):
        target = {}
    causes = []
    kind, node = target.get("kind") or "Node", target.get("name")
    if kind != "Node":
        causes.append(unsupported_value("target.kind", kind, ["Node", "<empty>"]))
    if not isinstance(node, str) or not node:
        causes.append(required("target.name"))
    if causes:  # no reason: a real server treats this refusal as an internal error
        raise ApiError(500, "", ", ".join(f"{cause.field}: {cause.message}" for cause in causes))
    return str(node)


def _unbindable(name: str, why: str) -> ApiError:
    return conflict(PODS, name, why, subresource="binding")


def evict(cluster: SimulatedCluster, namespace: str, name: str, eviction: Object) -> None:
    """Delete a pod, if its disruption budget allows it."""
    item = cluster.find(PODS, namespace, name)
    options = eviction.get("deleteOptions") or {}
    check_preconditions(PODS, item, options.get("preconditions") or {})
    pod = item.decode()
    exempt = (pod.get("status") or {}).get("phase") in {"Pending", *FINISHED}
    if not exempt and not pod["metadata"].get("deletionTimestamp"):
        _spend(cluster, item)
    cluster.delete(PODS, item, options.get("gracePeriodSeconds"))


def _spend(cluster: SimulatedCluster, pod: Item) -> None:
    """Take one disruption from the budget that covers the pod, if any."""
    covering = []
    for item in cluster.store.bucket(DISRUPTION_BUDGETS).items(pod.namespace):
        budget = item.decode()
        selector = (budget.get("spec") or {}).get("selector")
        if isinstance(selector, dict) and selector_test(selector)(pod.labels):
            covering.append(budget)
    if len(covering) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "InternalError", why)
    for budget in covering:
        status = budget.get("status") or {}
        _check_budget(budget["metadata"], status)
        disrupted = {**(status.get("disruptedPods") or {}), pod.name: timestamp(cluster.clock())}
        allowed = status["disruptionsAllowed"] - 1
        budget["status"] = {**status, "disruptionsAllowed": allowed, "disruptedPods": disrupted}
        cluster.store.put(DISRUPTION_BUDGETS, budget)


def _check_budget(metadata: Object, status: Object) -> None:
    """Refuse the eviction if the budget is exhausted or its status is outdated."""
    name = metadata["name"]
    if (status.get("observedGeneration") or 0) < (metadata.get("generation") or 0):
        raise disruption_refused(f"The disruption budget {name} is still being processed by the server.", BUSY_SECONDS)
    if (status.get("disruptionsAllowed") or 0) > 0:
        return
    needed, healthy = status.get("desiredHealthy") or 0, status.get("currentHealthy") or 0
    if healthy > needed:
        raise disruption_refused(f"The disruption budget {name} does not allow evicting pods currently")
    raise disruption_refused(f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently")


def scale_of(item: Item) -> Object:
    obj = item.decode()
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    labels = ((obj["spec"].get("selector") or {}).get("matchLabels")) or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in kept if key in obj["metadata"]},
        "spec": {"replicas": obj["spec"].get("replicas", 0)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def rescale(cluster: SimulatedCluster, resource: ApiResource, item: Item, scale: Object) -> Item:
    metadata = metadata_of(scale)
    check_preconditions(resource, item, metadata)
    spec = scale.get("spec")
    replicas = (spec or {}).get("replicas", 0) if isinstance(spec, dict | None) else None
    if not isinstance(replicas, int) or replicas < 0:
        raise invalid(resource, item.name, [required("spec.replicas", "must be a number of at least 0")])
    obj = item.decode()
    obj["spec"]["replicas"] = replicas
    return cluster.update(resource, item, obj)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedUser:
    """`may`: verb and path, such as `get /metrics`, or verb and resource, such as `list apps/replicasets`, and if it is
    about one object its name, such as `get coordination.k8s.io/leases queue`. `*` is any verb, or any rest of a path.
    """

    token: str = field(repr=False)
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


def review(users: Sequence[ReviewedUser], denied: Collection[str], resource: ApiResource, obj: Object) -> Object:
    """The token or access review with its status. `denied`: as in SimulatorOptions."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        raise bad_request(f"{resource.kind}: spec is required")
    if resource is TOKEN_REVIEWS:
        user = {user.token: user for user in users}.get(spec.get("token") or "")
        status: Object = {"authenticated": False, "user": {}, "error": "[invalid bearer token, token lookup failed]"}
        if user is not None:
            groups = [*user.groups, "system:authenticated"]
            status = {"authenticated": True, "user": {"username": user.name, "uid": user.uid, "groups": groups}}
    elif resource is OWN_ACCESS_REVIEWS:
        right = " ".join(_right(spec)[:2])
        status = {"allowed": right not in denied, "reason": f"{right} is denied" if right in denied else ""}
    else:
        (verb, path, of), name = _right(spec), spec.get("user") or ""
        allowed = any(_allows(rule, verb, path, of) for user in users if user.name == name for rule in user.may)
        status = {"allowed": allowed, "reason": "" if allowed else f'no rule lets "{name}" {verb} {path}'}
    return {"metadata": {}, **obj, "kind": resource.kind, "apiVersion": resource.api_version, "status": status}


def _right(spec: Object) -> tuple[str, str, str]:
    """Verb, path or resource, and the name of an object."""
    if of := spec.get("resourceAttributes"):
        parts = (of.get("group"), of.get("resource"), of.get("subresource"))
        return of.get("verb") or "", "/".join(part for part in parts if part), of.get("name") or ""
    of = spec.get("nonResourceAttributes") or {}
    return of.get("verb") or "", of.get("path") or "", ""


def _allows(rule: str, verb: str, path: str, name: str) -> bool:
    verbs, pattern, only = (*rule.split(" "), "")[:3]
    fits = path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern
    return verbs in ("*", verb) and fits and only in ("", name)
