"""Whether a node admits a pod: the constraints that do not depend on other pods, judged plainly."""

import re
from collections.abc import Mapping

from shared.model.objects import NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration
from testing.auditor.nodes import Standing

REPELLING = ("NoSchedule", "NoExecute")
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_INTEGER = re.compile(r"[+-]?[0-9]+")


def objection(pod: Pod, node: Standing) -> str | None:
    """Why the node does not admit the pod; None if it does."""
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


def _matches(term: NodeSelectorTerm, node: Standing) -> bool:
    """A term without any requirement matches nothing."""
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
