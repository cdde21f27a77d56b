"""Checks bindings: capacity, host ports, and node constraints that do not depend on other pods.

A binding depends on the node as it was when the pod was decided. Pods and nodes arrive on two streams, so a binding is
a violation only if it was wrong for every version of the node that was current between the decision and `lag` seconds
after the binding was seen. Until then the violation is pending.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from shared.model.objects import NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration
from testing.auditor.cluster import AuditedCluster, NodeState, PodRecord
from testing.auditor.usage import Amounts, excess
from testing.auditor.violations import Invariant

REPELLING = ("NoSchedule", "NoExecute")
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_INTEGER = re.compile(r"[+-]?[0-9]+")


Check = Callable[[NodeState], str | None]
"""Why a pod may not be on a node; None if it may."""


@dataclass(slots=True)
class PendingViolation:
    """`last`: the objection of the newest version of the node."""

    invariant: Invariant
    uid: str
    node: str
    since: float
    until: float
    check: Check
    last: str


class AuditedPlacements:
    def __init__(self, cluster: AuditedCluster) -> None:
        self._cluster = cluster
        self._pending: deque[PendingViolation] = deque()

    def check(self, pod: Pod, record: PodRecord) -> None:
        """Check a pod that is newly seen on its node, once everything listed with it has been taken in."""
        self._check_versions(Invariant.CONSTRAINTS, record, partial(objection, pod))
        usage, standing = self._cluster.usage(record.node), self._cluster.nodes.current(record.node)
        since = self._cluster.decided_since(record)
        if standing is None or excess(record.demand.amounts, usage.totals, standing.allocatable):
            fits = partial(capacity_objection, record.demand.amounts, usage.counted(since))
            self._check_versions(Invariant.CAPACITY, record, fits)
        clash = usage.port_clash(record.uid, record.demand, since)
        if clash is not None:
            other, port = clash
            what = (
                f"{port.protocol} port {port.number} on {port.address} is taken by pod {self._cluster.pods[other].key}"
            )
            self._cluster.report(Invariant.HOST_PORTS, what, uid=record.uid)

    def node_changed(self, name: str) -> None:
        """Drop pending violations that a newer version of the node explains."""
        standing = self._cluster.nodes.current(name)
        if self._pending and standing is not None:
            self._pending = deque(p for p in self._pending if p.node != name or not _explains(p, standing))

    def expire(self) -> None:
        """Confirm violations that no version of the node has explained in time."""
        now = self._cluster.now
        if self._cluster.whole(now):  # else the version that explains it may still arrive
            while self._pending and self._pending[0].until <= now:
                self._confirm(self._pending.popleft())

    @property
    def at_rest(self) -> bool:
        return not self._pending

    def finish(self) -> None:
        while self._pending:
            self._confirm(self._pending.popleft())

    def _check_versions(self, invariant: Invariant, record: PodRecord, check: Check) -> None:
        nodes = self._cluster.nodes
        standing = nodes.current(record.node)
        last = "no such node is known" if standing is None else check(standing)
        if last is None:
            return
        since = self._cluster.decided_since(record)
        if any(check(standing) is None for standing in nodes.states_since(record.node, since)):
            return
        until = self._cluster.now + self._cluster.limits.lag
        self._pending.append(PendingViolation(invariant, record.uid, record.node, since, until, check, last))

    def _confirm(self, pending: PendingViolation) -> None:
        if not self._cluster.nodes.was_unknown(pending.node, pending.since):
            self._cluster.report(pending.invariant, pending.last, uid=pending.uid, node=pending.node)


def capacity_objection(wanted: Amounts, totals: Amounts, node: NodeState) -> str | None:
    numbers = excess(wanted, totals, node.allocatable)
    if not numbers:
        return None
    texts = [f"{name} {amount:g}" for name, amount in numbers.items()]
    return f"the pods on the node request more than it has: {', '.join(texts)}"


def _explains(pending: PendingViolation, standing: NodeState) -> bool:
    last = pending.check(standing)
    if last is not None:
        pending.last = last
    return last is None


def objection(pod: Pod, node: NodeState) -> str | None:
    """Why the node does not admit the pod, or None."""
    if node.unschedulable and not _tolerated(CORDONED, pod):
        return "the node is unschedulable"
    for taint in node.taints:
        if taint.effect in REPELLING and not _tolerated(taint, pod):
            return f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated"
    for key, value in pod.spec.node_selector.items():
        if node.labels.get(key) != value:
            return f"node selector {key}={value} is not matched, the label is {node.labels.get(key)!r}"
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is not None and affinity.required is not None:
        terms = affinity.required.node_selector_terms
        if not any(_matches(term, node) for term in terms):
            return f"none of the {len(terms)} terms of the required node affinity is matched"
    return None


def _tolerated(taint: Taint, pod: Pod) -> bool:
    return any(_tolerates(toleration, taint) for toleration in pod.spec.tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case "Gt" | "Lt":
            return _compares(taint.value, toleration.operator, toleration.value)
    return False


def _matches(term: NodeSelectorTerm, node: NodeState) -> bool:
    """A term without requirements matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_meets(node.labels, wanted) for wanted in term.match_expressions) and all(
        _meets(fields, wanted) for wanted in term.match_fields
    )


def _meets(labels: Mapping[str, str], wanted: NodeSelectorRequirement) -> bool:
    value = labels.get(wanted.key)
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":
            return value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return value is not None and _compares(value, wanted.operator, wanted.values[0])


def _compares(value: str, operator: str, bound: str) -> bool:
    """Whether an integer is greater (Gt) or less (Lt) than another one."""
    if not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(bound):
        return False
    return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)
