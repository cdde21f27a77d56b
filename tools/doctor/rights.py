"""The rights that Flotilla needs at the API server, and which of them this user lacks."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import msgspec

from shared.kube.client import KubeClient
from tools.doctor.findings import Finding, note, ok, wrong

ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AT_ONCE = 8
"""Reviews at the same time."""
PATIENCE = 5.0
"""Seconds for one review."""
LEASES = "leases"


class Rule(NamedTuple):
    """`resources` with their subresource, as `pods/status`. `name`: the one object that it is about; empty: all."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    name: str = ""


class Right(NamedTuple):
    group: str
    resource: str
    verb: str
    name: str = ""


RULES = (
    Rule("", ("pods", "nodes"), ("list", "watch"), "without them nothing is scheduled"),
    Rule("", ("pods",), ("get",), "pods are looked up before they are evicted, or when no binder reports on them"),
    Rule("", ("pods",), ("delete",), "without it there is no preemption"),
    Rule("", ("pods/binding",), ("create",), "without it no pod is bound"),
    Rule("", ("pods/status",), ("patch", "update"), "without it pods have no condition, and no late binding is fenced"),
    Rule("", ("nodes",), ("get",), "a node is read before volumes are bound"),
    Rule("", ("namespaces",), ("get",), "its uid identifies the cluster", name="kube-system"),
    Rule("", ("namespaces",), ("list", "watch"), "for namespace selectors of pod affinity"),
    Rule("", ("services", "replicationcontrollers"), ("list", "watch"), "for default spreading"),
    Rule("apps", ("replicasets", "statefulsets"), ("list", "watch"), "for default spreading"),
    Rule("", ("persistentvolumes", "persistentvolumeclaims"), ("list", "watch"), "for pods with volumes"),
    Rule("", ("persistentvolumes", "persistentvolumeclaims"), ("get", "update"), "volumes are bound before the pod"),
    Rule(
        "storage.k8s.io",
        ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"),
        ("list", "watch"),
        "for pods with volumes",
    ),
    Rule("storage.k8s.io", ("csinodes",), ("get",), "volumes are bound before the pod"),
    Rule("policy", ("poddisruptionbudgets",), ("list", "watch"), "preemption spares what budgets protect"),
    Rule("scheduling.k8s.io", ("podgroups",), ("list", "watch"), "for gangs"),
    Rule("scheduling.x-k8s.io", ("podgroups",), ("list", "watch"), "for gangs"),
    Rule("resource.k8s.io", ("resourceclaims", "resourceslices", "deviceclasses"), ("list", "watch"), "for devices"),
    Rule("resource.k8s.io", ("resourceclaims",), ("get", "create", "update", "delete", "patch"), "for devices"),
    Rule("resource.k8s.io", ("resourceclaims/status", "resourceclaims/binding"), ("update",), "for devices"),
    Rule("events.k8s.io", ("events",), ("create", "patch"), "without it pods have no Events"),
    Rule("authentication.k8s.io", ("tokenreviews",), ("create",), "services ask who reads their metrics"),
    Rule("authorization.k8s.io", ("subjectaccessreviews",), ("create",), "services ask who reads their metrics"),
    Rule("coordination.k8s.io", (LEASES,), ("get", "create", "update"), "without them nobody leads"),
)
"""What all services need together, as in k8s/base/rbac.yaml; a test compares the two."""


def rights_of(rules: Iterable[Rule]) -> Iterator[Right]:
    for rule in rules:
        for resource in rule.resources:
            for verb in rule.verbs:
                yield Right(rule.group, resource, verb, rule.name)


class _Status(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _Review(msgspec.Struct):
    status: _Status


async def check_rights(client: KubeClient, lease_namespace: str, absent: Collection[str]) -> list[Finding]:
    """`absent`: API groups that the server does not have, so that no rights to them are needed."""
    rules = [rule for rule in RULES if rule.group not in absent]
    slots = asyncio.Semaphore(AT_ONCE)

    async def allowed(right: Right) -> bool | None:
        async with slots:
            return await _may(client, right, lease_namespace if right.resource == LEASES else "")

    rights = list(rights_of(rules))
    answers = dict(zip(rights, await asyncio.gather(*map(allowed, rights)), strict=True))
    if None in answers.values():
        return [note("rights: this API server answers no SelfSubjectAccessReview, so they are not known")]
    missing = [right for right, may in answers.items() if not may]
    if not missing:
        return [ok(f"rights: all {len(rights)} that are needed")]
    return list(_missing(rules, missing, lease_namespace))


def _missing(rules: Iterable[Rule], missing: Collection[Right], namespace: str) -> Iterator[Finding]:
    """A finding for each rule that is not granted entirely, and one rule that grants it."""
    by_rule: dict[Rule, list[Right]] = defaultdict(list)
    for rule in rules:
        for right in rights_of([rule]):
            if right in missing:
                by_rule[rule].append(right)
    for rule, rights in by_rule.items():
        verbs = list(dict.fromkeys(right.verb for right in rights))
        resources = list(dict.fromkeys(right.resource for right in rights))
        group = f" of {rule.group}" if rule.group else ""
        names = f" ({rule.name})" if rule.name else ""
        where = f" in namespace {namespace}" if LEASES in resources else ""
        yield wrong(
            f"rights: may not {', '.join(verbs)} {', '.join(resources)}{group}{names}{where}: {rule.why}",
            "apply k8s/base/rbac.yaml, or grant this rule:",
            f'  - apiGroups: ["{rule.group}"]',
            f"    resources: [{', '.join(resources)}]",
            *([f"    resourceNames: [{rule.name}]"] if rule.name else []),
            f"    verbs: [{', '.join(verbs)}]",
        )


async def _may(client: KubeClient, right: Right, namespace: str) -> bool | None:
    """None if the server does not answer such questions."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {"group": right.group, "resource": resource, "verb": right.verb}
    optional = {"subresource": subresource, "name": right.name, "namespace": namespace}
    attributes |= {key: value for key, value in optional.items() if value}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.call("POST", ACCESS_REVIEWS, msgspec.json.encode(body), timeout=PATIENCE)
    if not 200 <= answer.status < 300:
        return None
    try:
        status = msgspec.json.decode(answer.body, type=_Review).status
    except (msgspec.DecodeError, ValueError):
        return None
    return status.allowed and not status.denied
