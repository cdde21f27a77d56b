"""Columns over a table's rows of what cluster objects, CSINodes above all, say of each node.

They are kept with the table, so that all pods share them, and brought up to date when the objects or the nodes change.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from flotilla.objects import ClusterObjects
from shared.cluster.columns import ABSENT, IntColumn
from shared.cluster.nodetable import NodeTable
from shared.model.kinds import ObjectKind
from shared.model.objects import Node

MOST_COLUMNS = 64
"""Kept for a table; the one that was not asked for longest goes first."""


@dataclass(slots=True)
class _Kept:
    objects: ClusterObjects
    generation: int
    position: int
    column: IntColumn


def object_column(
    table: NodeTable, key: Hashable, kind: ObjectKind, value: Callable[[ClusterObjects, Node], int]
) -> IntColumn:
    """One number a row, ABSENT where there is no node. `key` names what `value` tells of objects of this kind."""
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
    if len(columns) > MOST_COLUMNS:
        columns.popitem(last=False)
    return kept.column


_COLUMNS: WeakKeyDictionary[NodeTable, OrderedDict[Hashable, _Kept]] = WeakKeyDictionary()
