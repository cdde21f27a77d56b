"""The rights that Flotilla needs at the API server, and who lacks which: the services' own accounts, or this user.

A user who may create SubjectAccessReviews can ask about the accounts that k8s/base makes for the services, or
k8s/overlays/core for a process with several. If these have no right at all, they do not exist, and what counts are this
user's rights, with which `flotilla up` and `flotilla run` work. If they have some, what this user lacks is only a note.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from shared.kube.client import KubeClient
from shared.kube.errors import Forbidden
from tools.doctor.findings import Finding, note, ok, wrong

OWN_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
AT_ONCE = 8
"""Reviews at the same time."""
PATIENCE = 5.0
"""Seconds for one review."""
MAX_NAMED = 5
"""Rights that are named in one line."""
LEASES = "leases"
LEADERS = ("watcher", "queue", "snapshot", "cycle")
ALL = (*LEADERS, "worker", "binder")
CORE = "core"
"""The account of a process with all LEADERS."""


class Rule(NamedTuple):
    """`resources` with their subresource, as `pods/status`. `who`: the services that need it. `name`: the one object
    that it is about; empty: all.
    """

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    who: tuple[str, ...]
    why: str
    name: str = ""


class Right(NamedTuple):
    group: str
    resource: str
    verb: str
    name: str = ""


WATCHER, SNAPSHOT, CYCLE, BINDER = ("watcher",), ("snapshot",), ("cycle",), ("binder",)
READ = ("list", "watch")
STORAGE, DEVICES = "storage.k8s.io", "resource.k8s.io"
GROUPS = ("podgroups", "compositepodgroups")
GROUP_STATUS = tuple(f"{plural}/status" for plural in GROUPS)
RULES = (
    Rule("", ("pods", "nodes"), READ, WATCHER, "without them nothing is scheduled"),
    Rule("", ("pods", "nodes"), ("list",), SNAPSHOT, "flotilla dump compares with them"),
    Rule("", ("nodes",), READ, CYCLE, "for extenders that get whole nodes"),
    Rule(
        "",
        ("pods",),
        ("get",),
        ("snapshot", "cycle", "binder"),
        "pods are looked up before they are evicted, or when no binder reports on them",
    ),
    Rule("", ("pods",), ("delete",), BINDER, "without it there is no preemption"),
    Rule("", ("pods/binding",), ("create",), BINDER, "without it no pod is bound"),
    Rule(
        "",
        ("pods/status",),
        ("patch",),
        ("watcher", "snapshot", "binder"),
        "without it pods have no condition, and no late binding is fenced",
    ),
    Rule("", ("pods/status",), ("update",), BINDER, "the claim for extended resources is named there"),
    Rule("", ("nodes",), ("get",), BINDER, "a node is read before volumes are bound"),
    Rule("", ("namespaces",), ("get",), (*LEADERS, "binder"), "its uid identifies the cluster", name="kube-system"),
    Rule("", ("namespaces",), READ, WATCHER, "for namespace selectors of pod affinity"),
    Rule("", ("services", "replicationcontrollers"), READ, WATCHER, "for default spreading"),
    Rule("apps", ("replicasets", "statefulsets"), READ, WATCHER, "for default spreading"),
    Rule("", ("persistentvolumes", "persistentvolumeclaims"), READ, WATCHER, "for pods with volumes"),
    Rule(
        "",
        ("persistentvolumes", "persistentvolumeclaims"),
        ("get", "update"),
        BINDER,
        "volumes are bound before the pod",
    ),
    Rule(
        STORAGE,
        ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"),
        READ,
        WATCHER,
        "for pods with volumes",
    ),
    Rule(STORAGE, ("csinodes",), ("get",), BINDER, "volumes are bound before the pod"),
    Rule("policy", ("poddisruptionbudgets",), READ, WATCHER, "preemption spares what budgets protect"),
    Rule("scheduling.k8s.io", ("podgroups",), READ, WATCHER, "for gangs"),
    Rule("scheduling.k8s.io", ("compositepodgroups",), READ, WATCHER, "for gangs that are trees of groups"),
    Rule("scheduling.k8s.io", GROUPS, ("get",), BINDER, "without it groups have no status"),
    Rule("scheduling.k8s.io", GROUP_STATUS, ("patch",), BINDER, "without it groups have no status"),
    Rule("scheduling.x-k8s.io", ("podgroups",), READ, WATCHER, "for gangs"),
    Rule(DEVICES, ("resourceclaims", "resourceslices", "deviceclasses"), READ, WATCHER, "for devices"),
    Rule(DEVICES, ("resourceclaims",), ("get", "create", "update", "delete"), BINDER, "for devices"),
    Rule(DEVICES, ("resourceclaims",), ("get", "list", "patch"), SNAPSHOT, "no late allocation of devices may land"),
    Rule(DEVICES, ("resourceclaims/status", "resourceclaims/binding"), ("update",), BINDER, "for devices"),
    Rule("events.k8s.io", ("events",), ("create", "patch"), ("watcher", "binder"), "without it pods have no Events"),
    Rule("authentication.k8s.io", ("tokenreviews",), ("create",), ALL, "services ask who reads their metrics"),
    Rule("authorization.k8s.io", ("subjectaccessreviews",), ("create",), ALL, "services ask who reads their metrics"),
    Rule("coordination.k8s.io", (LEASES,), ("get", "create", "update"), LEADERS, "without them nobody leads"),
)
"""What the services need, as in k8s/base/rbac.yaml; a test compares the two."""


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


async def check_rights(client: KubeClient, namespace: str, prefix: str, absent: Collection[str]) -> list[Finding]:
    """`namespace`: of the Leases, whose names begin with `prefix`, and of the accounts. `absent`: API groups that the
    server does not have.
    """
    rules = [rule for rule in RULES if rule.group not in absent]
    reviews = _Reviews(client, namespace)
    accounts = await _of_accounts(reviews, rules, prefix)
    own = await reviews.all(list(dict.fromkeys(rights_of(rules))))
    if accounts is not None and any(any(each.values()) for each in accounts.values()):
        return [*_findings_of_accounts(accounts, rules, namespace), *_beside_accounts(own)]
    if own is None:
        return [note("rights: this API server answers no SelfSubjectAccessReview, so they are not known")]
    asked = "may not be asked about" if accounts is None else "have none"
    whose = f"this user's; the accounts flotilla-* in namespace {namespace} {asked}"
    missing = [right for right, may in own.items() if not may]
    if not missing:
        return [ok(f"rights: all {len(own)} that the services need together ({whose})")]
    return [note(f"rights: checked are {whose}"), *_missing("", rules, missing, namespace)]


async def _of_accounts(
    reviews: "_Reviews", rules: Iterable[Rule], prefix: str
) -> dict[str, Mapping[Right, bool]] | None:
    """By account; None if this user may not ask about others."""
    found: dict[str, Mapping[Right, bool]] = {}
    for service in ALL:
        asked = rights_of(rule for rule in rules if service in rule.who)
        rights = list(dict.fromkeys(_of_its_lease(right, f"{prefix}-{service}") for right in asked))
        if not found and await reviews.all(rights[:1], service) is None:  # one refusal instead of one for each right
            return None
        account, answers = service, await reviews.all(rights, service)
        if service in LEADERS and answers is not None and not any(answers.values()):
            of_core = await reviews.all(rights, CORE)
            if of_core is not None and any(of_core.values()):
                account, answers = CORE, of_core
        if answers is None:
            return None
        found[account] = {**found.get(account, {}), **answers}
    return found


def _of_its_lease(right: Right, lease: str) -> Right:
    """An account may read and write its own Lease only; for `create` no name can be required."""
    return right._replace(name=lease) if right.resource == LEASES and right.verb != "create" else right


def _findings_of_accounts(
    accounts: Mapping[str, Mapping[Right, bool]], rules: Iterable[Rule], namespace: str
) -> list[Finding]:
    findings: list[Finding] = []
    for account, answers in accounts.items():
        services = LEADERS if account == CORE else (account,)
        denied = (right for right, may in answers.items() if not may)
        missing = [right._replace(name="") if right.resource == LEASES else right for right in denied]
        concerned = [rule for rule in rules if set(services) & set(rule.who)]
        findings += _missing(account, concerned, missing, namespace)
    if findings:
        return findings
    rights = sum(map(len, accounts.values()))
    return [ok(f"rights: all {rights} that the accounts flotilla-* in namespace {namespace} need")]


def _beside_accounts(own: Mapping[Right, bool] | None) -> list[Finding]:
    """This user's rights are not those of the accounts; only what is started here needs them."""
    if own is None:
        return [note("rights: this user's, which flotilla up and flotilla run would have, are not known")]
    lacks = [f"{right.verb} {right.resource}" for right, may in own.items() if not may]
    if not lacks:
        return []
    named = ", ".join(lacks[:MAX_NAMED]) + (f" and {len(lacks) - MAX_NAMED} more" if len(lacks) > MAX_NAMED else "")
    text = f"rights: this user, as whom flotilla up and flotilla run would work, lacks {len(lacks)} of {len(own)}"
    return [note(f"{text}: {named}")]


