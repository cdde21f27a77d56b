"""When a pod that waits for devices is worth another attempt."""

from flotilla.objects import ClusterObjects
from shared.model.devices import ResourceClaim
from shared.model.objects import Pod, PodResourceClaim


def after_claim(pod: Pod, before: ResourceClaim | None, now: ResourceClaim, objects: ClusterObjects) -> bool:
    """A claim has given its devices back, whoever's it was, or one of the pod's own is new or has another status.

    Nothing helps a pod one of whose claims is missing.
    """
    claims = usable_claims(pod, objects)
    if claims is None:
        return False
    if before is not None and before.is_allocated and not now.is_allocated:
        return True
    return any(claim.uid == now.uid for claim in claims) and (before is None or before.status != now.status)


def after_own_claims(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """The pod itself has now got all its claims."""
    return pod.uid == now.uid and usable_claims(now, objects) is not None


def usable_claims(pod: Pod, objects: ClusterObjects) -> list[ResourceClaim] | None:
    """The pod's claims; None if one is missing, or on its way out, or was made for somebody else."""
    found: list[ResourceClaim] = []
    for use in pod.spec.resource_claims:
        named = use.resource_claim_name is not None
        name = use.resource_claim_name if named else _made_for(pod, use)
        if name == _NOT_MADE:
            return None
        if name is None:
            continue
        claim = objects.devices.claims.get(f"{pod.namespace}/{name}")
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return None
        if not named and claim.owner_uid != pod.uid:
            return None
        found.append(claim)
    return found


def _made_for(pod: Pod, use: PodResourceClaim) -> str | None:
    """The claim that was made from the template; None where none was needed, empty where there is none so far."""
    for status in pod.status.resource_claim_statuses:
        if status.name == use.name and use.resource_claim_template_name is not None:
            return status.resource_claim_name
    return _NOT_MADE


_NOT_MADE = ""
