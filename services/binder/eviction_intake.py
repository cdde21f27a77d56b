"""Which evictions a binder takes: a gang's only if those of a largest gang fit, and none after its first refusal.

A gang needs all of its victims gone. If a binder that is full evicted some of them and refused the others, those
evictions would be wasted. The evictions for a gang come one by one, and a binder does not know how many it will get. So
the first one decides whether the gang is taken.
"""

from shared.bounded import BoundedDict
from shared.messages.binding import Evict
from shared.messages.limits import MAX_GANG

MAX_WAITING = 1024
"""Evictions that wait to begin, beside those for gangs."""
MAX_FOR_GANGS = 2 * MAX_GANG
"""Evictions for gangs that wait to begin: a gang is taken while no more than half of them wait."""
MAX_GANGS = 4096
"""Gangs of which it is remembered whether they were taken."""

LEAVING = "the binder is leaving"

Gang = tuple[str, int]
"""Its name, and the number that the nominations of its members have in common."""


def gang_of(evict: Evict) -> Gang | None:
    return (evict.gang, evict.attempt) if evict.gang else None


class EvictionIntake:
    """Knows the evictions that wait to begin, by number only."""

    def __init__(self) -> None:
        self.waiting = 0
        """For single pods."""
        self.waiting_for_gangs = 0
        self._leaving = False
        self._why_not: BoundedDict[Gang, str] = BoundedDict(MAX_GANGS)
        """Why a gang was refused; empty if it was taken."""
        self._begun: BoundedDict[Gang, None] = BoundedDict(MAX_GANGS)

    def refusal(self, evict: Evict) -> str:
        """Why the eviction is refused; empty if it is taken, and waits from now on."""
        gang = gang_of(evict)
        why = self._refusal() if gang is None else self._refusal_for(gang)
        if not why:
            self._count(gang, 1)
        return why

    def begins(self, evict: Evict) -> None:
        """The eviction does not wait any more."""
        gang = gang_of(evict)
        self._count(gang, -1)
        if gang is not None:
            self._begun[gang] = None

    def gives_up(self, evict: Evict) -> None:
        """The eviction ends before it begins."""
        self._count(gang_of(evict), -1)

    def refuse(self, gang: Gang, why: str) -> None:
        """Takes no more evictions for this gang."""
        self._why_not[gang] = why

    def leave(self) -> None:
        """Takes no further gangs, and nothing for single pods."""
        self._leaving = True

    def has_begun(self, evict: Evict) -> bool:
        """Whether another eviction for the same gang has begun here."""
        return gang_of(evict) in self._begun

    def _refusal(self) -> str:
        if self._leaving:
            return LEAVING
        return f"{self.waiting} evictions wait already" if self.waiting >= MAX_WAITING else ""

    def _refusal_for(self, gang: Gang) -> str:
        why = self._why_not.get(gang)
        if why is None:
            why = LEAVING if self._leaving else ""
            if self.waiting_for_gangs > MAX_FOR_GANGS - MAX_GANG:
                why = f"{self.waiting_for_gangs} evictions for other gangs wait already"
        elif not why and self.waiting_for_gangs >= MAX_FOR_GANGS:  # more than any gang has: not from the snapshot
            return f"{self.waiting_for_gangs} evictions for gangs wait already"
        self._why_not[gang] = why
        return why

    def _count(self, gang: Gang | None, change: int) -> None:
        if gang is None:
            self.waiting += change
        else:
            self.waiting_for_gangs += change
