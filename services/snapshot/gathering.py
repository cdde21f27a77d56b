"""What several events change, gathered for one delta."""

from collections.abc import Iterable, Sequence

import msgspec

from shared.messages.state import Change, PodNominated, PodPlaced
from shared.model.load import PodLoad


class Gathering:
    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.loads: list[PodLoad] = []
        self.writes: list[str] = []
        self.settled: list[str] = []

    def add(
        self, changes: Iterable[Change], loads: Sequence[PodLoad], writes: Iterable[str], settled: Iterable[str]
    ) -> None:
        """`changes` name loads by their place in `loads`."""
        before = len(self.loads)
        for change in changes:
            if isinstance(change, PodPlaced | PodNominated) and before:
                change = msgspec.structs.replace(change, load=change.load + before)
            self.changes.append(change)
        self.loads.extend(loads)
        self.writes.extend(writes)
        self.settled.extend(settled)
