"""Which nodes of a view the selectors of volumes, claims and storage classes speak of; by labels alone."""

from collections.abc import Iterable, Sequence

import numpy as np

from shared.cluster.labels import LabelValue, Mask, match_requirement
from shared.framework.view import NodeView
from shared.model.objects import (
    LabelSelector,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    TopologySelectorTerm,
)
from shared.model.selectors import unparsable


def selected_nodes(view: NodeView, selector: NodeSelector) -> Mask:
    """One of the terms matches. Of nodes that a volume is for only the labels are looked at, no fields."""
    selected = np.zeros(len(view), dtype=np.bool_)
    for term in selector.node_selector_terms:
        if (term.match_expressions or term.match_fields) and unparsable(term) is None:
            selected |= _all_match(view, term.match_expressions)
    return selected


def labelled_nodes(view: NodeView, selector: LabelSelector) -> Mask:
    """An empty selector matches every node, one that cannot be parsed none."""
    requirements = as_requirements(selector)
    if unparsable(NodeSelectorTerm(match_expressions=requirements)) is not None:
        return np.zeros(len(view), dtype=np.bool_)
    return _all_match(view, requirements)


def nodes_of_topologies(view: NodeView, topologies: Sequence[TopologySelectorTerm]) -> Mask:
    """One of the terms matches; where there are none, every node does, while an empty term matches no node."""
    if not topologies:
        return np.ones(len(view), dtype=np.bool_)
    terms = [
        NodeSelectorTerm(
            match_expressions=[
                NodeSelectorRequirement(key=each.key, operator="In", values=each.values)
                for each in topology.match_label_expressions
            ]
        )
        for topology in topologies
        if all(each.values for each in topology.match_label_expressions)
    ]
    return selected_nodes(view, NodeSelector(node_selector_terms=terms))


def as_requirements(selector: LabelSelector) -> list[NodeSelectorRequirement]:
    return [
        *(NodeSelectorRequirement(key=k, operator="In", values=[v]) for k, v in sorted(selector.match_labels.items())),
        *(
            NodeSelectorRequirement(key=each.key, operator=each.operator, values=each.values)
            for each in selector.match_expressions
        ),
    ]


def _all_match(view: NodeView, requirements: Iterable[NodeSelectorRequirement]) -> Mask:
    matching = np.ones(len(view), dtype=np.bool_)
    for requirement in requirements:
        column = view.of_nodes(LabelValue(requirement.key))
        matching &= match_requirement(view.table, requirement, column)
    return matching
