"""Whether tolerations put up with taints: the reference for anything faster."""

from collections.abc import Iterable, Sequence

from shared.model.affinity import Taint, Toleration

REPELLING = frozenset({"NoSchedule", "NoExecute"})
"""The effects of taints that keep pods off."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration covers the taint. The numeric operators Lt and Gt, which are off by default, never do."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether any of the tolerations covers the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def repel(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Whether any of the taints keeps a pod with these tolerations off. A taint of another effect never does."""
    return any(taint.effect in REPELLING and not is_tolerated(taint, tolerations) for taint in taints)
