"""Interner: small numbers for values that are often compared."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Interner(Generic[T]):
    """Numbers distinct values 0, 1, 2 ... in the order they are first seen; forgets none."""

    def __init__(self) -> None:
        self._ids: dict[T, int] = {}
        self.items: list[T] = []

    def __len__(self) -> int:
        return len(self.items)

    def id(self, item: T) -> int:
        number = self._ids.get(item)
        if number is None:
            number = self._ids[item] = len(self.items)
            self.items.append(item)
        return number

    def known(self, item: T) -> int | None:
        return self._ids.get(item)
