"""Whether a volume fits a claim on one node: to verify a choice that VolumeBinding made elsewhere."""

from collections.abc import Mapping

from shared.model.objects import PersistentVolume, PersistentVolumeClaim
from shared.model.selectors import node_selector_matches
from shared.plugins.volumes.volumebinding.shelf import is_available, is_of_its_kind


def misfit(volume: PersistentVolume, claim: PersistentVolumeClaim, labels: Mapping[str, str]) -> str | None:
    """Why VolumeBinding would not give the claim this volume on a node with these labels; None if it might.

    Of all volumes that fit it chooses one: that it is the best one is not looked at.
    """
    if volume.storage_class != claim.storage_class:
        return f"volume {volume.name} is of class {volume.storage_class!r}, claim {claim.key} of another"
    if not is_of_its_kind(volume, claim):
        return f"volume {volume.name} is too small for claim {claim.key}, of another mode, or being deleted"
    kept = volume.is_bound_to(claim)
    if not kept and (volume.spec.claim_ref is not None or not is_available(volume, claim)):
        return f"volume {volume.name} is not available for claim {claim.key}"
    required = None if volume.spec.node_affinity is None else volume.spec.node_affinity.required
    if required is not None and not node_selector_matches(required, labels, ""):
        return f"the node does not reach volume {volume.name}"
    return None
