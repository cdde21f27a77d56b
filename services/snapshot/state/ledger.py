"""The assume ledger: the pods that are assumed and that the watch has not shown on their nodes.

    assume -> ASSUMED --binding finished--> BOUND --seen by the watch--> gone
                 |                            |
                 +--failed, or deadline ------+--not seen in time--> FENCING --bound there, forgotten--> gone

Only the ledger knows how long an attempt may take. Orders carry what is left of that time; Redis has times for people
only, and a new term gives each entry a whole window again. A deadline that passes frees nothing: the attempt is fenced
first.
"""

import heapq
from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from shared.errors import InvariantBroken
from shared.messages.binding import LONGEST_WAIT, OVERDUE
from shared.messages.queue import ForgottenPod
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


class _Attempt(msgspec.Struct, gc=False):
    """`deadline`: None for an entry of an earlier term before `begin`.

    `failure`: of an attempt that is being fenced, in case the pod is not bound.
    """

    entry: LedgerEntry
    state: EntryState
    deadline: float | None = None
    due_at: float | None = None
    failure: ForgottenPod | None = None

    def move(self, state: EntryState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantBroken(f"ledger entry of pod {self.entry.uid}: from {self.state} to {state}")
        self.state = state


class Ledger:
    """`ahead`: seconds from the clock of deadlines to Unix time."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._attempts: dict[str, _Attempt] = {}
        self._due: list[tuple[float, str]] = []
        """Also has times that do not count any more."""

    def __len__(self) -> int:
        return len(self._attempts)

    def __iter__(self) -> Iterator[LedgerEntry]:
        return (each.entry for each in self._attempts.values())

    def get(self, uid: str) -> LedgerEntry | None:
        attempt = self._attempts.get(uid)
        return None if attempt is None else attempt.entry

    def restore(self, entry: LedgerEntry) -> None:
        """Adds an entry of an earlier term, which has no window before `begin`."""
        self._attempts[entry.uid] = _Attempt(entry, E.BOUND if entry.bound else E.ASSUMED)

    def begin(self, now: float) -> None:
        """Gives each restored entry a whole window."""
        for attempt in self._attempts.values():
            if attempt.deadline is None:
                self._set_deadline(attempt, now + BINDING_WINDOW)

    def assume(self, decision: Decision, load: PodLoad, commit: Commit, attempt: int, now: float) -> LedgerEntry:
        """Begins a new attempt, in place of an earlier one if there is any."""
        wall = now + self.ahead
        entry = LedgerEntry(
            decision.assignment,
            attempt,
            load,
            commit.epoch,
            commit.number,
            deadline=wall + BINDING_WINDOW,
            window=BINDING_WINDOW,
            assumed_at=wall,
        )
        begun = self._attempts[entry.uid] = _Attempt(entry, E.ASSUMED)
        self._set_deadline(begun, now + BINDING_WINDOW)
        return entry

    def set_version(self, entry: LedgerEntry, version: str) -> LedgerEntry:
        """From now on orders of this attempt name this version of the pod."""
        assignment = msgspec.structs.replace(entry.assignment, version=version)
        changed = self._attempts[entry.uid].entry = msgspec.structs.replace(entry, assignment=assignment)
        return changed

    def bind(self, entry: LedgerEntry, now: float) -> None:
        """The pod is bound. If the watch does not show it, it is looked up soon, however long a binder may wait."""
        attempt = self._attempts[entry.uid]
        if attempt.state is not E.FENCING:
            attempt.move(E.BOUND)
        attempt.entry = msgspec.structs.replace(entry, bound=True)
        if attempt.deadline is None or attempt.deadline > now + BINDING_WINDOW:
            self._set_deadline(attempt, now + BINDING_WINDOW)

    def extend(self, entry: LedgerEntry, wait: float, now: float) -> LedgerEntry:
        """A binder waits for `wait` seconds, at most LONGEST_WAIT, and has a whole window after that."""
        window = bounded(wait) + BINDING_WINDOW
        extended = msgspec.structs.replace(entry, deadline=now + window + self.ahead, window=window)
        attempt = self._attempts[entry.uid]
        attempt.entry = extended
        self._set_deadline(attempt, now + window)
        return extended

    def fence(self, failure: ForgottenPod, now: float) -> None:
        """The attempt is being fenced. A failure that is known already stays."""
        attempt = self._attempts[failure.uid]
        if attempt.failure is None:
            attempt.move(E.FENCING)
            attempt.failure = failure
        if attempt.deadline is None:
            attempt.deadline = now  # a new term may hear of the failure before it begins its windows
        self._set_due(attempt, now + FENCE_AGAIN)

    def failure(self, uid: str) -> ForgottenPod:
        return self._attempts[uid].failure or ForgottenPod(uid, OVERDUE)

    def remove(self, uid: str) -> LedgerEntry | None:
        attempt = self._attempts.pop(uid, None)
        if attempt is None:
            return None
        attempt.move(E.GONE)
        return attempt.entry

    def find(self, uid: str, attempt: int) -> LedgerEntry | None:
        """The entry of this attempt; None once its outcome is known, or another attempt has begun."""
        found = self._attempts.get(uid)
        return None if found is None or found.entry.attempt != attempt else found.entry

    def find_unbound(self, uid: str, attempt: int) -> LedgerEntry | None:
        entry = self.find(uid, attempt)
        return None if entry is None or entry.bound else entry

    def order(self, key: AttemptKey, epoch: int, now: float) -> BindingOrder | None:
        """The order as a binder must have it now; None if no binder must have it. `epoch`: the snapshot's."""
        uid, number = key
        attempt = self._attempts.get(uid)
        if attempt is None or attempt.entry.attempt != number or attempt.state is not E.ASSUMED:
            return None
        left = 0.0 if attempt.deadline is None else attempt.deadline - now
        return None if left <= 0 else BindingOrder(attempt.entry.assignment, epoch, number, left)

    # Time

    def due_in(self, uid: str, now: float) -> float:
        """Seconds until the attempt is fenced."""
        due_at = self._attempts[uid].due_at
        return 0.0 if due_at is None else due_at - now

    def next_due(self) -> float | None:
        while self._due:
            at, uid = self._due[0]
            attempt = self._attempts.get(uid)
            if attempt is not None and attempt.due_at == at:
                return at
            heapq.heappop(self._due)
        return None

    def due(self, now: float) -> Iterator[LedgerEntry]:
        """Entries whose time has passed; each must be fenced."""
        while (at := self.next_due()) is not None and at <= now:
            yield self._attempts[heapq.heappop(self._due)[1]].entry

    def _set_deadline(self, attempt: _Attempt, deadline: float) -> None:
        attempt.deadline = deadline
        if attempt.failure is None:
            self._set_due(attempt, deadline + FENCE_GRACE)

    def _set_due(self, attempt: _Attempt, at: float) -> None:
        attempt.due_at = at
        heapq.heappush(self._due, (at, attempt.entry.uid))

    def validate(self) -> None:
        waiting = set(self._due)
        for uid, attempt in self._attempts.items():
            if attempt.due_at is not None and (attempt.due_at, uid) not in waiting:
                raise InvariantBroken("a ledger entry is never fenced")
            if (attempt.due_at is None) != (attempt.deadline is None):
                raise InvariantBroken("a ledger entry has a deadline, and is never due, or the reverse")
            if (attempt.failure is None) != (attempt.state is not E.FENCING):
                raise InvariantBroken("the failures are not those of the attempts that are being fenced")


def bounded(wait: float) -> float:
    """How long a binder may wait at a time, regardless of the number it reports."""
    return wait if 0.0 <= wait <= LONGEST_WAIT else LONGEST_WAIT
