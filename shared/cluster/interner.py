"""Small numbers for things that are compared often."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Interner(Generic[T]):
    """Numbers distinct things 0, 1, 2 ... in the order they are first seen, and never forgets one."""

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
