"""BoundedDict: a dict that never holds more than a given number of entries."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


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
