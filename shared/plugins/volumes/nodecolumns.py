"""What selectors of volumes and cluster objects say of nodes: masks by labels, and columns by object.

Columns are cached with the table, so that all pods share them, and updated when the objects or the nodes change.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from flotilla.objects import (
    ClusterObjects,
    LabelSelector,
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectKind,
)
from flotilla.plugin import ABSENT, Ints, Mask, NodeView, match_requirement
from shared.cluster.nodetable import NodeTable
from shared.cluster.view import view_of
from shared.model.objects import TopologySelectorTerm
from shared.model.selectors import unparsable

MAX_COLUMNS = 64
"""Per table; the least recently used one is dropped first."""


@dataclass(slots=True)
class _Kept:
    objects: ClusterObjects
    generation: int
    position: int
    column: Ints


def object_column(
    nodes: NodeView, key: Hashable, kind: ObjectKind, value: Callable[[ClusterObjects, Node], int]
) -> Ints:
    """One number a node, ABSENT for none. `key` names what `value` computes from objects of this kind."""
    view = view_of(nodes)
    table = view.table
    columns = _COLUMNS.setdefault(table, OrderedDict())
    kept = columns.get((kind, key))
    objects, generation = table.objects, table.objects.generation(kind)
    rows = None
    if kept is not None and kept.objects is objects and kept.generation == generation:
        rows = table.node_log.since(kept.position)
    if kept is None or rows is None:
        column = np.full(table.capacity, ABSENT, dtype=np.int64)
        for row, node in table.nodes():
            column[row] = value(objects, node)
        kept = columns[kind, key] = _Kept(objects, generation, table.node_log.position, column)
    else:
        for row in rows.tolist():
            kept.column[row] = value(objects, table.node_at(row)) if table.valid[row] else ABSENT
        kept.position = table.node_log.position
    columns.move_to_end((kind, key))
    if len(columns) > MAX_COLUMNS:
        columns.popitem(last=False)
    return kept.column[view.index]


_COLUMNS: WeakKeyDictionary[NodeTable, OrderedDict[Hashable, _Kept]] = WeakKeyDictionary()


def selected_nodes(nodes: NodeView, selector: NodeSelector) -> Mask:
    """The nodes that one of the terms matches, by their labels alone."""
    selected = np.zeros(len(nodes), dtype=np.bool_)
    for term in selector.node_selector_terms:
        if (term.match_expressions or term.match_fields) and unparsable(term) is None:
            selected |= _all_match(nodes, term.match_expressions)
    return selected


def labelled_nodes(nodes: NodeView, selector: LabelSelector) -> Mask:
    """An empty selector matches every node, one that cannot be parsed none."""
    requirements = as_requirements(selector)
    if unparsable(NodeSelectorTerm(match_expressions=requirements)) is not None:
        return np.zeros(len(nodes), dtype=np.bool_)
    return _all_match(nodes, requirements)


def nodes_of_topologies(nodes: NodeView, topologies: Sequence[TopologySelectorTerm]) -> Mask:
    """The nodes that one of the terms matches; every node if there is no term, none for an empty term."""
    if not topologies:
        return np.ones(len(nodes), dtype=np.bool_)
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
    return selected_nodes(nodes, NodeSelector(node_selector_terms=terms))


def as_requirements(selector: LabelSelector) -> list[NodeSelectorRequirement]:
    return [
        *(NodeSelectorRequirement(key=k, operator="In", values=[v]) for k, v in sorted(selector.match_labels.items())),
        *(
            NodeSelectorRequirement(key=each.key, operator=each.operator, values=each.values)
            for each in selector.match_expressions
        ),
    ]


def _all_match(nodes: NodeView, requirements: Iterable[NodeSelectorRequirement]) -> Mask:
    matching = np.ones(len(nodes), dtype=np.bool_)
    for requirement in requirements:
        matching &= match_requirement(nodes, requirement)
    return matching
