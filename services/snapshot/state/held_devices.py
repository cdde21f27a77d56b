"""Attempts that are over and whose devices are not free yet.

A pod may be gone, bound elsewhere or forgotten, and a binder still write an allocation for it; or the allocation is
written, and the watch shows it later than the pod. So the entry stays in the stored ledger, under a uid of its own.

    over -> held --the watch shows every claim as decided, or gone-------------------------------> ends
               +-- fenced: each claim has another version --the watch shows this or a later one--> ends
"""

from collections import deque
from collections.abc import Iterator

from services.snapshot.events import FenceClaims
from services.snapshot.state.object_overlay import LINGER_SECONDS, ObjectOverlay
from shared.messages.state import LedgerEntry, held_uid


class HeldDevices:
    def __init__(self, objects: ObjectOverlay) -> None:
        self._objects = objects
        self._entries: dict[str, LedgerEntry] = {}
        self._waiting: deque[tuple[float, str]] = deque()
        """When entries whose pod was bound are fenced, unless they end before."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self._entries.values())

    def hold(self, entry: LedgerEntry) -> LedgerEntry | None:
        """What is to be stored if the watch does not show all allocations of the attempt."""
        if not self._objects.hold(entry.uid, held_uid(entry.uid, entry.attempt)):
            return None
        held = entry.hold()
        self._entries[held.uid] = held
        return held

    def restore(self, held: LedgerEntry) -> None:
        """An entry of an earlier term."""
        self._objects.restore_held(held.assignment)
        self._entries[held.uid] = held

    def fence_later(self, held: LedgerEntry, now: float) -> None:
        """The allocations are written, so the watch should show them soon."""
        self._waiting.append((now + LINGER_SECONDS, held.uid))

    @property
    def next_deadline(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None

    def due(self, now: float) -> Iterator[FenceClaims]:
        while self._waiting and self._waiting[0][0] <= now:
            held = self._entries.get(self._waiting.popleft()[1])
            if held is not None:
                yield FenceClaims(held)

    def take_ended(self) -> dict[str, bool]:
        """Uids of entries that have ended, and whether that freed devices."""
        ended = self._objects.take_ended()
        for uid in ended:
            self._entries.pop(uid, None)
        return ended
