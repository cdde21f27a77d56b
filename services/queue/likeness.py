"""Which rejected pods are alike: what helps one of them helps the others."""

from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from shared.model.objects import Pod

# Quantities are integers of their own kind; their digits will do where nobody is to read them.
_TEXT = msgspec.msgpack.Encoder(enc_hook=int.__repr__, order="deterministic")


def likeness(pod: Pod, *, whole: bool = False) -> bytes:
    """Equal for pods of one controller that differ in name and uid only, and in conditions.

    Not where claims are called after a pod. `whole`: equal for a pod and itself only.
    """
    if whole:
        return blake2b(_TEXT.encode(pod), digest_size=16).digest()
    meta = pod.metadata
    personal = bool(pod.spec.resource_claims) or any(volume.ephemeral is not None for volume in pod.spec.volumes)
    status = replace(pod.status, conditions=[]) if pod.status.conditions else pod.status
    name = (meta.name, pod.uid) if personal else None
    controller = next((owner.uid for owner in meta.owner_references if owner.controller), None)
    parts = (meta.namespace, meta.labels, pod.spec, status, name, controller)
    return blake2b(_TEXT.encode(parts), digest_size=16).digest()
