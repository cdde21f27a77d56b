"""Free volumes among the pods of a round: what one gets no other one can have."""

from dataclasses import replace

import msgspec

from services.cycle.round.admission import PodInfo
from services.cycle.round.ladder_merge import Placement
from shared.plugins.volumes.own_claims import named


class RoundVolumes:
    """The claims and volumes that a round's decisions have taken.

    Workers judge each class by the volumes that are free at the beginning of the round, so pods with equal claims are
    all offered the same ones. Each gets the first that is left, as if it were decided after the pods before it.
    """

    def __init__(self) -> None:
        self._claims: set[str] = set()
        self._volumes: set[str] = set()
        self._over: set[str] = set()

    def take(self, info: PodInfo, placement: Placement) -> Placement | None:
        """The placement with volumes that are left. None if workers must judge the class again: another pod has taken
        one of its claims, or all volumes that they have named. No further placement of the class is possible then.
        """
        if placement.volumes is None:
            return placement
        if info.volumes is not None:
            of_pod = named(placement.volumes, info.namespace, info.volumes.claims)
            placement = replace(placement, volumes=of_pod)
        found = None if info.class_id in self._over else self._left(placement)
        if found is None or found.volumes is None:
            self._over.add(info.class_id)
            return None
        self._claims |= {claim for claim, _ in found.volumes.bindings} | {*found.volumes.provisions}
        self._volumes |= {volume for _, volume in found.volumes.bindings}
        return found

    def _left(self, placement: Placement) -> Placement | None:
        volumes = placement.volumes
        if volumes is None or any(claim in self._claims for claim, _ in volumes.bindings):
            return None
        if any(claim in self._claims for claim in volumes.provisions):
            return None
        if not any(volume in self._volumes for _, volume in volumes.bindings):
            return placement
        bindings: list[tuple[str, str]] = []
        mine: set[str] = set()
        offered = placement.choices or [[volume] for _, volume in volumes.bindings]
        for (claim, first), names in zip(volumes.bindings, offered, strict=True):
            left = (each for each in names or [first] if each not in self._volumes and each not in mine)
            volume = next(left, None)
            if volume is None:
                return None
            bindings.append((claim, volume))
            mine.add(volume)
        return replace(placement, volumes=msgspec.structs.replace(volumes, bindings=bindings))
