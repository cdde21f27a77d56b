"""What pods of one message contribute to their nodes: said once for all that are alike, and referred to by number."""

from collections.abc import Iterable

from shared.model.load import PodLoad


class Loads:
    """Numbers each load once; those that are one object share a number."""

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
