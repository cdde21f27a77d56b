"""The release of a claim that keeps its pod from being scheduled."""

from shared.messages.binding import ClaimRelease
from shared.plugins.devices.claim_calls import (
    Claims,
    Steps,
    consumers,
    devices_in,
    is_special_claim_of,
    plain,
    put,
)
from shared.plugins.devices.group_claims import is_group

ALLOCATED = ("allocation", "reservedFor", "devices")
"""The parts of a claim's status that end with its allocation."""


def release_claim(pod_uid: str, release: ClaimRelease) -> Steps[None]:
    """Take a claim's devices back, or delete it, as PostFilter decided for this pod; NotDone if that fails.

    A claim that has another allocation by now, or that is reserved for other pods or another group than the release
    names, stays as it is. Only the claim that was made for the pod's extended resources is ever deleted.
    """
    claims = Claims()
    claim = yield from claims.read(release.key)
    metadata, found = claim["metadata"], claim.get("status", {}).get("allocation")
    own = {pod_uid, *release.members}
    others = [each for each in consumers(claim) if each.get("uid") not in own]
    if metadata.get("uid") != release.uid or not all(is_group(each, release.group) for each in others):
        return
    if release.allocation is None:
        if is_special_claim_of(pod_uid, metadata):
            yield from claims.delete(release.key, claim)
        return
    seen = plain(release.allocation)
    if found is None or devices_in(found) != devices_in(seen):
        return
    if found.get("allocationTimestamp") == seen.get("allocationTimestamp"):
        claim["status"] = {name: part for name, part in claim["status"].items() if name not in ALLOCATED}
        yield from put(claims.status_path(release.key), claim, f"deallocate claim {release.key}")
