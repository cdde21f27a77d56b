"""Which of the volumes that are there each unbound claim of a pod would get on each node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from flotilla.objects import ClusterObjects, Node
from flotilla.plugin import Mask, NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    PersistentVolume,
    PersistentVolumeClaim,
    encode_msgpack,
)
from shared.model.quantity import Quantity
from shared.model.selectors import label_selector_matches, node_selector_matches, unparsable
from shared.plugins.volumes.migration import is_migrated_on, migrated_affinity, migration_of_volume
from shared.plugins.volumes.nodecolumns import object_column, selected_nodes

STORAGE = "storage"
FILESYSTEM = "Filesystem"
NONE = 1 << 40
"""Ranks below any volume's."""
NOTHING = -1

Ranks = NDArray[np.int64]
"""First choice, second choice ... x nodes: indices in a list of volumes, NONE where the node reaches no further one."""

Choices = NDArray[np.int64]
"""Claims x nodes: the number of the volume that the claim gets, NOTHING where there is none."""


def requested_storage(claim: PersistentVolumeClaim) -> Quantity | None:
    return claim.spec.resources.requests.get(STORAGE)


# Whether a volume fits a claim


def is_of_its_kind(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the claim could use the volume, if no other claim has it."""
    return (
        volume.metadata.deletion_timestamp is None
        and volume.spec.capacity.get(STORAGE, 0) >= (requested_storage(claim) or 0)
        and (volume.spec.volume_mode or FILESYSTEM) == (claim.spec.volume_mode or FILESYSTEM)
        and (volume.spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")
    )


def is_available(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume's phase, access modes and labels allow the claim."""
    selector = claim.spec.selector
    return (
        volume.status.phase == "Available"
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        and (selector is None or label_selector_matches(selector, volume.metadata.labels))
    )


def misfit(volume: PersistentVolume, claim: PersistentVolumeClaim, labels: Mapping[str, str]) -> str | None:
    """Why VolumeBinding would not give the claim this volume on a node with these labels; None if it might.

    Verifies a choice made elsewhere; another volume may fit better.
    """
    if volume.storage_class != claim.storage_class:
        return f"volume {volume.name} is of class {volume.storage_class!r}, claim {claim.key} of another"
    if not is_of_its_kind(volume, claim):
        return f"volume {volume.name} is too small for claim {claim.key}, of another mode, or being deleted"
    reserved = volume.is_bound_to(claim)
    if not reserved and (volume.spec.claim_ref is not None or not is_available(volume, claim)):
        return f"volume {volume.name} is not available for claim {claim.key}"
    required = _required(volume)
    if required is not None and not node_selector_matches(required, labels, ""):
        return f"the node does not reach volume {volume.name}"
    return None


# Which nodes reach a volume


def reaching_nodes(nodes: NodeView, volume: PersistentVolume) -> Mask:
    """By the volume's own affinity, even if a CSI driver has taken the volume over."""
    return _selected(nodes, _required(volume))


def reaching_nodes_now(nodes: NodeView, volume: PersistentVolume) -> Mask:
    """By the driver's labels where a CSI driver has taken the volume over; raises Untranslatable."""
    migration = migration_of_volume(volume)
    if migration is None or not migration.counts:
        return reaching_nodes(nodes, volume)
    plugin = migration.plugin

    def is_migrated(objects: ClusterObjects, node: Node) -> int:
        return int(is_migrated_on(objects.csi_nodes.get(node.name), plugin))

    migrated: Mask = object_column(nodes, ("migrated", plugin), ObjectKind.CSI_NODE, is_migrated) == 1
    if not migrated.any():
        return reaching_nodes(nodes, volume)
    return np.where(migrated, _selected(nodes, migrated_affinity(volume, migration)), reaching_nodes(nodes, volume))


def _required(volume: PersistentVolume) -> NodeSelector | None:
    affinity = volume.spec.node_affinity
    return None if affinity is None else affinity.required


def _selected(nodes: NodeView, required: NodeSelector | None) -> Mask:
    return np.ones(len(nodes), dtype=np.bool_) if required is None else selected_nodes(nodes, required)


class _ByLabel:
    """The volumes for each value of a label, the best first, among those that a single value selects."""

    def __init__(self, key: str) -> None:
        self.best: dict[str, list[int]] = {}
        self.key = key
        self._known: tuple[Sequence[str], int] | None = None
        self._by_value: Ranks = np.empty((0, 0), dtype=np.int64)

    def look_up(self, nodes: NodeView, most: int) -> Ranks:
        column = nodes.label(self.key)
        if self._known is None or self._known[0] is not column.values or self._known[1] != len(column.values):
            self._known = column.values, len(column.values)
            # The last column is for nodes without the label.
            self._by_value = np.full((most, len(column.values) + 1), NONE, dtype=np.int64)
            for value, ranks in self.best.items():
                number = column.number(value)
                if number is not None:
                    self._by_value[: min(most, len(ranks)), number] = ranks[:most]
        return self._by_value[:, column.numbers]


class Reach:
    """Of a list of volumes, the best first, the `most` best that each node reaches.

    Volumes of one node or one zone each are many and alike: one requirement on one label. They are looked up by the
    label's value, so that not each of them costs a pass over all nodes.
    """

    def __init__(self, volumes: Sequence[PersistentVolume], most: int) -> None:
        self._most = most
        self._everywhere: list[int] = []
        self._by_label: dict[str, _ByLabel] = {}
        self._others: dict[bytes, tuple[NodeSelector, list[int]]] = {}
        for rank, volume in enumerate(volumes):
            required = _required(volume)
            alone = None if required is None else _only_requirement(required)
            if required is None:
                self._everywhere.append(rank)
            elif alone is None:
                _, ranks = self._others.setdefault(msgspec.msgpack.encode(required), (required, []))
                ranks.append(rank)
            else:
                by_label = self._by_label.setdefault(alone.key, _ByLabel(alone.key))
                for value in set(alone.values):
                    by_label.best.setdefault(value, []).append(rank)

    def ranks(self, nodes: NodeView) -> Ranks:
        best = np.full((self._most, len(nodes)), NONE, dtype=np.int64)
        for i, rank in enumerate(self._everywhere[: self._most]):
            best[i] = rank
        for by_label in self._by_label.values():
            best = _merged(best, by_label.look_up(nodes, self._most))
        for selector, ranks in self._others.values():
            reached = selected_nodes(nodes, selector)
            best = _merged(best, np.where(reached, np.array(ranks[: self._most], dtype=np.int64)[:, None], NONE))
        return best

    def ranks_of(self, node: NodeView, most: int) -> list[int]:
        """The `most` best that this node, a view of one, reaches."""
        labels = node.node(0).metadata.labels
        reached = [self._everywhere[:most]]
        reached += [by.best.get(labels[by.key], [])[:most] for by in self._by_label.values() if by.key in labels]
        reached += [ranks[:most] for selector, ranks in self._others.values() if selected_nodes(node, selector)[0]]
        return sorted(chain.from_iterable(reached))[:most]


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


# The free volumes of a cluster


@dataclass(frozen=True, slots=True)
class Free:
    """What a claim may get, the smallest first: the volumes' numbers, and which of them the nodes reach."""

    numbers: NDArray[np.int64]
    reach: Reach


class FreeVolumes:
    """The free volumes by what claims request, until a volume changes. Equal claims, as in one workload, share it.

    `volumes`: those that have a number.
    """

    def __init__(self, objects: ClusterObjects) -> None:
        self.generation = objects.generation(ObjectKind.PERSISTENT_VOLUME)
        self.volumes: list[PersistentVolume] = []
        self._objects = objects
        self._numbers: dict[str, int] = {}
        self._free: dict[tuple[int, bytes], Free] = {}

    def number(self, volume: PersistentVolume) -> int:
        number = self._numbers.get(volume.name)
        if number is None:
            number = self._numbers[volume.name] = len(self.volumes)
            self.volumes.append(volume)
        return number

    def free(self, claim: PersistentVolumeClaim, most: int) -> Free:
        """Enough of them for a pod with `most` claims up to this one."""
        asks = msgspec.structs.replace(claim.spec, storage_class_name=claim.storage_class, volume_name="")
        key = most, encode_msgpack(asks)
        free = self._free.get(key)
        if free is None:
            of_class = self._objects.free_volumes_of_class(claim.storage_class).values()
            fitting = sorted(
                (volume for volume in of_class if is_of_its_kind(volume, claim) and is_available(volume, claim)),
                key=lambda volume: (volume.spec.capacity.get(STORAGE, 0), volume.name),
            )
            numbers = np.array([self.number(volume) for volume in fitting], dtype=np.int64)
            free = self._free[key] = Free(numbers, Reach(fitting, most))
        return free


_FREE: WeakKeyDictionary[ClusterObjects, FreeVolumes] = WeakKeyDictionary()


# Matching


class _Offer(NamedTuple):
    """What a claim may get: a volume that is reserved for it, the first that no earlier claim has got, if there is one;
    else the best of the free ones.
    """

    reserved: list[tuple[int, PersistentVolume]]
    """With their numbers. There are several only by mistake; a pod that names the claim twice gets two."""
    free: Free


class Matching:
    """`volumes`: by number, those that any of the claims may get, and others."""

    def __init__(self, claims: Sequence[PersistentVolumeClaim], objects: ClusterObjects) -> None:
        known = _FREE.get(objects)
        if known is None or known.generation != objects.generation(ObjectKind.PERSISTENT_VOLUME):
            known = _FREE[objects] = FreeVolumes(objects)
        self.volumes = known.volumes
        self._offers: list[_Offer] = []
        for i, claim in enumerate(claims):
            reserved = [
                (known.number(volume), volume)
                for volume in sorted(objects.volumes_of_claim(claim.key).values(), key=lambda volume: volume.name)
                if volume.storage_class == claim.storage_class
                and volume.is_bound_to(claim)
                and is_of_its_kind(volume, claim)
            ]
            self._offers.append(_Offer(reserved, known.free(claim, i + 1)))
        self.is_empty = not any(offer.reserved or offer.free.numbers.size for offer in self._offers)
        """There is nothing that any of the claims could get on any node."""

    def choose(self, nodes: NodeView) -> Choices:
        """One claim after the other: what one gets no later one can have."""
        choices = np.full((len(self._offers), len(nodes)), NOTHING, dtype=np.int64)
        for i, offer in enumerate(self._offers) if not self.is_empty else ():
            taken, choice = choices[:i], choices[i]
            open_ = np.ones(len(nodes), dtype=np.bool_)
            for number, volume in offer.reserved:
                # Where a volume that is reserved for the claim is out of reach, no other one is looked for.
                is_next = open_ & ~(taken == number).any(axis=0)
                choice[is_next & reaching_nodes(nodes, volume)] = number
                open_ &= ~is_next
            numbers = offer.free.numbers
            for ranks in offer.free.reach.ranks(nodes) if numbers.size else ():
                found = ranks < NONE
                best = numbers[np.where(found, ranks, 0)]
                takes = open_ & found & (choice == NOTHING) & ~(taken == best).any(axis=0)
                choice[takes] = best[takes]
        return choices

    def in_order(self, i: int, node: NodeView, most: int) -> list[str]:
        """Of the i-th claim: the free volumes that this node, a view of one, reaches, in the order in which the claim
        would get them; empty if a volume is reserved for it.
        """
        reserved, free = self._offers[i]
        if reserved:
            return []
        return [self.volumes[free.numbers[rank]].name for rank in free.reach.ranks_of(node, most)]
