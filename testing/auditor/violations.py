"""Invariants and their violations, and the limits within which the auditor tolerates delays."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Invariant(StrEnum):
    BOUND_ONCE = "bound once"
    """A pod is bound to one node, once."""
    CAPACITY = "capacity"
    """The requests of all pods on a node, bound or assumed, are within its allocatable."""
    HOST_PORTS = "host ports"
    """No two pods on a node use the same host port."""
    CONSTRAINTS = "constraints"
    """A pod is bound to a node that admits it."""
    QUEUED_AND_BOUND = "queued and bound"
    """No pod is both bound and waiting in the queue."""
    ACCOUNTED_FOR = "accounted for"
    """The queue holds every unbound pod and nothing else."""
    LEDGER_ENDS = "ledger ends"
    """Every ledger entry ends."""
    PERMIT_ENDS = "permit ends"
    """Every wait for a permit ends."""
    ALL_BOUND = "all bound"
    """At the end every pod is bound, except those expected to be left."""


@dataclass(frozen=True, slots=True)
class Violation:
    """`pod` is its key, `story` what was seen of the pod, oldest first."""

    invariant: Invariant
    at: float
    what: str
    uid: str = ""
    pod: str = ""
    node: str = ""
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        subjects = (f"pod {self.pod} ({self.uid})" if self.uid else "", f"node {self.node}" if self.node else "")
        subject = ", ".join(part for part in subjects if part)
        first = f"{self.invariant}: {subject}: {self.what}" if subject else f"{self.invariant}: {self.what}"
        return "\n".join((first, *(f"    {line}" for line in self.story)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things may take before the auditor reports them."""

    lag: float = 5.0
    """Seconds by which one source may trail another. A decision may rest on a node as it was this long before the
    binding is seen, or as the auditor sees it this long after."""
    patience: float = 10.0
    """Seconds for the scheduler to react: a pod to enter or leave the queue, an entry to leave the ledger. A fault run
    sets it above the longest failover."""


class Debouncer(Generic[K]):
    """Confirms a key once it has looked wrong at every poll for `patience` seconds; reports each key once.

    What looks wrong at one poll may be a mere race.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[K, float] = {}
        self._reported: set[K] = set()

    def look(self, keys: Iterable[K], at: float) -> list[tuple[K, float]]:
        """Take the keys that look wrong at this poll; return those confirmed, and since when."""
        self._since = {key: self._since.get(key, at) for key in keys}
        self._reported &= self._since.keys()
        confirmed = [
            (key, since)
            for key, since in self._since.items()
            if since < at and at - since >= self._patience and key not in self._reported
        ]
        self._reported.update(key for key, _ in confirmed)
        return confirmed

    def clear(self) -> None:
        """Start over after a failed or untrusted poll. Reported keys stay reported."""
        self._since = dict.fromkeys(self._reported, float("-inf"))
