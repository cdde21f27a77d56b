"""The assume ledger: the pods that are assumed and that the watch has not shown on their nodes.

    assume -> ASSUMED --binding finished--> BOUND --seen by the watch--> gone
                 |                            |
                 +--failed, or deadline ------+--not seen in time--> FENCING --bound there, forgotten--> gone

Only the ledger knows how long an attempt may take. Orders carry what is left of that time; Redis has times for people
only, and a new term gives each entry a whole window again. A deadline that passes frees nothing: the attempt is fenced
first.
"""

import heapq
import math
from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from shared.errors import InvariantBroken
from shared.messages.binding import LONGEST_WAIT
from shared.messages.state import BindingOrder, Commit, Decision, LedgerEntry
from shared.model.load import PodLoad

BINDING_WINDOW = 30.0
"""Seconds in which binders may bind an assumed pod, or report that they wait."""
FENCE_GRACE = 5.0
"""Seconds after the window until the attempt is fenced: a last call may still be answered, which costs less."""
FENCE_AGAIN = BINDING_WINDOW + FENCE_GRACE
"""Seconds after which an attempt is fenced again if the first time had no result."""

AttemptKey = tuple[str, int]
"""A pod's uid, and the number of the attempt."""


class EntryState(StrEnum):
    ASSUMED = "assumed"
    """A binder has the order, or will get it."""
    BOUND = "bound"
    """By a binder or the API server; the watch has not shown it."""
    FENCING = "fencing"
    """The API server is asked where the pod is, and fences the attempt; no binder gets the order."""
    GONE = "gone"
    """Seen on its node, bound elsewhere, or forgotten: not in the ledger any more."""


E = EntryState
TRANSITIONS: Mapping[EntryState, frozenset[EntryState]] = {
    E.ASSUMED: frozenset({E.BOUND, E.FENCING, E.GONE}),
    E.BOUND: frozenset({E.FENCING, E.GONE}),
    E.FENCING: frozenset({E.GONE}),
    E.GONE: frozenset(),
}


class Failure(msgspec.Struct, frozen=True, gc=False):
    """Why the pod is not bound, if that is what fencing finds."""

    reason: str = "the binding was not finished in time"
    plugin: str = ""
    rejected: bool = False


