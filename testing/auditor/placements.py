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
from testing.auditor.cluster import Cluster, NodeState, PodRecord
from testing.auditor.usage import Amounts, Demand, excess
from testing.auditor.violations import Invariant, Violation

REPELLING = ("NoSchedule", "NoExecute")
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class Objection:
    what: str
    numbers: Mapping[str, float]


NO_SUCH_NODE = Objection("no such node is known", {})


Check = Callable[[NodeState], Objection | None]


@dataclass(slots=True)
class PendingViolation:
    """`last`: the objection of the newest version of the node."""

    invariant: Invariant
    uid: str
    node: str
    since: float
    until: float
    check: Check
    last: Objection


class Placements:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pending: deque[PendingViolation] = deque()

    def __len__(self) -> int:
        """The number of pending violations."""
        return len(self._pending)

    def check(self, pod: Pod, record: PodRecord, now: float) -> list[Violation]:
        """Check a pod that is newly seen on its node, once everything listed with it has been taken in."""
        self._check_versions(Invariant.CONSTRAINTS, record, partial(_constraint_objection, pod), now)
        usage, standing = self._cluster.usage(record.node), self._cluster.nodes.current(record.node)
        if standing is None or excess(record.demand.amounts, usage.totals, standing.allocatable):
            totals = usage.counted(self._cluster.decided_since(record, now))
            fits = partial(capacity_objection, record.demand, totals)
            self._check_versions(Invariant.CAPACITY, record, fits, now)
        if not record.demand.ports:
            return []
        clash = usage.port_clash(record.uid, record.demand, self._cluster.decided_since(record, now))
        if clash is None:
            return []
        other, port = clash
        what = f"{port.protocol} port {port.number} on {port.address} is taken by pod {self._name(other)}"
        return [self._cluster.violation(Invariant.HOST_PORTS, now, what, uid=record.uid, numbers={"port": port.number})]

    def node_changed(self, name: str) -> None:
        """Drop pending violations that a newer version of the node explains."""
        standing = self._cluster.nodes.current(name)
        if self._pending and standing is not None:
            self._pending = deque(d for d in self._pending if d.node != name or not _explains(d, standing))

    def expire(self, now: float) -> list[Violation]:
        """Confirm violations that no version of the node has explained in time."""
        streams, broken = self._cluster.streams, []
        if streams.steady(now):  # else the version that explains it may still arrive
            while self._pending and self._pending[0].until <= now:
                broken += self._confirm(self._pending.popleft(), now)
        return broken

    def finish(self, now: float) -> list[Violation]:
        broken = [violation for doubt in self._pending for violation in self._confirm(doubt, now)]
        self._pending.clear()
        return broken

    def _check_versions(self, invariant: Invariant, record: PodRecord, check: Check, now: float) -> None:
        nodes = self._cluster.nodes
        standing = nodes.current(record.node)
        last = NO_SUCH_NODE if standing is None else check(standing)
        if last is None:
            return
        since = self._cluster.decided_since(record, now)
        if any(check(standing) is None for standing in nodes.states_since(record.node, since)):
            return
        until = now + self._cluster.limits.lag
        self._pending.append(PendingViolation(invariant, record.uid, record.node, since, until, check, last))

    def _confirm(self, doubt: PendingViolation, now: float) -> list[Violation]:
        if self._cluster.nodes.was_unknown(doubt.node, doubt.since):
            return []
        last = doubt.last
        return [
            self._cluster.violation(
                doubt.invariant, now, last.what, uid=doubt.uid, node=doubt.node, numbers=last.numbers
            )
        ]

    def _name(self, uid: str) -> str:
        return self._cluster.pods[uid].key


def capacity_objection(demand: Demand, totals: Amounts, node: NodeState) -> Objection | None:
    numbers = excess(demand.amounts, totals, node.allocatable)
    if not numbers:
        return None
    texts = [f"{name} {amount:g}" for name, amount in numbers.items()]
    return Objection(f"the pods on the node request more than it has: {', '.join(texts)}", numbers)


def _constraint_objection(pod: Pod, node: NodeState) -> Objection | None:
    what = objection(pod, node)
    return None if what is None else Objection(what, {})


def _explains(doubt: PendingViolation, standing: NodeState) -> bool:
    last = doubt.check(standing)
    if last is not None:
        doubt.last = last
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
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == taint.value)


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
    if value is None or not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(wanted.values[0]):
        return False
    have, bound = int(value), int(wanted.values[0])
    return have > bound if wanted.operator == "Gt" else have < bound
