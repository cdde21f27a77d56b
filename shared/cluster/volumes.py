"""What a decision means for the volumes of its pod."""

import msgspec


class VolumeDecision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`bindings`: claims (`namespace/name`) and the persistent volume that each is to be bound to.

    `provisions`: claims for which a volume is to be made where the pod goes.
    """

    bindings: tuple[tuple[str, str], ...] = ()
    provisions: tuple[str, ...] = ()
