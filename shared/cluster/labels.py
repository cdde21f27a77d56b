"""Node labels as columns, and requirements on labels evaluated over them.

A column holds, by row, the number of the label's value among all values of that key. So a requirement is matched once
per value and looked up by row.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.cluster.columns import ABSENT, IntColumn, NodeColumn
from shared.cluster.nodetable import NodeTable
from shared.model.objects import Node, NodeSelectorRequirement
from shared.model.selectors import requirement_matches

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LabelValue(NodeColumn):
    """The number, in `table.label_values(key)`, of a node's value for a label."""

    key: str

    def value(self, table: NodeTable, node: Node) -> int:
        value = node.metadata.labels.get(self.key)
        return ABSENT if value is None else table.label_values(self.key).id(value)


def match_requirement(table: NodeTable, requirement: NodeSelectorRequirement, column: IntColumn) -> Mask:
    """Which entries of a LabelValue column of the requirement's key satisfy it."""
    present: Mask = column != ABSENT
    match requirement.operator:
        case "Exists":
            return present
        case "DoesNotExist":
            return ~present
        case "In":
            return _is_one_of(table, requirement, column)
        case "NotIn":
            return ~_is_one_of(table, requirement, column)
        case _:
            return _by_value(table, requirement.key, column, lambda labels: requirement_matches(requirement, labels))


def _is_one_of(table: NodeTable, requirement: NodeSelectorRequirement, column: IntColumn) -> Mask:
    values = table.known_label_values(requirement.key)
    known = [number for value in requirement.values if (number := values.known(value)) is not None]
    matching: Mask = column == known[0] if len(known) == 1 else np.isin(column, known)
    return matching


def _by_value(table: NodeTable, key: str, column: IntColumn, judge: Callable[[dict[str, str]], bool]) -> Mask:
    values = table.known_label_values(key).items
    numbers, inverse = np.unique(column, return_inverse=True)
    judged = [number != ABSENT and judge({key: values[number]}) for number in numbers]
    return np.array(judged, dtype=np.bool_)[inverse]
