"""The objects of golden cases: plain data by lower-case plural, such as `services` or `storageclasses`."""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.errors import UserError
from shared.model.objects import ClusterObject, ObjectKind, object_from

NOT_OBJECTS = frozenset({"nodes", "pods"})
"""Decoded separately."""


class UnreadableCases(UserError):
    """A file that does not contain cases."""


def objects_of(lists: Mapping[str, list[Any]]) -> Iterator[ClusterObject]:
    """Decode the objects of all kinds except nodes and pods."""
    for plural, objects in lists.items():
        if plural in NOT_OBJECTS:
            continue
        kind = KINDS.get(plural)
        if kind is None:
            raise UnreadableCases(f"objects.{plural}: unknown kind")
        yield from (object_from(kind, each) for each in objects)


def _plural(kind: ObjectKind) -> str:
    if kind.endswith("y"):
        return f"{kind[:-1]}ies"
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"


KINDS: Mapping[str, ObjectKind] = {_plural(kind): kind for kind in ObjectKind}
