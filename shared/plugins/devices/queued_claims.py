"""What the queue tells the cycle about a pod's resource claims."""

import hashlib

from shared.cluster.devices import Devices
from shared.devices.extended import special_claim
from shared.devices.pod_claims import PodClaims, content_key, own_claims
from shared.messages import queue
from shared.model.pod import Pod
from shared.model.resources import filter_requests


def queued_claims(pod: Pod, devices: Devices) -> queue.QueuedClaims | None:
    """None for a pod without claims. Pods with equal content are judged alike."""
    left = devices.special_claims_of(pod.uid)
    if not pod.spec.resource_claims and not left:
        return None
    own = own_claims(pod, devices.claims)
    if isinstance(own, str):
        return queue.QueuedClaims([], f"{pod.uid}: {own}".encode())
    special = special_claim(pod, left) if left else None
    found = PodClaims(pod, own if special is None else [*own, special], special, filter_requests(pod))
    content = hashlib.blake2b(content_key(found), digest_size=16).digest()
    refs = [queue.ClaimRef(claim.key, claim.uid) for claim in own]
    return queue.QueuedClaims(refs, content if special is None else content + pod.uid.encode())
