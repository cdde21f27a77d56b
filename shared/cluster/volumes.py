"""What decisions mean for volumes and claims, before they are carried out.

A volume assigned to a claim counts as claimed, and the claim as promised it: no other volume is provisioned if that one
is out of reach. A claim with a volume to be provisioned counts as waiting for it at the node.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from shared.model.objects import ClaimReference, ClusterObject, ObjectKind, PersistentVolume, PersistentVolumeClaim
from shared.model.storage import BOUND_BY_CONTROLLER, SELECTED_NODE


class VolumeDecision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What happens to a pod's unbound claims.

    `bindings`: claims and the volumes assigned to them. `provisions`: claims for which a volume is to be provisioned
    near the pod's node. Claims are named by key. `uids`: of the claims, set by the snapshot when it commits the
    decision.
    """

    bindings: list[tuple[str, str]] = []
    provisions: list[str] = []
    uids: dict[str, str] = {}


Slot = tuple[ObjectKind, str]
VOLUME, CLAIM = ObjectKind.PERSISTENT_VOLUME, ObjectKind.PERSISTENT_VOLUME_CLAIM


@dataclass(frozen=True, slots=True)
class Claimed:
    """A volume is assigned to a claim."""

    claim: ClaimReference

    def over(self, obj: ClusterObject) -> ClusterObject:
        """The object as it will be; the same one if it shows this already, or contradicts it."""
        if not isinstance(obj, PersistentVolume):
            return obj
        reference = obj.spec.claim_ref
        if reference is not None and (reference.key != self.claim.key or reference.uid or not self.claim.uid):
            return obj  # neither free nor reserved for any claim of this name
        metadata = obj.metadata
        if reference is None and BOUND_BY_CONTROLLER not in metadata.annotations:
            annotations = metadata.annotations | {BOUND_BY_CONTROLLER: "yes"}
            metadata = msgspec.structs.replace(metadata, annotations=annotations)
        spec = msgspec.structs.replace(obj.spec, claim_ref=self.claim)
        return msgspec.structs.replace(obj, metadata=metadata, spec=spec)


@dataclass(frozen=True, slots=True)
class Selected:
    """A claim is to get a volume provisioned for a node."""

    uid: str
    node: str

    def over(self, obj: ClusterObject) -> ClusterObject:
        claim = _undecided(obj, self.uid)
        if claim is None:
            return obj
        annotations = claim.metadata.annotations | {SELECTED_NODE: self.node}
        return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))


@dataclass(frozen=True, slots=True)
class Promised:
    """A claim is to get this volume."""

    uid: str
    volume: str

    def over(self, obj: ClusterObject) -> ClusterObject:
        claim = _undecided(obj, self.uid)
        return obj if claim is None else msgspec.structs.replace(claim, promised=self.volume)


def _undecided(obj: ClusterObject, uid: str) -> PersistentVolumeClaim | None:
    """The claim, if it is the one with this uid and shows neither a volume nor a node."""
    if not isinstance(obj, PersistentVolumeClaim) or obj.uid != uid:
        return None
    return None if obj.spec.volume_name or obj.selected_node is not None else obj


Laid = Claimed | Promised | Selected


def changes_of(node: str, volumes: VolumeDecision) -> Iterator[tuple[Slot, Laid]]:
    """The changes to objects if a pod with these volume decisions goes to this node."""
    for claim, volume in volumes.bindings:
        namespace, _, name = claim.partition("/")
        reference = ClaimReference(namespace=namespace, name=name, uid=volumes.uids.get(claim, ""))
        yield (VOLUME, volume), Claimed(reference)
        yield (CLAIM, claim), Promised(reference.uid, volume)
    for claim in volumes.provisions:
        yield (CLAIM, claim), Selected(volumes.uids.get(claim, ""), node)
