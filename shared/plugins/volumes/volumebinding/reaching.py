"""Which nodes reach a volume, and which of many volumes, the best first, each node reaches."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from flotilla.plugin import Coded, Ints, Mask, NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import NodeSelector, NodeSelectorRequirement, PersistentVolume
from shared.model.selectors import unparsable
from shared.plugins.volumes.migration import is_migrated_on, migrated_affinity, migration_of_volume
from shared.plugins.volumes.nodecolumns import object_column, selected_nodes

NONE = 1 << 40
"""Ranks below any volume's."""

Ranks = NDArray[np.int64]
"""First choice, second choice ... x nodes: places in a list of volumes, NONE where the node reaches no further one."""


class _Labelled:
    """Of the volumes that all nodes with some value of this label reach: the best ones for each value."""

    def __init__(self, key: str) -> None:
        self.best: dict[str, list[int]] = {}
        self._key = key
        self._known: tuple[Sequence[str], int] | None = None
        self._by_value: Ranks = np.empty((0, 0), dtype=np.int64)

    def look_up(self, nodes: NodeView, most: int) -> Ranks:
        column = nodes.label(self._key)
        if self._known is None or self._known[0] is not column.values or self._known[1] != len(column.values):
            self._known = column.values, len(column.values)
            self._by_value = self._sorted_out(column, most)
        return self._by_value[:, column.numbers]

    def _sorted_out(self, column: Coded[str], most: int) -> Ranks:
        """The last column is for nodes without the label."""
        by_value = np.full((most, len(column.values) + 1), NONE, dtype=np.int64)
        for value, ranks in self.best.items():
            number = column.number(value)
            if number is not None:
                by_value[: len(ranks), number] = ranks
        return by_value


class Reach:
    """Of a list of volumes, the best first, the `most` best that each node reaches.

    Volumes of one node or one zone each are many and alike: one requirement on one label. They are looked up by the
    label's value, so that not each of them costs a pass over all nodes.
    """

    def __init__(self, volumes: Sequence[PersistentVolume], most: int) -> None:
        self._most = most
        self._everywhere: list[int] = []
        self._labelled: dict[str, _Labelled] = {}
        self._others: dict[bytes, tuple[NodeSelector, list[int]]] = {}
        for rank, volume in enumerate(volumes):
            self._add(rank, _required(volume))

    def ranks(self, nodes: NodeView) -> Ranks:
        best = np.full((self._most, len(nodes)), NONE, dtype=np.int64)
        for place, rank in enumerate(self._everywhere):
            best[place] = rank
        for labelled in self._labelled.values():
            best = _merged(best, labelled.look_up(nodes, self._most))
        for selector, ranks in self._others.values():
            reached = selected_nodes(nodes, selector)
            best = _merged(best, np.where(reached, np.array(ranks, dtype=np.int64)[:, None], NONE))
        return best

    def _add(self, rank: int, required: NodeSelector | None) -> None:
        if required is None:
            self._keep(self._everywhere, rank)
            return
        alone = _only_requirement(required)
        if alone is None:
            _, ranks = self._others.setdefault(msgspec.msgpack.encode(required), (required, []))
            self._keep(ranks, rank)
            return
        labelled = self._labelled.setdefault(alone.key, _Labelled(alone.key))
        for value in set(alone.values):
            self._keep(labelled.best.setdefault(value, []), rank)

    def _keep(self, ranks: list[int], rank: int) -> None:
        if len(ranks) < self._most:
            ranks.append(rank)


def reaching_nodes(nodes: NodeView, volume: PersistentVolume) -> Mask:
    """Without regard to CSI drivers that may have taken the volume over."""
    return _selected(nodes, _required(volume))


def reaching_nodes_now(nodes: NodeView, volume: PersistentVolume) -> Mask:
    """Where a CSI driver has taken the volume over, the driver's own labels tell; raises Untranslatable."""
    migration = migration_of_volume(volume)
    if migration is None or not migration.counts:
        return reaching_nodes(nodes, volume)
    plugin = migration.plugin
    migrated: Mask = migrated_column(nodes, plugin) == 1
    if not migrated.any():
        return reaching_nodes(nodes, volume)
    return np.where(migrated, _selected(nodes, migrated_affinity(volume, migration)), reaching_nodes(nodes, volume))


def migrated_column(nodes: NodeView, plugin: str) -> Ints:
    """1 for nodes where the volumes of an in-tree plugin are a CSI driver's."""
    return object_column(
        nodes,
        ("migrated", plugin),
        ObjectKind.CSI_NODE,
        lambda objects, node: int(is_migrated_on(objects.csi_nodes.get(node.name), plugin)),
    )


def _required(volume: PersistentVolume) -> NodeSelector | None:
    affinity = volume.spec.node_affinity
    return None if affinity is None else affinity.required


def _selected(nodes: NodeView, required: NodeSelector | None) -> Mask:
    return np.ones(len(nodes), dtype=np.bool_) if required is None else selected_nodes(nodes, required)


def _only_requirement(required: NodeSelector) -> NodeSelectorRequirement | None:
    if len(required.node_selector_terms) != 1:
        return None
    term = required.node_selector_terms[0]
    if len(term.match_expressions) != 1 or term.match_expressions[0].operator != "In" or unparsable(term) is not None:
        return None
    return term.match_expressions[0]


def _merged(one: Ranks, other: Ranks) -> Ranks:
    if len(one) == 1:
        return np.minimum(one, other)
    together: Ranks = np.sort(np.concatenate([one, other]), axis=0)[: len(one)]
    return together
