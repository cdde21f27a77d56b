"""What a decision means for the volumes of its pod."""

import msgspec


class VolumeDecision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What is to become of the claims of a pod that are not bound yet.

    `bindings`: claim and the volume that it is to have. `provisions`: claims that a volume is to be made for, near the
    node that the pod goes to. Claims are named by key. `uids`: those of the claims, filled in by the snapshot when the
    decision is taken.
    """

    bindings: list[tuple[str, str]] = []
    provisions: list[str] = []
    uids: dict[str, str] = {}
