"""Objects as golden cases list them: plain data by lower-case plural, `services` or `storageclasses`."""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.errors import UserError
from shared.model.objects import ClusterObject, ObjectKind, object_from

NOT_OBJECTS = frozenset({"nodes", "pods"})
"""They are read by themselves."""


class UnreadableCases(UserError):
    """A file of cases that is none."""


def objects_of(lists: Mapping[str, list[Any]]) -> Iterator[ClusterObject]:
    """Of every kind but those."""
    for plural, objects in lists.items():
        if plural in NOT_OBJECTS:
            continue
        kind = KINDS.get(plural)
        if kind is None:
            raise UnreadableCases(f"objects.{plural}: there is no such kind")
        yield from (object_from(kind, each) for each in objects)


def _plural(kind: ObjectKind) -> str:
    if kind.endswith("y"):
        return f"{kind[:-1]}ies"
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"


KINDS: Mapping[str, ObjectKind] = {_plural(kind): kind for kind in ObjectKind}
