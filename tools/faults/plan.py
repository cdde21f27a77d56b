"""Which faults are injected when: a pure function of the seed, the duration and the services.

Faults are dealt from a shuffled deck that holds every kind, so a run of some length meets all of them. Targets are
dealt likewise. Faults may overlap.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Fault(StrEnum):
    API_SLOW = "API server: slow"
    API_REFUSES = "API server: refuses connections"
    API_THROTTLES = "API server: answers 429"
    API_FAILS = "API server: answers 500"
    API_CONFLICTS = "API server: answers 409"
    API_MUTE = "API server: carries out requests, loses responses"
    WATCHES_END = "API server: drops all watches"
    API_RESTARTED = "API server: restarted with a compacted history"
    NATS_RESTARTED = "NATS: killed and restarted"
    NATS_DELAYED = "NATS: blocked, then delivered late"
    NATS_CUT = "NATS: blocked, then connections lost"
    REDIS_EMPTIED = "Redis: killed and restarted empty"
    REDIS_ROLLED_BACK = "Redis: killed and restarted with an earlier state"
    STATE_ROLLED_BACK = "Redis and snapshot: killed, Redis restarted with an earlier state"
    REDIS_HANGS = "Redis: hangs"
    KILLED = "killed"
    ENDED = "terminated"
    STOPPED = "paused"
    STALLED = "paused past its Lease"


DECK = {
    Fault.API_SLOW: 1,
    Fault.API_REFUSES: 1,
    Fault.API_THROTTLES: 1,
    Fault.API_FAILS: 1,
    Fault.API_CONFLICTS: 1,
    Fault.API_MUTE: 1,
    Fault.WATCHES_END: 1,
    Fault.API_RESTARTED: 1,
    Fault.NATS_RESTARTED: 1,
    Fault.NATS_DELAYED: 1,
    Fault.NATS_CUT: 1,
    Fault.REDIS_EMPTIED: 1,
    Fault.REDIS_ROLLED_BACK: 1,
    Fault.STATE_ROLLED_BACK: 1,
    Fault.REDIS_HANGS: 1,
    Fault.KILLED: 6,
    Fault.ENDED: 2,
    Fault.STOPPED: 3,
    Fault.STALLED: 2,
}
"""Cards of each kind in the deck."""
DURATIONS = {
    Fault.API_SLOW: (1.0, 4.0),
    Fault.API_REFUSES: (0.5, 4.0),
    Fault.API_THROTTLES: (1.0, 4.0),
    Fault.API_FAILS: (1.0, 4.0),
    Fault.API_CONFLICTS: (1.0, 4.0),
    Fault.API_MUTE: (0.5, 2.0),
    Fault.API_RESTARTED: (0.2, 3.0),
    Fault.NATS_RESTARTED: (0.1, 2.0),
    Fault.NATS_DELAYED: (1.0, 6.0),
    Fault.NATS_CUT: (1.0, 6.0),
    Fault.REDIS_EMPTIED: (0.1, 2.0),
    Fault.REDIS_ROLLED_BACK: (0.5, 3.0),
    Fault.STATE_ROLLED_BACK: (0.5, 3.0),
    Fault.REDIS_HANGS: (1.0, 6.0),
    Fault.STOPPED: (0.5, 6.0),
    Fault.STALLED: (9.5, 13.0),
}
"""Minimum and maximum seconds of faults that last."""
CALLS = {
    "all calls": ("*", ""),
    "bindings": ("POST", r"/binding$"),
    "half of the bindings": ("POST", r"[13579bdf]/binding$"),
    "pods' statuses": ("PATCH", r"/pods/[^/]+/status$"),
    "Leases": ("*", r"/leases(/|$)"),
    "Events": ("*", r"/events(/|$)"),
    "lists and watches": ("GET", r"/[a-z]+$"),
    "evictions": ("*", r"/eviction$|/pods/[^/]+$"),
}
"""Method and path (a regular expression) of the calls that a fault of the API server may affect."""
OF_CALLS = frozenset({Fault.API_SLOW, Fault.API_THROTTLES, Fault.API_FAILS, Fault.API_CONFLICTS, Fault.API_MUTE})
OF_SERVICES = frozenset({Fault.KILLED, Fault.ENDED, Fault.STOPPED, Fault.STALLED})
OF_LINKS = frozenset({Fault.NATS_DELAYED, Fault.NATS_CUT})
MAX_BLOCKED = 3
"""Services that lose NATS at the same time."""
MEAN_GAP = 1.25
"""Average seconds between faults; less in short runs, so that these meet some as well."""
MIN_GAP = 0.5
MIN_FAULTS = 48
"""Faults in every run that is long enough for them at the minimum gap."""
MIN_DURATION = 0.1


@dataclass(frozen=True, slots=True)
class Injection:
    """`targets`: services, or calls; may be empty. `seconds`: 0 for a momentary fault."""

    at: float
    fault: Fault
    targets: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        targets = ", ".join(self.targets)
        if self.fault in OF_SERVICES:
            what = f"{targets}: {self.fault}"
        else:
            what = f"{self.fault} ({targets})" if targets else str(self.fault)
        return f"{what}, for {self.seconds:.1f} s" if self.seconds else what


def plan(seed: int, seconds: float, services: Sequence[str]) -> list[Injection]:
    """The injections in order of time. All faults are over after `seconds`, apart from restarts."""
    chance = Random(f"faults {seed}")
    deck, calls = _deal(chance, _cards()), _deal(chance, list(CALLS))
    victims, cut = _deal(chance, list(services)), _deal(chance, list(services))
    mean = max(MIN_GAP, min(MEAN_GAP, seconds / MIN_FAULTS))
    injections: list[Injection] = []
    at = _gap(chance, mean)
    while at < seconds - MIN_DURATION:
        fault = next(deck)
        lasts = round(min(chance.uniform(*DURATIONS.get(fault, (0.0, 0.0))), seconds - at), 2)
        injections.append(Injection(round(at, 2), fault, _targets(chance, fault, (calls, victims, cut)), lasts))
        at += _gap(chance, mean)
    return injections


def _cards() -> list[Fault]:
    return [fault for fault, count in DECK.items() for _ in range(count)]


def _gap(chance: Random, mean: float) -> float:
    return chance.uniform(0.3, 1.7) * mean


def _targets(chance: Random, fault: Fault, dealt: tuple[Iterator[str], ...]) -> tuple[str, ...]:
    calls, victims, cut = dealt
    if fault in OF_CALLS:
        return (next(calls),)
    if fault in OF_SERVICES:
        return (next(victims),)
    if fault in OF_LINKS:
        return tuple(sorted({next(cut) for _ in range(chance.randint(1, MAX_BLOCKED))}))
    return ()


def _deal(chance: Random, cards: list[T]) -> Iterator[T]:
    """Endlessly; the deck is reshuffled whenever it is exhausted."""
    while True:
        yield from chance.sample(cards, len(cards))
