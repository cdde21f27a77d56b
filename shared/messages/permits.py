"""Which pods wait for permits: asked of all binders, each of which answers for those that it has."""

import msgspec

MOST_LISTED = 1000
"""Pods that one answer names."""


class ListPermits(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-permits"):
    """To all binders, on `binder.permits`. `id` is the asker's own, and comes back with each answer."""

    id: str


class PermitPending(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that has waited so many seconds. `plugins`: who has not allowed it, and the seconds it waits for them.

    `since`: when it began to (Unix time, by the binder's clock). `waited`: None from binders of the last release.
    """

    uid: str
    namespace: str
    name: str
    node: str
    since: float
    plugins: dict[str, float]
    waited: float | None = None


class Permits(msgspec.Struct, frozen=True, omit_defaults=True, tag="permits"):
    """From each binder, on `binder.waiting`: who waits there, the longest first. `more`: how many are not named."""

    id: str
    binder: str
    waiting: list[PermitPending]
    more: int = 0
