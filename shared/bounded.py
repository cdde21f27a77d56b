"""BoundedDict: a dict that never holds more than a given number of entries.

Listings: long answers in pages that are consistent with each other, while the state changes. A listing is built once,
for its first page, and kept for a while; so a page costs no more than what is on it.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

MAX_LISTINGS = 4
"""Kept at a time; the least recently used one is dropped."""
KEPT_SECONDS = 60.0
"""After the last request for one of its pages."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


class BoundedDict(OrderedDict[K, V]):
    """Entries in the order in which they were last set; setting one too many evicts the first.

    For least-recently-used order, set an entry again when it is used.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)

    def obtain(self, key: K, make: Callable[[], V]) -> V:
        """The entry of this key; made and set if there is none."""
        try:
            return self[key]
        except KeyError:
            self[key] = value = make()
            return value


class Page(NamedTuple, Generic[T]):
    """Begins at number `after`. `next`: where the next page begins; 0 after the last one."""

    listing: str
    total: int
    items: Sequence[T]
    next: int
    after: int = 0

    def within(self, most: int, size: Callable[[T], int]) -> "Page[T]":
        """As many of its items as together have at most this size, and at least one."""
        left = most
        for i, item in enumerate(self.items):
            left -= size(item)
            if left < 0 and i:
                return self._replace(items=self.items[:i], next=self.after + i)
        return self


class Listings(Generic[T]):
    def __init__(self) -> None:
        self._kept: BoundedDict[str, tuple[float, Sequence[T]]] = BoundedDict(MAX_LISTINGS)
        self._begun = 0

    def page(
        self, listing: str, after: int, limit: int, draw_up: Callable[[], Sequence[T]], now: float
    ) -> Page[T] | None:
        """A page of the named listing, or of a new one if none is named; None if it has expired."""
        self.expire(now)
        if listing:
            known = self._kept.pop(listing, None)
            if known is None:
                return None
            items = known[1]
        else:
            items = draw_up()
            self._begun += 1
            listing = f"{now:.6f}-{self._begun}"
        after = max(after, 0)
        end = min(after + max(limit, 1), len(items))
        self._kept[listing] = (now + KEPT_SECONDS, items)
        return Page(listing, len(items), items[after:end], end if end < len(items) else 0, after)

    def expire(self, now: float) -> None:
        """Drop listings that were not requested lately."""
        while self._kept and next(iter(self._kept.values()))[0] <= now:
            self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)
