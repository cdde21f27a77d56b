"""Pods without a place that are to have room on a node, because others make way for them.

A pod that is assumed holds a place and needs no room beside it; it is nominated again should it be forgotten.
"""

from collections.abc import Iterator

import msgspec

from services.snapshot.places import Loads
from shared.cluster.load import PodLoad
from shared.messages.state import PodNominated


class Nomination(msgspec.Struct, frozen=True, gc=False):
    node: str
    load: PodLoad
    key: str

    def told(self, uid: str, loads: Loads) -> PodNominated:
        return PodNominated(uid, self.node, loads.number(self.load), self.key)


class Nominations:
    def __init__(self) -> None:
        self._nominations: dict[str, Nomination] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._nominations

    def __len__(self) -> int:
        return len(self._nominations)

    def __iter__(self) -> Iterator[tuple[str, Nomination]]:
        return iter(self._nominations.items())

    def get(self, uid: str) -> Nomination | None:
        return self._nominations.get(uid)

    def put(self, uid: str, nomination: Nomination) -> bool:
        """False if it is known to be just so."""
        if self._nominations.get(uid) == nomination:
            return False
        self._nominations[uid] = nomination
        return True

    def drop(self, uid: str) -> bool:
        return self._nominations.pop(uid, None) is not None
