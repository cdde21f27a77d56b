"""The record and story of each pod, and statistics over all of them."""

import math
from array import array
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime

from testing.auditor.usage import Demand

MAX_STORY = 16
"""Lines of a pod's story: the first and the latest ones."""
MAX_GONE = 4096
"""Deleted pods whose stories are kept."""


@dataclass(slots=True)
class Assumed:
    """A ledger entry of a pod, and when it was first seen."""

    attempt: int
    node: str
    since: float


@dataclass(slots=True, eq=False)
class PodRecord:
    """`ours`: for one of the audited schedulers. `decided`: bound by a scheduler, not created with a node."""

    uid: str
    key: str
    ours: bool
    waits_since: float
    demand: Demand
    resource_version: int = 0
    node: str = ""
    bound_at: float | None = None
    decided: bool = False
    finished: bool = False
    terminating: bool = False
    gated: bool = False
    assumed: Assumed | None = None
    notes: list[tuple[float, str]] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether it occupies a node."""
        return bool(self.node) and not self.finished

    @property
    def waits(self) -> bool:
        """Whether our scheduler has yet to place it."""
        return self.ours and not self.node and not self.finished and not self.terminating

    def note(self, now: float, what: str) -> None:
        if len(self.notes) == MAX_STORY:
            del self.notes[1]
        self.notes.append((now, what))

    def story(self) -> tuple[str, ...]:
        return tuple(f"{clock(at)} {what}" for at, what in self.notes)


class Pods(dict[str, PodRecord]):
    """All pods by uid, and the stories of the most recently deleted ones."""

    def __init__(self) -> None:
        super().__init__()
        self._gone: dict[str, PodRecord] = {}
        self._order: deque[str] = deque()

    def remove(self, uid: str, now: float) -> PodRecord | None:
        record = self.pop(uid, None)
        if record is not None:
            record.note(now, "gone")
            self._gone[uid] = record
            self._order.append(uid)
            if len(self._order) > MAX_GONE:
                self._gone.pop(self._order.popleft(), None)
        return record

    def remembered(self, uid: str) -> PodRecord | None:
        """The record of a pod, even if it was deleted."""
        return self.get(uid) or self._gone.get(uid)


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]


@dataclass(frozen=True, slots=True)
class Counts:
    """`created` and `bound` count pods of our schedulers since the first listing; the rest is current."""

    created: int
    bound: int
    waiting: int
    gated: int
    pods: int
    nodes: int
    assumed: int
    events: int
    violations: int


class Statistics:
    """Latencies are from first seeing a pod without gates to seeing it bound."""

    def __init__(self) -> None:
        self.created = 0
        self.bound = 0
        self.first_created: float | None = None
        self.first_bound: float | None = None
        self.last_bound: float | None = None
        self._latencies = array("d")

    def on_created(self, now: float) -> None:
        self.created += 1
        if self.first_created is None:
            self.first_created = now

    def on_bound(self, waited: float | None, now: float) -> None:
        """`waited`: None if it was never seen waiting."""
        self.bound += 1
        if self.first_bound is None:
            self.first_bound = now
        self.last_bound = now
        if waited is not None:
            self._latencies.append(waited)

    @property
    def rate(self) -> float:
        """Pods bound a second, from the first creation to the last binding."""
        if self.first_created is None or self.last_bound is None or self.last_bound <= self.first_created:
            return 0.0
        return self.bound / (self.last_bound - self.first_created)

    def latency(self, quantile: float) -> float:
        """The given quantile of the latencies; 1 is the maximum."""
        if not self._latencies:
            return 0.0
        rank = math.ceil(quantile * len(self._latencies)) - 1
        return sorted(self._latencies)[max(rank, 0)]
