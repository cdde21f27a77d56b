"""A heap of pods. What leaves it from the middle stays as a husk until it comes up or husks prevail."""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from services.queue.scheduling.queued_pod_info import Entry
from shared.errors import InvariantBroken

MOST_HUSKS = 64
"""More of them than pods, and more than this, are swept out."""


class PodHeap:
    """Pods by key, smallest first; equal ones in the order in which they came. O(log n) each way."""

    def __init__(self, key: Callable[[Entry], Any]) -> None:
        self._key = key
        self._items: list[tuple[Any, int, Entry]] = []
        self._pushes = 0
        self._live = 0

    def add(self, entry: Entry) -> None:
        self._push(entry)
        self._live += 1

    def discard(self, entry: Entry) -> None:
        entry.ticket = None
        self._live -= 1
        self._sweep()

    def resort(self, entry: Entry) -> None:
        """Its key has changed."""
        self._push(entry)
        self._sweep()

    def first(self) -> Entry | None:
        items = self._items
        while items:
            item = items[0]
            entry = item[2]
            if entry.ticket is item:
                return entry
            heappop(items)
        return None

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[Entry]:
        """In order."""
        return (item[2] for item in sorted(item for item in self._items if item[2].ticket is item))

    def validate(self) -> None:
        live = [item for item in self._items if item[2].ticket is item]
        if len(live) != self._live:
            raise InvariantBroken(f"a heap of {self._live} pods holds {len(live)}")
        for key, _, entry in live:
            if key != self._key(entry):
                raise InvariantBroken(f"pod {entry.pod.key} is not sorted where it belongs: {entry.told()}")

    def _push(self, entry: Entry) -> None:
        self._pushes += 1
        entry.ticket = item = (self._key(entry), self._pushes, entry)
        heappush(self._items, item)

    def _sweep(self) -> None:
        if len(self._items) > 2 * self._live + MOST_HUSKS:
            self._items = [item for item in self._items if item[2].ticket is item]
            heapify(self._items)
