"""What the queue knows of one composite pod group: its object, and how many of its groups have come how far."""

from dataclasses import dataclass, field
from typing import NamedTuple

from services.queue.scheduling.queued_gang import QueuedGang
from shared.model.composite_groups import CompositePodGroup
from shared.model.objects import TopologyConstraint


class Progress(NamedTuple):
    """How far a group has come; each step implies the one before.

    `complete`: enough of its members exist, in any state. `can_start`: enough are placed, or wait for others only.
    `placed`: enough are placed.
    """

    complete: bool = False
    can_start: bool = False
    placed: bool = False


NOTHING = Progress()


@dataclass(slots=True, eq=False)
class CompositeInfo:
    """Its members are groups: `complete`, `can_start` and `placed` count those that have come so far."""

    key: str
    object: CompositePodGroup | None = None
    """None while there is no such object."""
    parent: "CompositeInfo | None" = None
    groups: int = 0
    complete: int = 0
    can_start: int = 0
    placed: int = 0
    shown: Progress = NOTHING
    """What its parent counts it as."""
    gang: QueuedGang = field(default_factory=QueuedGang)
    """The entry of all ready pods below it while its groups must be placed together."""

    @property
    def ref(self) -> str:
        return f"compositepodgroup.scheduling.k8s.io/{self.key}"

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    @property
    def least(self) -> int:
        return 1 if self.object is None else self.object.least

    @property
    def missing(self) -> int:
        """Groups still to be placed; if at most one, each goes by itself."""
        return max(self.least - self.placed, 0)

    @property
    def topology(self) -> tuple[TopologyConstraint, ...]:
        return () if self.object is None else self.object.topology

    @property
    def progress(self) -> Progress:
        if self.object is None:
            return NOTHING
        least = self.least
        return Progress(self.complete >= least, self.can_start >= least, self.placed >= least)

    def count(self, before: Progress, now: Progress) -> None:
        """One of its groups has moved on, or back."""
        self.complete += now.complete - before.complete
        self.can_start += now.can_start - before.can_start
        self.placed += now.placed - before.placed

    @property
    def shortage(self) -> str:
        """Why pods below it are held."""
        if self.complete < self.least:
            return (
                f"{self.complete} of the {self.groups} groups of composite pod group {self.name} have enough pods, "
                f"and at least {self.least} are needed"
            )
        return f"{self.missing} more groups of composite pod group {self.name} must be scheduled together"
