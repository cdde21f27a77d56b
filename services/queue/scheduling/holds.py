"""Since when members of pod groups are held, and when their owners are notified.

Until then a group has a short time in which its controller may create the other pods; after that one of those held gets
an Event.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush

from services.queue.scheduling.group_info import GroupInfo, MemberState
from shared.errors import InvariantBroken
from shared.model.objects import GroupRef

FIRST_EVENT = 2.0
"""Seconds that a group's controller may take to create all its pods, until one of those held gets a first Event."""


class Holds:
    def __init__(self) -> None:
        self.since: dict[str, float] = {}
        """By uid, of all held members."""
        self._first_events: dict[GroupRef, float] = {}
        """When groups with held members get their first Event; in order of time, removed once they did."""
        self._deadlines: dict[str, float] = {}
        """When the owners of held members are notified; removed once they are."""
        self._heap: list[tuple[float, str]] = []

    def begin(self, uid: str, group: GroupInfo, now: float) -> None:
        """The member is held, and counted as such."""
        if group.counts[MemberState.HELD] == 1:
            self._first_events[group.ref] = now + FIRST_EVENT
        self.since[uid] = now
        self._set_deadline(uid, group)

    def end(self, uid: str, group: GroupInfo) -> None:
        if not group.counts[MemberState.HELD]:
            self._first_events.pop(group.ref, None)
        del self.since[uid]
        self._deadlines.pop(uid, None)
        if not self.since:
            self._heap.clear()

    def update(self, group: GroupInfo) -> None:
        """The group's time-out may have changed."""
        if group.counts[MemberState.HELD]:
            for uid in group.pods:
                if uid in self._deadlines and self._deadlines[uid] != self.since[uid] + group.timeout:
                    self._set_deadline(uid, group)

    def overdue(self, now: float) -> Iterator[str]:
        """Members whose owners are to be notified, once for each time that they are held."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            uid = heappop(self._heap)[1]
            del self._deadlines[uid]
            yield uid

    def due_first_events(self, now: float) -> Iterator[GroupRef]:
        while (at := self.next_first_event()) is not None and at <= now:
            ref = next(iter(self._first_events))
            del self._first_events[ref]
            yield ref

    def is_unknown(self, uid: str) -> bool:
        """Whether the member's owner has not been notified yet."""
        return uid in self._deadlines

    def next_first_event(self) -> float | None:
        return next(iter(self._first_events.values()), None)

    def next_deadline(self) -> float | None:
        heap = self._heap
        while heap and self._deadlines.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def _set_deadline(self, uid: str, group: GroupInfo) -> None:
        self._deadlines[uid] = deadline = self.since[uid] + group.timeout
        heappush(self._heap, (deadline, uid))

    def validate(self, held: AbstractSet[str], groups: AbstractSet[GroupRef]) -> None:
        """`held`: all held members, and the groups that they are of."""
        if not self._first_events.keys() <= groups:
            raise InvariantBroken(f"groups get an Event about held members, and have none: {self._first_events}")
        if self._heap and not held:
            raise InvariantBroken(f"no member is held, and deadlines are left: {self._heap}")
        if held != set(self.since) or not self._deadlines.keys() <= held:
            raise InvariantBroken(f"held: {sorted(held)}, since: {self.since}, deadlines: {self._deadlines}")
