"""Pods that are with somebody else for a limited time."""

from collections import OrderedDict
from collections.abc import Iterator

from services.queue.scheduling.queued_pod_info import Entry
from shared.errors import InvariantBroken


class Timed:
    """All get the same time, so they are in the order of their deadlines as they came. O(1) each way."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._latest = 0.0

    def start(self, entry: Entry, now: float) -> None:
        """Sets its deadline; never before that of an earlier one, also if the clock was set back."""
        self._latest = entry.deadline = max(now + self._patience, self._latest)

    def add(self, entry: Entry) -> None:
        self._entries[entry.uid] = entry

    def discard(self, entry: Entry) -> None:
        del self._entries[entry.uid]

    def first(self) -> Entry | None:
        return next(iter(self._entries.values()), None)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def validate(self) -> None:
        deadlines = [entry.deadline for entry in self]
        if deadlines != sorted(deadlines):
            raise InvariantBroken("pods with a deadline are not in the order of their deadlines")