def _missing(service: str, rules: Iterable[Rule], missing: Collection[Right], namespace: str) -> Iterator[Finding]:
    """A finding for each rule that is not granted entirely, and one rule that grants it; each right is named once.

    `service`: empty for the user.
    """
    left = set(missing)
    for rule in rules:
        rights = [right for right in rights_of([rule]) if right in left]
        left.difference_update(rights)
        if not rights:
            continue
        verbs = list(dict.fromkeys(right.verb for right in rights))
        resources = list(dict.fromkeys(right.resource for right in rights))
        group = f" of {rule.group}" if rule.group else ""
        names = f" ({rule.name})" if rule.name else ""
        where = f" in namespace {namespace}" if LEASES in resources else ""
        what = f"may not {', '.join(verbs)} {', '.join(resources)}{group}{names}{where}: {rule.why}"
        yield wrong(
            f"rights: {f'the account flotilla-{service} ' if service else ''}{what}",
            f"apply k8s/base/rbac.yaml, or grant this rule{f' to the account flotilla-{service}' if service else ''}:",
            f'  - apiGroups: ["{rule.group}"]',
            f"    resources: [{', '.join(resources)}]",
            *([f"    resourceNames: [{rule.name}]"] if rule.name else []),
            f"    verbs: [{', '.join(verbs)}]",
        )


