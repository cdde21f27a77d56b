"""Which pods wait for permits: asked of all binders, each of which answers for its own."""

import msgspec

from shared.model.base import Count, Seconds

MOST_LISTED = 1000
"""Pods in one answer."""


class ListPermits(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-permits"):
    """To all binders, on `binder.permits`. `id` is chosen by the asker and repeated in each answer."""

    id: str


class PermitPending(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that waits for permits. `plugins`: those that have not allowed it, and the seconds that it waits for them.

    `since`: when the wait began (Unix time, by the binder's clock). `waited`: seconds so far; None from binders of
    the last release.
    """

    uid: str
    namespace: str
    name: str
    node: str
    since: Seconds
    plugins: dict[str, Seconds]
    waited: Seconds | None = None


class Permits(msgspec.Struct, frozen=True, omit_defaults=True, tag="permits"):
    """From each binder, on `binder.waiting`: its waiting pods, longest first. `more`: how many are not listed."""

    id: str
    binder: str
    waiting: list[PermitPending]
    more: Count = 0
