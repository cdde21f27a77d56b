"""Remembers the latest evictions that binders have reported, for `flotilla evictions`. Bounded by number and age."""

from collections import OrderedDict
from typing import NamedTuple

from shared.messages.binding import Evicted, Preemption
from shared.messages.inspection import LONGEST_TEXT

MAX_VICTIMS = 1000
"""Victims that are remembered, of all preemptions together; each failed preemption counts as one."""
MAX_AGE = 24 * 3600.0
"""Seconds for which a preemption is remembered."""


class Entry(NamedTuple):
    """`uid`, `priority`: the preemptor's; the priority only if the queue had the pod."""

    at: float
    uid: str
    priority: int | None
    preemption: Preemption
    failure: str

    @property
    def size(self) -> int:
        return max(len(self.preemption.victims), 1)


class EvictionJournal:
    def __init__(self) -> None:
        self.dropped = 0
        self._entries: OrderedDict[tuple[str, int], Entry] = OrderedDict()
        self._size = 0

    def record(self, evicted: Evicted, priority: int | None, now: float) -> None:
        """A repeated report is known. One without a victim says why nothing was done."""
        key = evicted.uid, evicted.attempt
        preemption = evicted.preemption
        if preemption is None or key in self._entries or not (preemption.victims or evicted.failure):
            return
        entry = self._entries[key] = Entry(now, evicted.uid, priority, preemption, evicted.failure[:LONGEST_TEXT])
        self._size += entry.size
        while self._size > MAX_VICTIMS and len(self._entries) > 1:
            self._drop()

    def since(self, at: float, now: float) -> list[Entry]:
        """Newest first."""
        while self._entries and next(iter(self._entries.values())).at < now - MAX_AGE:
            self._drop()
        return [entry for entry in reversed(self._entries.values()) if entry.at >= at]

    def violated_by(self, uid: str) -> tuple[str, ...]:
        """The PodDisruptionBudgets, by namespace and name, that did not allow what was evicted for this pod last."""
        last = next((entry for entry in reversed(self._entries.values()) if entry.uid == uid), None)
        victims = () if last is None else last.preemption.victims
        return tuple(sorted({f"{victim.namespace}/{budget}" for victim in victims for budget in victim.violates}))

    def _drop(self) -> None:
        _, entry = self._entries.popitem(last=False)
        self._size -= entry.size
        self.dropped += 1
