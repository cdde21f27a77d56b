"""Pods for which others are being told to go: none of them is tried before that is done, or has taken too long."""

from collections import OrderedDict
from collections.abc import Container
from enum import Enum, auto

from shared.errors import InvariantBroken
from shared.messages.binding import Evicted

PATIENCE = 30.0
"""Seconds after which a report is not waited for any longer."""
MOST_EARLY = 1 << 10
"""So many reports are remembered that came before it was known that they would."""
PREEMPTION = "DefaultPreemption"
"""The plugin that keeps such a pod out."""


class Report(Enum):
    """What is known of a preemption."""

    AWAITED = auto()
    DONE = auto()
    FAILED = auto()


class Preempting:
    def __init__(self) -> None:
        self._awaited: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """By uid, its number and until when it is waited for."""
        self._early: OrderedDict[str, Evicted] = OrderedDict()

    def __contains__(self, uid: str) -> bool:
        return uid in self._awaited

    def begin(self, uid: str, number: int, now: float) -> Report:
        early = self._early.pop(uid, None)
        if early is not None and early.attempt >= number:
            return _outcome(early)
        self._awaited.pop(uid, None)
        self._awaited[uid] = (number, now + PATIENCE)
        return Report.AWAITED

    def report(self, evicted: Evicted) -> Report:
        """AWAITED if it changes nothing, for now."""
        awaited = self._awaited.get(evicted.uid)
        if awaited is None:
            self._early[evicted.uid] = evicted
            if len(self._early) > MOST_EARLY:
                self._early.popitem(last=False)
            return Report.AWAITED
        if evicted.attempt < awaited[0]:
            return Report.AWAITED
        del self._awaited[evicted.uid]
        return _outcome(evicted)

    def end(self, uid: str) -> None:
        self._awaited.pop(uid, None)

    def overdue(self, now: float) -> str | None:
        """One that is not waited for any longer."""
        uid, (_, until) = next(iter(self._awaited.items()), ("", (0, now + 1)))
        if until > now:
            return None
        del self._awaited[uid]
        return uid

    def next_deadline(self) -> float | None:
        return next((until for _, until in self._awaited.values()), None)

    def validate(self, known: Container[str]) -> None:
        if unknown := [uid for uid in self._awaited if uid not in known]:
            raise InvariantBroken(f"preemptions of unknown pods: {unknown[:9]}")


def _outcome(evicted: Evicted) -> Report:
    return Report.FAILED if evicted.failure else Report.DONE