class Ledger:
    """`ahead`: seconds from the clock of deadlines to Unix time."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._entries: dict[str, LedgerEntry] = {}
        self._states: dict[str, EntryState] = {}
        self._deadlines: dict[str, float] = {}
        self._failures: dict[str, Failure] = {}
        """Of attempts that are being fenced."""
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
        """Adds an entry of an earlier term, which has no window before `begin`."""
        self._entries[entry.uid] = entry
        self._states[entry.uid] = E.BOUND if entry.bound else E.ASSUMED

    def begin(self, now: float) -> None:
        """Gives each restored entry a whole window."""
        for uid in self._entries.keys() - self._deadlines.keys():
            self._set_deadline(uid, now + BINDING_WINDOW)

    def assume(self, decision: Decision, load: PodLoad, commit: Commit, attempt: int, now: float) -> LedgerEntry:
        """Begins a new attempt, in place of an earlier one if there is any."""
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
        uid = decision.assignment.uid
        self._entries[uid] = entry
        self._states[uid] = E.ASSUMED
        self._failures.pop(uid, None)
        self._set_deadline(uid, now + BINDING_WINDOW)
        return entry

    def set_version(self, entry: LedgerEntry, version: str) -> LedgerEntry:
        """From now on orders of this attempt name this version of the pod."""
        assignment = msgspec.structs.replace(entry.assignment, version=version)
        changed = self._entries[entry.uid] = msgspec.structs.replace(entry, assignment=assignment)
        return changed

    def bind(self, entry: LedgerEntry, now: float) -> LedgerEntry:
        """The pod is bound. If the watch does not show it, it is looked up soon, however long a binder may wait."""
        if self._states[entry.uid] is not E.FENCING:
            self._move(entry.uid, E.BOUND)
        bound = self._entries[entry.uid] = msgspec.structs.replace(entry, bound=True)
        if self._deadlines.get(entry.uid, math.inf) > now + BINDING_WINDOW:
            self._set_deadline(entry.uid, now + BINDING_WINDOW)
        return bound

    def extend(self, entry: LedgerEntry, wait: float, now: float) -> LedgerEntry:
        """A binder waits for `wait` seconds, at most LONGEST_WAIT, and has a whole window after that."""
        window = bounded(wait) + BINDING_WINDOW
        extended = msgspec.structs.replace(entry, deadline=now + window + self.ahead, window=window)
        self._entries[entry.uid] = extended
        self._set_deadline(entry.uid, now + window)
        return extended

    def fence(self, uid: str, failure: Failure, now: float) -> None:
        """The attempt is being fenced. A failure that is known already stays."""
        if self._states[uid] is not E.FENCING:
            self._move(uid, E.FENCING)
        self._failures.setdefault(uid, failure)
        self._deadlines.setdefault(uid, now)  # a new term may hear of the failure before it begins its windows
        self._set_due(uid, now + FENCE_AGAIN)

    def failure(self, uid: str) -> Failure:
        return self._failures.get(uid) or Failure()

    def remove(self, uid: str) -> LedgerEntry | None:
        if uid in self._states:
            self._move(uid, E.GONE)
            del self._states[uid]
        self._deadlines.pop(uid, None)
        self._failures.pop(uid, None)
        self._due_at.pop(uid, None)
        return self._entries.pop(uid, None)

    def find(self, uid: str, attempt: int) -> LedgerEntry | None:
        """The entry of this attempt; None once its outcome is known, or another attempt has begun."""
        entry = self._entries.get(uid)
        return None if entry is None or entry.attempt != attempt else entry

    def find_unbound(self, uid: str, attempt: int) -> LedgerEntry | None:
        entry = self.find(uid, attempt)
        return None if entry is None or entry.bound else entry

    def order(self, key: AttemptKey, epoch: int, now: float) -> BindingOrder | None:
        """The order as a binder must have it now; None if no binder must have it. `epoch`: the snapshot's."""
        uid, attempt = key
        entry = self.find(uid, attempt)
        if entry is None or self._states[uid] is not E.ASSUMED:
            return None
        left = self._deadlines.get(uid, now) - now
        return None if left <= 0 else BindingOrder(entry.assignment, epoch, entry.attempt, left)

    # Time

    def due_in(self, uid: str, now: float) -> float:
        """Seconds until the attempt is fenced."""
        return self._due_at.get(uid, now) - now

    def next_due(self) -> float | None:
        while self._due and self._due_at.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def due(self, now: float) -> Iterator[LedgerEntry]:
        """Entries whose time has passed; each must be fenced."""
        while (at := self.next_due()) is not None and at <= now:
            yield self._entries[heapq.heappop(self._due)[1]]

    def _set_deadline(self, uid: str, deadline: float) -> None:
        self._deadlines[uid] = deadline
        if uid not in self._failures:
            self._set_due(uid, deadline + FENCE_GRACE)

    def _set_due(self, uid: str, at: float) -> None:
        self._due_at[uid] = at
        heapq.heappush(self._due, (at, uid))

    def _move(self, uid: str, state: EntryState) -> None:
        before = self._states[uid]
        if state not in TRANSITIONS[before]:
            raise InvariantBroken(f"ledger entry of pod {uid}: from {before} to {state}")
        self._states[uid] = state

    def validate(self) -> None:
        waiting = set(self._due)
        if any((at, uid) not in waiting for uid, at in self._due_at.items()):
            raise InvariantBroken("a ledger entry is never fenced")
        if not self._deadlines.keys() == self._due_at.keys() <= self._entries.keys() == self._states.keys():
            raise InvariantBroken("deadlines or states are kept of pods that are not in the ledger")
        if self._failures.keys() != {uid for uid, state in self._states.items() if state is E.FENCING}:
            raise InvariantBroken("the failures are not those of the attempts that are being fenced")


def bounded(wait: float) -> float:
    """How long a binder may wait at a time, regardless of the number it reports."""
    return wait if 0.0 <= wait <= LONGEST_WAIT else LONGEST_WAIT
