"""The pods that are assumed and not yet seen on their nodes, and until when each may be left alone.

Here, and nowhere else, is known how long an attempt may take. Binders are told what is left of it when they are given
the order; in Redis stands what people may want to read, and a new term gives each entry a whole window again. A window
that has ended frees nothing: the attempt is fenced first.
"""

import heapq
import math
from collections.abc import Iterator, Mapping

import msgspec

from shared.errors import InvariantBroken
from shared.messages.binding import LONGEST_WAIT
from shared.messages.state import BindingOrder, Commit, Decision, LedgerEntry
from shared.model.load import PodLoad

BINDING_WINDOW = 30.0
"""Seconds in which binders may bind an assumed pod, or say that they wait."""
LOOK_UP_GRACE = 5.0
"""Seconds after the window until the attempt is fenced: a last call may still be answered, which costs less."""
LOOK_UP_AGAIN = BINDING_WINDOW + LOOK_UP_GRACE
"""Seconds after which an attempt is to be fenced once more if the first time has had no result."""

Attempt = tuple[str, int]
"""Of the pod of this uid, the attempt of this number."""


class Doubt(msgspec.Struct, frozen=True, gc=False):
    """The attempt is being fenced. Should the pod turn out not to be bound, this is why."""

    reason: str = "the binding was not finished in time"
    plugin: str = ""
    rejected: bool = False


class Ledger:
    """`ahead`: seconds from the clock that deadlines are counted on to Unix time."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._entries: dict[str, LedgerEntry] = {}
        self._deadlines: dict[str, float] = {}
        self._doubts: dict[str, Doubt] = {}
        self._due_at: dict[str, float] = {}
        self._due: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self._entries.values())

    def entries(self) -> Mapping[str, LedgerEntry]:
        """By uid."""
        return self._entries

    def restore(self, entry: LedgerEntry) -> None:
        """Of an earlier leader. It has no window before `begin`."""
        self._entries[entry.uid] = entry

    def begin(self, now: float) -> None:
        """A term begins: a whole window for what has none."""
        for uid in self._entries.keys() - self._deadlines.keys():
            self._put_off(uid, now + BINDING_WINDOW)

    def assume(self, decision: Decision, load: PodLoad, commit: Commit, attempt: int, now: float) -> LedgerEntry:
        """A new attempt, in the place of an earlier one if there is any."""
        wall = now + self.ahead
        entry = LedgerEntry(
            decision.assignment,
            attempt,
            load,
            commit.epoch,
            commit.round,
            deadline=wall + BINDING_WINDOW,
            window=BINDING_WINDOW,
            assumed_at=wall,
        )
        uid = decision.uid
        self._entries[uid] = entry
        self._doubts.pop(uid, None)
        self._put_off(uid, now + BINDING_WINDOW)
        return entry

    def change(self, entry: LedgerEntry) -> None:
        """Of an attempt that stands here; its window stays."""
        self._entries[entry.uid] = entry

    def bind(self, entry: LedgerEntry, now: float) -> LedgerEntry:
        """It is bound. If the watch does not show it, look it up soon, however long a binder had to wait with it."""
        bound = self._entries[entry.uid] = msgspec.structs.replace(entry, bound=True)
        if self._deadlines.get(entry.uid, math.inf) > now + BINDING_WINDOW:
            self._put_off(entry.uid, now + BINDING_WINDOW)
        return bound

    def extend(self, entry: LedgerEntry, wait: float, now: float) -> LedgerEntry:
        """A binder waits with it for so many seconds, bounded here, and has a whole window after that."""
        window = bounded(wait) + BINDING_WINDOW
        deadline = now + window
        extended = msgspec.structs.replace(entry, deadline=deadline + self.ahead, window=window)
        self._entries[entry.uid] = extended
        self._put_off(entry.uid, deadline)
        return extended

    def doubt(self, uid: str, doubt: Doubt, now: float) -> None:
        """It is being fenced, and not to be given to binders any more. A reason that is known already stays."""
        self._doubts.setdefault(uid, doubt)
        self._set_due(uid, now + LOOK_UP_AGAIN)

    def doubted(self, uid: str) -> Doubt | None:
        return self._doubts.get(uid)

    def take(self, uid: str) -> LedgerEntry | None:
        self._deadlines.pop(uid, None)
        self._doubts.pop(uid, None)
        self._due_at.pop(uid, None)
        return self._entries.pop(uid, None)

    def find(self, uid: str, attempt: int) -> LedgerEntry | None:
        """What stands here for this attempt; None once its outcome is known, or another has begun."""
        entry = self._entries.get(uid)
        return None if entry is None or entry.attempt != attempt else entry

    def order(self, attempt: Attempt, epoch: int, now: float) -> BindingOrder | None:
        """As a binder is to have it now; None if no binder is to have it any more. `epoch`: that of the snapshot."""
        entry = self.find(*attempt)
        if entry is None or entry.bound or entry.uid in self._doubts:
            return None
        left = self._deadlines.get(entry.uid, now) - now
        return None if left <= 0 else BindingOrder(entry.assignment, epoch, entry.attempt, left)

    # Time

    def due_in(self, uid: str, now: float) -> float:
        """Seconds until it is looked up."""
        return self._due_at.get(uid, now) - now

    def next_due(self) -> float | None:
        while self._due and self._due_at.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def due(self, now: float) -> Iterator[LedgerEntry]:
        """Those whose time has passed; each is to be doubted."""
        while (at := self.next_due()) is not None and at <= now:
            yield self._entries[heapq.heappop(self._due)[1]]

    def _put_off(self, uid: str, deadline: float) -> None:
        self._deadlines[uid] = deadline
        if uid not in self._doubts:
            self._set_due(uid, deadline + LOOK_UP_GRACE)

    def _set_due(self, uid: str, at: float) -> None:
        self._due_at[uid] = at
        heapq.heappush(self._due, (at, uid))

    def validate(self) -> None:
        waiting = set(self._due)
        if any((at, uid) not in waiting for uid, at in self._due_at.items()):
            raise InvariantBroken("an entry of the ledger is never looked up")
        if not self._deadlines.keys() == self._due_at.keys() <= self._entries.keys() >= self._doubts.keys():
            raise InvariantBroken("something is known of an attempt that is not in the ledger")


def bounded(wait: float) -> float:
    """How long a binder may wait at a time, whatever number it says."""
    return wait if 0.0 <= wait <= LONGEST_WAIT else LONGEST_WAIT
