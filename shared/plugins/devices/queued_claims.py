"""What the queue tells the cycle about a pod's resource claims."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from shared.cluster.devices import Devices
from shared.devices.extended import special_claim
from shared.devices.pod_claims import PodClaims, content_key, own_claims
from shared.messages import queue
from shared.model.pod import Pod
from shared.model.resources import filter_requests
from shared.plugins.volumes.own_claims import volume_claims


@dataclass(slots=True)
class ClaimUsers:
    """Which claims the pending pods name; those made from templates belong to one pod, or to its group. `volumes`: how
    many pods use each volume claim.
    """

    _users: Counter[str] = field(default_factory=Counter)
    volumes: Counter[str] = field(default_factory=Counter)

    def add(self, pod: Pod) -> None:
        for users, claims in ((self._users, _named(pod)), (self.volumes, volume_claims(pod))):
            for key in claims:
                users[key] += 1

    def remove(self, pod: Pod) -> None:
        for users, claims in ((self._users, _named(pod)), (self.volumes, volume_claims(pod))):
            for key in claims:
                users[key] -= 1
                if not users[key]:
                    del users[key]

    def has_others(self, pod: Pod) -> bool:
        """Whether another one of the pods names a claim that this one names."""
        return any(self._users[key] > 1 for key in _named(pod))


def queued_claims(pod: Pod, devices: Devices, users: ClaimUsers) -> queue.QueuedClaims | None:
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
    if special is not None:
        content += pod.uid.encode()
    are_own = not any(claim.is_of_group for claim in own)
    return queue.QueuedClaims(refs, content, private=are_own and not users.has_others(pod))


def _named(pod: Pod) -> set[str]:
    return {f"{pod.namespace}/{use.resource_claim_name}" for use in pod.spec.resource_claims if use.resource_claim_name}
