"""Pods whose volume claims differ in name only: what volume plugins read of claims that no other pod uses.

Such pods are one class if their claims have equal content. Its nodes are judged by the claims of one of its pods;
decisions about volumes number the claims, and each pod gets them with the names of its own.

A claim whose name matters has no content, so that its pods are judged by name: one for one pod only, one that is not as
it should be (messages name it), and one whose volume is attached somewhere or is another one's, too, as it may then
count once for two pods.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from flotilla.objects import PersistentVolume, PersistentVolumeClaim, Pod
from flotilla.plugin import StateKey
from shared.cluster.objects import ClusterObjects
from shared.cluster.volumes import VolumeDecision
from shared.messages import queue
from shared.model.load import claim_names
from shared.model.objects import encode_msgpack
from shared.model.storage import READ_WRITE_ONCE_POD, WAIT_FOR_FIRST_CONSUMER
from shared.plugins.volumes.migration import BY_PLUGIN, migration_of_volume
from shared.plugins.volumes.podvolumes import claim_uses, not_owned
from shared.plugins.volumes.restrictions import LABELS

OWN_CLAIMS = StateKey[bool]("each pod of the class has volume claims of its own")


# Which pods


class ClaimsOnNodes:
    """The volume claims that pods on nodes use, by `namespace/name`."""

    def __init__(self) -> None:
        self._users: Counter[str] = Counter()
        self._of: dict[str, tuple[str, ...]] = {}

    def put(self, uid: str, claims: Iterable[str]) -> None:
        """What a pod uses from now on; nothing if it is gone."""
        now, before = tuple(claims), self._of.pop(uid, ())
        if not (now or before):
            return
        if now:
            self._of[uid] = now
        self._users.update(now)
        self._users.subtract(before)
        for claim in before:
            if not self._users[claim]:
                del self._users[claim]

    def is_used(self, claim: str) -> bool:
        return claim in self._users


def volume_claims(pod: Pod) -> frozenset[str]:
    """The volume claims that a pod uses, by `namespace/name`."""
    return frozenset(f"{pod.namespace}/{name}" for name in claim_names(pod)) if pod.spec.volumes else frozenset()


def queued_volumes(
    pod: Pod, objects: ClusterObjects, pending: Counter[str], on_nodes: ClaimsOnNodes
) -> queue.QueuedVolumes | None:
    """None if the pod is judged by its claims' names. `pending`: how many pending pods use each claim."""
    used = volume_claims(pod)
    if not used or pod.status.nominated_node_name:
        return None
    if any(pending[claim] > 1 or on_nodes.is_used(claim) for claim in used):
        return None
    content = content_of_pod(pod, objects)
    return None if content is None else queue.QueuedVolumes(list(claim_names(pod)), content)


# Content


def content_of_pod(pod: Pod, objects: ClusterObjects) -> bytes | None:
    for name, ephemeral in claim_uses(pod):
        claim = objects.claims.get(f"{pod.namespace}/{name}")
        if claim is None or (ephemeral and not_owned(pod, claim) is not None):
            return None
    return content_of_claims(pod.namespace, pod.uid, claim_names(pod), objects)


def content_of_claims(namespace: str, uid: str, names: Sequence[str], objects: ClusterObjects) -> bytes | None:
    """Equal for claims that restrict nodes alike; None if a name matters. `uid`: of the pod that uses them."""
    parts: list[object] = []
    for name in names:
        claim = objects.claims.get(f"{namespace}/{name}")
        content = None if claim is None else _content(claim, objects)
        if claim is None or content is None:
            return None
        is_owned = any(owner.controller and owner.uid == uid for owner in claim.metadata.owner_references)
        parts.append((content, is_owned, names.index(name)))
    return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=16).digest()


def _content(claim: PersistentVolumeClaim, objects: ClusterObjects) -> tuple[object, ...] | None:
    if claim.metadata.deletion_timestamp is not None or claim.status.phase == "Lost":
        return None
    if READ_WRITE_ONCE_POD in claim.spec.access_modes:
        return None
    if not claim.fully_bound:
        return _unbound(claim, objects)
    volume = objects.persistent_volumes.get(claim.spec.volume_name)
    reference = None if volume is None else volume.spec.claim_ref
    return None if volume is None or reference is None or reference.key != claim.key else _bound(volume, objects)


def _bound(volume: PersistentVolume, objects: ClusterObjects) -> tuple[object, ...] | None:
    if migration_of_volume(volume) is not None or objects.attachments_of(volume.name):
        return None
    csi, driver = volume.spec.csi, ""
    if csi is not None and csi.driver and csi.volume_handle:
        if len(objects.volumes_of_handle(csi)) > 1:
            return None
        driver = csi.driver
    affinity, labels = volume.spec.node_affinity, volume.metadata.labels
    return (
        "bound",
        driver,
        b"" if affinity is None else encode_msgpack(affinity),
        [labels.get(label) for label in LABELS],
    )


def _unbound(claim: PersistentVolumeClaim, objects: ClusterObjects) -> tuple[object, ...] | None:
    """A claim that gets its volume with the pod's node. Plugins read its class in two ways."""
    storage_class = objects.storage_classes.get(claim.storage_class)
    if storage_class is None or storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        return None
    if storage_class.provisioner in BY_PLUGIN or claim.storage_class != claim.spec.storage_class_name:
        return None
    if claim.spec.volume_name or claim.selected_node is not None or claim.promised:
        return None
    if any(volume.is_bound_to(claim) for volume in objects.volumes_of_claim(claim.key).values()):
        return None
    return "unbound", encode_msgpack(claim.spec)


# Names


def without_claims(pod: Pod) -> Pod:
    """The pod as plugins sign it if the names of its claims do not matter."""
    volumes = [
        volume
        if volume.persistent_volume_claim is None
        else replace(volume, persistent_volume_claim=replace(volume.persistent_volume_claim, claim_name=""))
        for volume in pod.spec.volumes
    ]
    meta = pod.metadata
    if any(volume.ephemeral is not None for volume in volumes):
        meta = replace(meta, name="", uid="")
    return replace(pod, metadata=meta, spec=replace(pod.spec, volumes=volumes))


def numbered(decision: VolumeDecision, pod: Pod) -> VolumeDecision:
    """A decision about this pod, for all pods of its class."""
    numbers = {f"{pod.namespace}/{name}": str(i) for i, name in reversed(list(enumerate(claim_names(pod))))}
    return _renamed(decision, numbers)


def named(decision: VolumeDecision, namespace: str, claims: Sequence[str]) -> VolumeDecision:
    """A decision about a class, for a pod with these claims. KeyError if it is about other ones."""
    return _renamed(decision, {str(i): f"{namespace}/{name}" for i, name in enumerate(claims)})


def _renamed(decision: VolumeDecision, names: dict[str, str]) -> VolumeDecision:
    return VolumeDecision(
        [(names[claim], volume) for claim, volume in decision.bindings], [names[claim] for claim in decision.provisions]
    )
