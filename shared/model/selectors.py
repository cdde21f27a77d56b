"""Matching labels and nodes against selectors: the reference for faster implementations."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from shared.model.affinity import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from shared.model.node import Node
from shared.model.pod import Pod

_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})")
_LABEL_VALUE = re.compile(r"(?=.{0,63}\Z)([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


def parse_int64(text: str) -> int | None:
    """A decimal integer with an optional sign, within 64 bits; None for any other text."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    number = int(match[1] + match[2])
    return number if -(2**63) <= number < 2**63 else None


def requirement_matches(
    requirement: LabelSelectorRequirement | NodeSelectorRequirement, labels: Mapping[str, str]
) -> bool:
    """Whether the labels satisfy the requirement; Gt and Lt compare integers and fail on anything else."""
    value = labels.get(requirement.key)
    operator = requirement.operator
    if operator == "In":
        return value is not None and value in requirement.values
    if operator == "NotIn":
        return value is None or value not in requirement.values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if value is None or len(requirement.values) != 1:
        return False
    actual, bound = parse_int64(value), parse_int64(requirement.values[0])
    if actual is None or bound is None:
        return False
    return actual > bound if operator == "Gt" else actual < bound


def label_selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether the labels satisfy the whole selector: an empty one matches everything, None nothing."""
    if selector is None:
        return False
    return _has_labels(labels, selector.match_labels.items()) and all(
        requirement_matches(requirement, labels) for requirement in selector.match_expressions
    )


def unparsable(term: NodeSelectorTerm) -> str | None:
    """Why the term cannot be parsed; None if it can.

    Reasons: an invalid label value, a Gt or Lt without an integer, a field with several values.
    """
    for index, requirement in enumerate(term.match_expressions):
        for at, value in enumerate(requirement.values):
            if not _is_label_value(value):
                return f'matchExpressions[{index}].values[{at}]: Invalid value: "{value}": not a valid label value'
        if requirement.operator in ("Gt", "Lt") and parse_int64(requirement.values[0]) is None:
            return (
                f'matchExpressions[{index}].values[0]: Invalid value: "{requirement.values[0]}": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            )
    for index, requirement in enumerate(term.match_fields):
        if len(requirement.values) != 1:
            values = ",".join(f'"{value}"' for value in requirement.values)
            return f"matchFields[{index}].values: Invalid value: [{values}]: must have one element"
    return None


def node_selector_term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node with these labels and this name satisfies the whole term.

    A term without requirements and one that cannot be parsed match no node.
    """
    if not term.match_expressions and not term.match_fields:
        return False
    if unparsable(term) is not None:
        return False
    if not all(requirement_matches(requirement, labels) for requirement in term.match_expressions):
        return False
    # a node without a name has no fields, so field requirements are not evaluated
    fields = {"metadata.name": name}
    return not name or all(requirement_matches(requirement, fields) for requirement in term.match_fields)


def node_selector_matches(selector: NodeSelector, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node with these labels and this name satisfies at least one term."""
    return any(node_selector_term_matches(term, labels, name) for term in selector.node_selector_terms)


def required_node_affinity_matches(pod: Pod, node: Node) -> bool:
    """Whether the node satisfies both the pod's nodeSelector and its required node affinity."""
    labels = node.metadata.labels
    if not _has_labels(labels, pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return True
    return node_selector_matches(affinity.node_affinity.required, labels, node.name)


@lru_cache(maxsize=1 << 12)
def _is_label_value(text: str) -> bool:
    return _LABEL_VALUE.fullmatch(text) is not None


def _has_labels(labels: Mapping[str, str], wanted: Iterable[tuple[str, str]]) -> bool:
    return all(labels.get(key) == value for key, value in wanted)
