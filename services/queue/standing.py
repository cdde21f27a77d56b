"""Where the members of a group stand, and what that means for the group."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from services.queue.places import Place
from services.queue.scheduling.queued_pod_info import Entry
from shared.framework.status import Status, unresolvable
from shared.model.objects import GroupApi, GroupRef, PodGroup

PLUGINS: Mapping[GroupApi, str] = {GroupApi.SCHEDULING: "GangScheduling", GroupApi.COSCHEDULING: "Coscheduling"}
"""What is said to hold a member."""
HOLDERS = frozenset(PLUGINS.values())
"""Gates that no event of the cluster opens: what they wait for happens to members and groups, and shows in Gangs."""
PATIENCE = 60.0
"""Seconds until the owner of a held pod is told, if its group does not say."""


class Stand(Enum):
    READY = "ready"
    HELD = "held"
    BLOCKED = "blocked"
    AWAY = "away"
    PLACED = "placed"

    __hash__ = object.__hash__  # counted at every move, and an Enum's own is slow


def stand_of(entry: Entry) -> Stand | None:
    """None where it does not count: it is only just coming, or has left."""
    if entry.place is Place.GATED:
        return Stand.HELD if entry.gate in HOLDERS else Stand.BLOCKED
    return _STANDS.get(entry.place)


_STANDS: Mapping[Place, Stand] = {
    Place.ACTIVE: Stand.READY,
    Place.BACKOFF: Stand.READY,
    Place.ERROR_BACKOFF: Stand.READY,
    Place.UNSCHEDULABLE: Stand.READY,
    Place.IN_FLIGHT: Stand.AWAY,
    Place.BINDING: Stand.PLACED,
}


@dataclass(slots=True, eq=False)
class Group:
    ref: GroupRef
    told: PodGroup | None = None
    """None while there is no such object."""
    entries: dict[str, Entry] = field(default_factory=dict)
    """The members that the queue has; others are on nodes."""
    counts: dict[Stand, int] = field(default_factory=lambda: dict.fromkeys(Stand, 0))

    @property
    def least(self) -> int:
        return 0 if self.told is None else self.told.least

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def missing(self) -> int:
        """So many more must find a place; at most one: each goes by itself."""
        return max(self.least - self.counts[Stand.PLACED], 0)

    @property
    def can_go(self) -> bool:
        """Whether those who are held should be let go."""
        return self.told is not None and self.counts[Stand.READY] + self.counts[Stand.HELD] >= self.missing

    @property
    def patience(self) -> float:
        return PATIENCE if self.told is None else self.told.timeout or PATIENCE


def no_group(ref: GroupRef) -> Status:
    why = f'waiting for pods\'s pod group "{ref.name}" to appear in scheduling queue'
    return unresolvable(why).by(PLUGINS[ref.api])


def not_ready(ref: GroupRef) -> Status:
    return unresolvable("waiting for pods from a gang that cannot be scheduled yet").by(PLUGINS[ref.api])


def too_few(ref: GroupRef) -> Status:
    count = "minCount" if ref.api is GroupApi.SCHEDULING else "minMember"
    return unresolvable(f"waiting for {count} pods from a gang to appear in scheduling queue").by(PLUGINS[ref.api])


def reproach(group: Group, seconds: float) -> str:
    """What the owner of a held pod is told."""
    counts = group.counts
    if group.told is None:
        why = "there is no such object"
    elif group.total < group.least:
        why = f"{group.total} of its pods are there, and none is scheduled before there are {group.least}"
    else:
        out = f"{counts[Stand.BLOCKED]} of them are kept out by their gates"
        why = f"{group.missing} more of its pods must be scheduled together, but {out}"
    return f"waiting for pod group {group.ref} since {seconds:.0f} s: {why}"
