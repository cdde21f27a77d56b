"""What looks wrong at one look and may be a mere race; it is wrong if it still looks so after a while."""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Suspicions(Generic[K]):
    """Reports each key once: at the first look that is `patience` after the one it came up at, if none cleared it."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[K, float] = {}
        self._reported: set[K] = set()

    def look(self, keys: Iterable[K], at: float) -> list[tuple[K, float]]:
        """At these keys something looks wrong, and at no others. Those confirmed, and since when."""
        self._since = {key: self._since.get(key, at) for key in keys}
        self._reported &= self._since.keys()
        confirmed = [
            (key, since)
            for key, since in self._since.items()
            if since < at and at - since >= self._patience and key not in self._reported
        ]
        self._reported.update(key for key, _ in confirmed)
        return confirmed

    def clear(self) -> None:
        """A look has failed or cannot be trusted: no two looks in a row. What was reported stays so."""
        self._since = dict.fromkeys(self._reported, float("-inf"))