class _Reviews:
    """Asks the API server who may do what."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def all(self, rights: Collection[Right], service: str = "") -> dict[Right, bool] | None:
        """Of this user, or of a service's account; None if the server does not answer such a question."""
        answers = await asyncio.gather(*(self._may(right, service) for right in rights))
        found = {right: may for right, may in zip(rights, answers, strict=True) if may is not None}
        return found if len(found) == len(rights) else None

    async def _may(self, right: Right, service: str) -> bool | None:
        resource, _, subresource = right.resource.partition("/")
        attributes = {"group": right.group, "resource": resource, "verb": right.verb}
        namespace = self._namespace if right.resource == LEASES else ""
        optional = {"subresource": subresource, "name": right.name, "namespace": namespace}
        attributes |= {key: value for key, value in optional.items() if value}
        spec: dict[str, object] = {"resourceAttributes": attributes}
        if service:
            accounts = "system:serviceaccounts"
            spec["user"] = f"system:serviceaccount:{self._namespace}:flotilla-{service}"
            spec["groups"] = [accounts, f"{accounts}:{self._namespace}", "system:authenticated"]
        kind = "SubjectAccessReview" if service else "SelfSubjectAccessReview"
        body = msgspec.json.encode({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
        try:
            async with self._slots:
                answer = await self._client.call("POST", REVIEWS if service else OWN_REVIEWS, body, timeout=PATIENCE)
        except Forbidden:
            return None
        if not 200 <= answer.status < 300:
            return None
        try:
            status = msgspec.json.decode(answer.body, type=_Review).status
        except (msgspec.DecodeError, ValueError):
            return None
        return status.allowed and not status.denied
