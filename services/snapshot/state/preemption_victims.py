"""The victims of preemptions: they count as terminating before the API server shows it.

    victim --shown as terminating, or gone--> no longer kept here
       +--not evicted after all, or not shown for too long--> as before

Otherwise a preemptor that is retried too early would find further victims.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from services.snapshot.state.ledger import Ledger
from services.snapshot.state.nominator import Nomination
from shared.errors import InvariantBroken
from shared.messages.binding import Displaced, Evict
from shared.messages.limits import PREEMPTION_TIMEOUT
from shared.messages.preemption import Victim
from shared.messages.state import Nominate
from shared.model.load import PodLoad

VICTIM_SECONDS = PREEMPTION_TIMEOUT - 5
"""For so long a victim counts as terminating: less than the queue holds its preemptor back."""
EVICTION_WINDOW = VICTIM_SECONDS - 5
"""Seconds that a binder has for an eviction: less than the queue holds the preemptor back."""


class _Victim(msgspec.Struct, gc=False):
    """`load`: without the eviction."""

    preemptor: str
    load: PodLoad
    until: float


class PreemptionVictims:
    def __init__(self) -> None:
        self._victims: dict[str, _Victim] = {}
        """In the order in which they expire."""

    def add(self, uid: str, preemptor: str, load: PodLoad, now: float) -> PodLoad:
        """Returns the victim's load from now on."""
        before = self._victims.pop(uid, None)
        real = load if before is None else before.load
        self._victims[uid] = _Victim(preemptor, real, now + VICTIM_SECONDS)
        return _terminating(real)

    def observe(self, uid: str, load: PodLoad) -> PodLoad:
        """The watch shows a pod with this load. Returns the load that counts."""
        victim = self._victims.get(uid)
        if victim is None:
            return load
        if load.preempted:
            del self._victims[uid]
            return load
        victim.load = load
        return _terminating(load)

    def forget(self, uid: str) -> None:
        self._victims.pop(uid, None)

    def spare(self, preemptor: str) -> list[tuple[str, PodLoad]]:
        """The eviction failed: returns the victims that do not show it, with their loads."""
        spared = [uid for uid, victim in self._victims.items() if victim.preemptor == preemptor]
        return [(uid, self._victims.pop(uid).load) for uid in spared]

    def expire(self, now: float) -> Iterator[tuple[str, PodLoad]]:
        while (due := self.next_due) is not None and due <= now:
            uid = next(iter(self._victims))
            yield uid, self._victims.pop(uid).load

    @property
    def next_due(self) -> float | None:
        return next((victim.until for victim in self._victims.values()), None)

    def validate(self) -> None:
        times = [victim.until for victim in self._victims.values()]
        if times != sorted(times):
            raise InvariantBroken("victims are not in the order in which they expire")


def evicts(nominate: Nominate) -> bool:
    """Whether victims must be evicted. The cycle expects an Evict if, and only if, this is so."""
    return any(not victim.terminating for victim in nominate.victims)


def evict_of(
    nominate: Nominate,
    epoch: int,
    attempt: int,
    ledger: Ledger,
    losers: Sequence[tuple[str, Nomination]],
    violated_by: Callable[[Victim], tuple[str, ...]],
) -> Evict:
    """`losers`: pods that lose their nomination to this one. `violated_by`: the budgets that a victim violates."""
    victims: list[Displaced] = []
    for victim in nominate.victims:
        if not victim.terminating:
            entry = ledger.get(victim.uid)
            assumed_by = 0 if entry is None or entry.bound else entry.attempt
            victims.append(_displaced(victim.uid, victim.key, assumed_by, violated_by(victim)))
    of = nominate.assignment
    return Evict(
        epoch,
        attempt,
        of.uid,
        of.namespace,
        of.name,
        of.profile,
        of.node,
        victims,
        denominated=[_displaced(uid, nomination.key) for uid, nomination in losers],
        window=EVICTION_WINDOW,
        gang=nominate.gang,
    )


def _displaced(uid: str, key: str, attempt: int = 0, violates: tuple[str, ...] = ()) -> Displaced:
    namespace, _, name = key.partition("/")
    return Displaced(uid, namespace, name, attempt, violates)


def _terminating(load: PodLoad) -> PodLoad:
    return msgspec.structs.replace(load, preempted=True)
