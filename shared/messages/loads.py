"""The loads of one message: each is listed once, and pods refer to it by index."""

from collections.abc import Iterable

from shared.model.load import PodLoad


class Loads:
    """Assigns indices to loads; identical objects share one."""

    def __init__(self, items: Iterable[PodLoad] = ()) -> None:
        """`items` have their numbers already."""
        self.items: list[PodLoad] = list(items)
        self._numbers: dict[int, int] = {}

    def number(self, load: PodLoad) -> int:
        number = self._numbers.get(id(load))
        if number is None:
            number = self._numbers[id(load)] = len(self.items)
            self.items.append(load)
        return number
