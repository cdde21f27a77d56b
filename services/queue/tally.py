"""What has been counted so far, for metrics."""

from collections import Counter, deque
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from services.queue.places import Place
from shared.errors import InvariantBroken

MOST_HINTS = 1 << 14


class Result(StrEnum):
    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


QUEUES: dict[Place, str] = {
    Place.ACTIVE: "active",
    Place.BACKOFF: "backoff",
    Place.ERROR_BACKOFF: "backoff",
    Place.UNSCHEDULABLE: "unschedulable",
    Place.GATED: "unschedulable",
}
"""What kube-scheduler calls a place when it counts what comes in."""


class HintTaken(NamedTuple):
    """`answer`: Queue, QueueSkip or Error."""

    plugin: str
    event: str
    answer: str
    seconds: float


class Tally:
    def __init__(self) -> None:
        self.incoming: Counter[tuple[Place, str]] = Counter()
        """(place, why) -> pods that came there; only places that have a queue's name count."""
        self.attempts: Counter[tuple[Result, str]] = Counter()
        """(result, profile)"""
        self.rejecting: Counter[tuple[str, str]] = Counter()
        """(plugin, profile) -> pods that it rejected and that have not been tried since"""
        self.scheduled_after_flush = 0
        """Pods that were bound by the attempt that nothing but the time limit gave them."""
        self.hints: deque[HintTaken] = deque(maxlen=MOST_HINTS)
        """What was asked of plugins lately, for whoever clears it."""
        self.refused = 0
        """Messages that were not taken."""

    def reject(self, plugins: Iterable[str], profile: str) -> None:
        for plugin in plugins:
            self.rejecting[plugin, profile] += 1

    def clear(self, plugins: Iterable[str], profile: str) -> None:
        for plugin in plugins:
            self.rejecting[plugin, profile] -= 1

    def validate(self, rejecting: Iterable[tuple[str, str]]) -> None:
        """`rejecting`: (plugin, profile) of every pod that a plugin has rejected."""
        if +self.rejecting != Counter(rejecting) or min(self.rejecting.values(), default=0) < 0:
            raise InvariantBroken("rejecting plugins are not counted right")
