"""Which of the volumes that are there each unbound claim of a pod would get on each node."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flotilla.objects import ClusterObjects
from flotilla.plugin import NodeView
from shared.model.objects import PersistentVolume, PersistentVolumeClaim
from shared.plugins.volumes.volumebinding.reaching import NONE, reaching_nodes
from shared.plugins.volumes.volumebinding.shelf import Free, Shelf, is_of_its_kind, shelf_of

NOTHING = -1

Choices = NDArray[np.int64]
"""Claims x nodes: the number of the volume that the claim gets, NOTHING where there is none."""


class _Offer(NamedTuple):
    """What a claim may get: the volume that is kept for it, if there is one; else the best of the free ones."""

    kept: PersistentVolume | None
    kept_number: int
    free: Free


class Matching:
    """`volumes`: by number, those that any of the claims may get, and others."""

    def __init__(self, claims: Sequence[PersistentVolumeClaim], objects: ClusterObjects) -> None:
        shelf = shelf_of(objects)
        self.volumes = shelf.volumes
        self._offers = [_offer(claim, objects, shelf, place + 1) for place, claim in enumerate(claims)]
        self.is_empty = all(offer.kept is None and not offer.free.numbers.size for offer in self._offers)
        """There is nothing that any of the claims could get, on whatever node."""

    def choose(self, nodes: NodeView) -> Choices:
        """One claim after the other: what one gets no later one can have."""
        choices = np.full((len(self._offers), len(nodes)), NOTHING, dtype=np.int64)
        for place, offer in enumerate(self._offers) if not self.is_empty else ():
            taken, choice = choices[:place], choices[place]
            open_ = np.ones(len(nodes), dtype=np.bool_)
            if offer.kept is not None:
                # Where the volume that is kept for the claim is out of reach, no other one is looked for.
                open_ = (taken == offer.kept_number).any(axis=0)
                choice[~open_ & reaching_nodes(nodes, offer.kept)] = offer.kept_number
            numbers = offer.free.numbers
            for ranks in offer.free.reach.ranks(nodes) if numbers.size else ():
                found = ranks < NONE
                number = numbers[np.where(found, ranks, 0)]
                takes = open_ & found & (choice == NOTHING) & ~(taken == number).any(axis=0)
                choice[takes] = number[takes]
        return choices


def _offer(claim: PersistentVolumeClaim, objects: ClusterObjects, shelf: Shelf, most: int) -> _Offer:
    kept = sorted(
        (
            volume
            for volume in objects.volumes_of_claim(claim.key).values()
            if volume.storage_class == claim.storage_class
            and volume.is_bound_to(claim)
            and is_of_its_kind(volume, claim)
        ),
        key=lambda volume: volume.name,
    )
    return _Offer(kept[0] if kept else None, shelf.number(kept[0]) if kept else NOTHING, shelf.free(claim, most))
