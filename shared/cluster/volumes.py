"""What a decision means for its pod's volumes."""

import msgspec


class VolumeDecision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What happens to a pod's unbound claims.

    `bindings`: claims and the volumes assigned to them. `provisions`: claims for which a volume is to be provisioned
    near the pod's node. Claims are named by key. `uids`: of the claims, set by the snapshot when it commits the
    decision.
    """

    bindings: list[tuple[str, str]] = []
    provisions: list[str] = []
    uids: dict[str, str] = {}
