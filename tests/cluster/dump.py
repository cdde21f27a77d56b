"""Everything that a table says, in plain values that can be compared."""

from typing import Any

import numpy as np

from flotilla.nodes import PodColumn
from flotilla.plugin import ABSENT, LabelValue, NodeColumn, TextColumn
from shared.cluster.load_kind import PODS
from shared.cluster.nodetable import NodeTable
from shared.cluster.pod_indexes import LabelClass
from shared.model.resources import HostPort
from shared.plugins.single_node import PortUsers

PORT = PortUsers(HostPort("0.0.0.0", "TCP", 80))
LABELS = ("zone", "disk")


def dump(table: NodeTable) -> dict[str, Any]:
    """The whole state, rows and all: two dumps are equal when nothing at all happened in between."""
    columns = ("allocatable", "used", "non_zero", "valid", "unschedulable", "taint_set", "name_hash")
    return {
        "nodes": dict(table.nodes()),
        "names": list(table.names),
        "rows": {name: table.row_of(name) for name in table.names},
        "sizes": (table.size, table.capacity, table.node_count, table.pod_count),
        "columns": {name: getattr(table, name).tolist() for name in columns},
        "pods": {uid: (node, load) for uid, node, load in table.placed()},
        "pods at": [[uid for uid, _ in table.placed_at(row)] for row in range(table.size)],
        "resources": list(table.resources.items),
        "taint sets": list(table.taint_sets.items),
        "label classes": (len(table.label_classes), table.label_classes.counts(lambda _: True)),
        "logs": (table.node_log.position, table.load_log.position),
    }


def by_name(table: NodeTable) -> dict[str, dict[str, Any]]:
    """What is known of each node, wherever in the table it is."""
    return {node.name: _of_row(table, row) for row, node in table.nodes()}


def label_at(table: NodeTable, key: str, row: int) -> str | None:
    number = node_column(table, LabelValue(key), row)
    return None if number == ABSENT else table.label_values(key).items[number]


def node_column(table: NodeTable, spec: NodeColumn | TextColumn, row: int) -> int:
    return int(table.columns.of_nodes(spec)[row])


def _of_row(table: NodeTable, row: int) -> dict[str, Any]:
    resources = table.resources.items
    name = table.names[row]
    classes: dict[LabelClass, int] = {}

    def count(label_class: LabelClass) -> bool:
        here = table.label_classes.counts(lambda other: other == label_class).get(row, 0)
        if here:
            classes[label_class] = here
        return False

    table.label_classes.counts(count)
    return {
        "node": table.node_at(row),
        "found at its row": table.row_of(name) == row and name in table,
        "valid": bool(table.valid[row]),
        "allocatable": {r: int(a) for r, a in zip(resources, table.allocatable[:, row], strict=False) if a},
        "used": {r: int(a) for r, a in zip(resources, table.used[:, row], strict=False) if a},
        "non-zero": table.non_zero[:, row].tolist(),
        "pods": int(table.used[PODS, row]),
        "uids": sorted(uid for uid, _ in table.placed_at(row)),
        "unschedulable": bool(table.unschedulable[row]),
        "taints": table.taint_sets.items[table.taint_set[row]],
        "name hash": int(table.name_hash[row]),
        "labels": {key: label_at(table, key, row) for key in LABELS},
        "port": int(table.columns.of_pods(PORT)[row]),
        "label classes": classes,
    }


def domain_counts(table: NodeTable, key: str, count: PodColumn) -> dict[str, int]:
    domains = table.columns.of_nodes(LabelValue(key))[: table.size]
    pods = table.columns.of_pods(count)[: table.size]
    values = table.label_values(key).items
    return {values[d]: int(pods[domains == d].sum()) for d in np.unique(domains).tolist() if d != ABSENT}
