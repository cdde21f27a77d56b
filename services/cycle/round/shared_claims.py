"""Members of a gang that share a claim: each decision says what one of them was given.

When a later member is judged, the claim is taken to have it already. But nothing is written yet, and the snapshot and
binders must learn from any of the decisions what is to be written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from services.cycle.round.admission import PodInfo
from services.cycle.round.ladder_merge import Placement
from shared.cluster.volumes import VolumeDecision
from shared.model.devices import AllocationResult

Decided = tuple[PodInfo, Placement]


def with_shared_claims(decided: Iterable[Decided]) -> list[Decided]:
    """In the same order."""
    decided = list(decided)
    if all(placement.volumes is None and placement.devices is None for _, placement in decided):
        return decided
    volumes = {
        claim: volume
        for _, placement in decided
        if placement.volumes is not None
        for claim, volume in placement.volumes.bindings
    }
    devices: dict[str, AllocationResult] = {}
    for each in decided:
        for key, allocation in _allocations(*each):
            if allocation is not None:
                devices.setdefault(key, allocation)  # of a claim that a pod names twice, the first one counts
    bound = [(info, _with_bindings(info, placement, volumes)) for info, placement in decided]
    return [(info, _with_devices(info, placement, devices)) for info, placement in bound]


def _with_bindings(info: PodInfo, placement: Placement, given: Mapping[str, str]) -> Placement:
    load, volumes = info.template.load, placement.volumes or VolumeDecision()
    bound = {claim for claim, _ in volumes.bindings}
    claims = [claim for name in load.claims if (claim := f"{load.namespace}/{name}") in given and claim not in bound]
    if not claims:
        return placement
    bindings = [*volumes.bindings, *((claim, given[claim]) for claim in claims)]
    return replace(placement, volumes=msgspec.structs.replace(volumes, bindings=bindings))


def _with_devices(info: PodInfo, placement: Placement, given: Mapping[str, AllocationResult]) -> Placement:
    own, devices = _allocations(info, placement), placement.devices
    if devices is None or not any(allocation is None and key in given for key, allocation in own):
        return placement
    allocations = [given.get(key) if allocation is None else allocation for key, allocation in own]
    return replace(placement, devices=msgspec.structs.replace(devices, allocations=allocations))


def _allocations(info: PodInfo, placement: Placement) -> list[tuple[str, AllocationResult | None]]:
    """What the pod's claims are given, by `namespace/name`; None for one that was allocated when it was judged."""
    if placement.devices is None or info.claims is None:
        return []
    names = (ref.key for ref in info.claims.claims)
    return list(zip(names, placement.devices.allocations, strict=True))
