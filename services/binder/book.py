"""Which attempts there are, which there were, and when one of them has something to do on its own."""

import math
from collections import OrderedDict

from services.binder.binding.attempts import ENDS, MAYBE_BOUND, Attempt, Identity, State
from shared.errors import InvariantBroken
from shared.messages.binding import BindingOutcome, Withdraw
from shared.messages.state import BindingOrder

MOST_FINISHED = 8192
"""Attempts whose outcome is remembered, in case their order comes again."""
MOST_WITHDRAWN = 8192
"""Attempts that have been withdrawn and are not here: their order may be on its way."""


class Book:
    def __init__(self) -> None:
        self._held: dict[str, Attempt] = {}
        self._behind: dict[str, Attempt] = {}
        self._finished: OrderedDict[str, tuple[Identity, BindingOutcome | None]] = OrderedDict()
        """The oldest first, which a plain dict would search for. None where there is nothing to tell."""
        self._withdrawn: OrderedDict[tuple[str, int], Withdraw] = OrderedDict()
        self.alarm = math.inf
        """No attempt has anything to do on its own before this; it may ring for nothing, and never late."""

    def __len__(self) -> int:
        return len(self._held) + len(self._behind)

    def get(self, uid: str) -> Attempt | None:
        return self._held.get(uid)

    def find(self, uid: str, number: int) -> Attempt | None:
        """The attempt of this number, if it is the pod's at present."""
        attempt = self._held.get(uid)
        return attempt if attempt is not None and attempt.order.attempt == number else None

    def either(self, uid: str, number: int) -> Attempt | None:
        """The attempt of this number, also if it is behind another."""
        behind = self._behind.get(uid)
        return behind if behind is not None and behind.order.attempt == number else self.find(uid, number)

    def behind(self, uid: str) -> Attempt | None:
        return self._behind.get(uid)

    def attempts(self) -> list[Attempt]:
        """Those behind others last."""
        return [*self._held.values(), *self._behind.values()]

    def knows(self, order: BindingOrder) -> bool:
        """Whether this attempt or a newer one is here or has been."""
        identity = Identity(order.epoch, order.attempt)
        held, behind = self._held.get(order.uid), self._behind.get(order.uid)
        if held is not None and _repeats(identity, held.identity):
            return True
        if behind is not None and _repeats(identity, behind.identity):
            return True
        finished = self._finished.get(order.uid)
        return finished is not None and _repeats(identity, finished[0])

    def outcome(self, order: BindingOrder) -> BindingOutcome | None:
        """Of this attempt, if it is over, not forgotten, and there was any."""
        identity, outcome = self._finished.get(order.uid, (None, None))
        return outcome if identity is not None and identity.attempt == order.attempt else None

    def hold(self, attempt: Attempt) -> None:
        self._held[attempt.order.uid] = attempt

    def put_behind(self, attempt: Attempt) -> None:
        self._behind[attempt.order.uid] = attempt

    def drop(self, attempt: Attempt, outcome: BindingOutcome | None) -> Attempt | None:
        """It is over. Returns the attempt that was behind it, which is not held yet."""
        uid = attempt.order.uid
        self.remember(uid, attempt.identity, outcome)
        if self._behind.get(uid) is attempt:
            del self._behind[uid]
            return None
        del self._held[uid]
        return self._behind.pop(uid, None)

    def remember(self, uid: str, identity: Identity, outcome: BindingOutcome | None) -> None:
        """Of several attempts for a pod the newest is remembered, which may not be the last to end."""
        before = self._finished.pop(uid, None)
        if before is not None and identity < before[0]:
            identity, outcome = before
        self._finished[uid] = (identity, outcome)
        if len(self._finished) > MOST_FINISHED:
            self._finished.popitem(last=False)

    def withdraw(self, withdraw: Withdraw) -> None:
        """Of an attempt that is not here."""
        self._withdrawn[withdraw.uid, withdraw.attempt] = withdraw
        if len(self._withdrawn) > MOST_WITHDRAWN:
            self._withdrawn.popitem(last=False)

    def withdrawn(self, order: BindingOrder) -> Withdraw | None:
        return self._withdrawn.get((order.uid, order.attempt)) if self._withdrawn else None

    def ring(self, when: float) -> None:
        if when < self.alarm:
            self.alarm = when

    def set_alarm(self) -> None:
        """To the first that is needed, once what was due is done."""
        self.alarm = min((attempt.alarm for attempt in self.attempts()), default=math.inf)

    def validate(self) -> None:
        """Nothing that has ended is held, what is behind has something before it, and no alarm is missed."""
        for uid, attempt in self._behind.items():
            before = self._held.get(uid)
            if before is None or before.state not in MAYBE_BOUND:
                raise InvariantBroken(f"behind nothing. {attempt.tell()}")
            if attempt.state is not State.BEHIND or not before.identity < attempt.identity:
                raise InvariantBroken(f"behind, and should not be. {attempt.tell()}")
        for uid, attempt in self._held.items():
            if attempt.state in ENDS or attempt.state in (State.NEW, State.BEHIND):
                raise InvariantBroken(f"held, and should not be. {attempt.tell()}")
            if attempt.order.uid != uid or attempt.reserved != bool(attempt.framework.reserve):
                raise InvariantBroken(f"held under another uid, or nothing is reserved. {attempt.tell()}")
            if (attempt.state is State.WAITING) != bool(attempt.permit and attempt.permit.pending):
                raise InvariantBroken(f"waits for nobody, or the reverse. {attempt.tell()}")
        for attempt in self.attempts():
            if attempt.alarm < self.alarm:
                raise InvariantBroken(f"nobody will wake it. {attempt.tell()}")
        if len(self._finished) > MOST_FINISHED:
            raise InvariantBroken(f"{len(self._finished)} finished attempts are remembered")


def _repeats(identity: Identity, known: Identity) -> bool:
    """The same attempt may come from a later snapshot; another one of an earlier epoch or number is old."""
    return identity.attempt == known.attempt or identity < known
