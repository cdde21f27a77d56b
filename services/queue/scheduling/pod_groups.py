"""Gangs: pods of a group of which so many must find a place that none may have one before.

Of each member it matters only where it stands:

    ready     active, backing off or unschedulable: it comes along when another member is drawn
    held      kept out here, for the sake of the others
    blocked   kept out by something else
    away      with cycle
    placed    decided, or seen on a node; also if another scheduler has put it there

A member is let in while its group exists and has members enough, wherever they stand. It is drawn together with all
that are ready, if they are enough to make up what is missing; else it is held. What is held is let go as soon as those
that are ready or held are enough, so nobody waits for who waits: whatever moves a member, comes here. Once no more than
one is missing, each member goes by itself.

Nothing is kept free for a member that is held, so there is no harm in its waiting for ever. When it has waited for as
long as its group says, its owner is told.
"""

from heapq import heappop, heappush
from typing import NamedTuple

from services.queue.scheduling.queued_pod_info import Entry
from services.queue.standing import Group, Stand, no_group, not_ready, reproach, stand_of, too_few
from shared.errors import InvariantBroken
from shared.framework.status import SUCCESS, Status
from shared.messages.queue import Gang
from shared.model.objects import GroupRef, Pod, PodGroup, group_of

MOST_TOGETHER = 1024
"""Pods that are handed out together, unless more are needed; the others follow. So many are decided at once."""
RELEASED = "GangChanged"
"""Why a member moves that is not held any more."""


class Drawn(NamedTuple):
    """Pods to be handed out next to each other; `gang` is None where the first goes by itself."""

    entries: list[Entry]
    gang: Gang | None = None


class Overdue(NamedTuple):
    """A held pod, and what its owner is to know."""

    entry: Entry
    message: str


class _Member(NamedTuple):
    group: Group
    stand: Stand


class Gangs:
    def __init__(self) -> None:
        self._groups: dict[GroupRef, Group] = {}
        self._members: dict[str, _Member] = {}
        self._to_release: dict[GroupRef, Group] = {}
        self._since: dict[str, float] = {}
        """Of those that are held."""
        self._due: dict[str, float] = {}
        """When their owners are to be told; told ones have none."""
        self._deadlines: list[tuple[float, str]] = []

    # What the watch tells of

    def observe(self, before: object, now: object) -> None:
        """A group, or a pod on a node, has come (`before` is None), changed or gone (`now` is). All else is nothing."""
        match before if now is None else now:
            case PodGroup() as group:
                self.lose(group.ref) if now is None else self.see(group)
            case Pod() as pod:
                self.gone(pod.uid) if now is None else self.on_node(pod.uid, group_of(pod))

    def see(self, told: PodGroup) -> None:
        group = self._group(told.ref)
        group.told = told
        self._look(group)
        self._put_off(group)

    def lose(self, ref: GroupRef) -> None:
        """There is no such object any more. Members that are drawn from now on are held."""
        group = self._groups.get(ref)
        if group is not None:
            group.told = None
            self._put_off(group)
            self._tidy(group)

    # Members

    def moved(self, entry: Entry, now: float) -> None:
        """The pod has come to its place, or has changed where it is.

        One that is in no group, and was in none, need not be told of.
        """
        uid, ref = entry.uid, group_of(entry.pod)
        known = self._members.get(uid)
        if (ref is None and known is None) or (known is not None and uid not in known.group.entries):
            return  # in no group; or on a node already, which counts more
        stand = stand_of(entry)
        if ref is None or stand is None:
            self._leave(uid)
            return
        if known is not None and known.group.ref != ref:
            self._leave(uid)
        group = self._group(ref)
        group.entries[uid] = entry
        self._put(uid, group, stand, now)

    def on_node(self, uid: str, ref: GroupRef | None) -> None:
        """A pod is seen on a node."""
        known = self._members.get(uid)
        if known is not None and known.group.ref != ref:
            self._leave(uid)
        if ref is not None:
            group = self._group(ref)
            group.entries.pop(uid, None)
            self._put(uid, group, Stand.PLACED, 0.0)

    def gone(self, uid: str) -> None:
        """A pod, on a node or not, is no more."""
        self._leave(uid)

    # Who may go

    def gate(self, entry: Entry) -> Status:
        """Whether the pod may be queued: its group must exist, and as many members as are to be placed."""
        ref = group_of(entry.pod)
        if ref is None:
            return SUCCESS
        group = self._groups.get(ref)
        if group is None or group.told is None:
            return no_group(ref)
        known = self._members.get(entry.uid)
        total = group.total + (known is None or known.group is not group)
        return too_few(ref) if total < group.least else SUCCESS

    def draw(self, first: Entry) -> Drawn | Status:
        """The pod with all that must come along, in the order in which they are to be decided; or why it is held."""
        known = self._members.get(first.uid)
        if known is None:
            return Drawn([first])
        group = known.group
        ref, missing = group.ref, group.missing
        if group.told is None:
            return no_group(ref)
        if missing <= 1:
            return Drawn([first])
        if group.total < group.least:
            return too_few(ref)
        if group.counts[Stand.READY] < missing:
            return not_ready(ref)
        members = self._members
        entries = [entry for uid, entry in group.entries.items() if members[uid].stand is Stand.READY]
        entries.sort(key=_order)
        return Drawn(entries[: max(missing, MOST_TOGETHER)], Gang(str(ref), missing))

    def released(self) -> list[Entry]:
        """Those that were held and need not be any more: they are to be queued again, through all their gates."""
        if not self._to_release:
            return []
        groups, self._to_release = self._to_release, {}
        members = self._members
        return [
            entry
            for group in groups.values()
            if group.can_go
            for uid, entry in group.entries.items()
            if members[uid].stand is Stand.HELD
        ]

    # Owners

    def overdue(self, now: float) -> list[Overdue]:
        """Who has been held for too long. Each is told once for every time that it is held."""
        found: list[Overdue] = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            uid = heappop(self._deadlines)[1]
            del self._due[uid]
            group = self._members[uid].group
            found.append(Overdue(group.entries[uid], reproach(group, now - self._since[uid])))
        return found

    def next_deadline(self) -> float | None:
        while self._deadlines and self._due.get(self._deadlines[0][1]) != self._deadlines[0][0]:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    # Inside

    def _group(self, ref: GroupRef) -> Group:
        group = self._groups.get(ref)
        if group is None:
            group = self._groups[ref] = Group(ref)
        return group

    def _put(self, uid: str, group: Group, stand: Stand, now: float) -> None:
        known = self._members.get(uid)
        before = None if known is None else known.stand
        if before is stand:
            return
        if before is not None:
            group.counts[before] -= 1
        group.counts[stand] += 1
        self._members[uid] = _Member(group, stand)
        if before is Stand.HELD:
            self._let_go(uid)
        if stand is Stand.HELD:
            self._since[uid] = now
            self._remind(uid, group)
        self._look(group)

    def _leave(self, uid: str) -> None:
        known = self._members.pop(uid, None)
        if known is None:
            return
        group = known.group
        group.counts[known.stand] -= 1
        group.entries.pop(uid, None)
        if known.stand is Stand.HELD:
            self._let_go(uid)
        self._tidy(group)

    def _look(self, group: Group) -> None:
        if group.counts[Stand.HELD] and group.can_go:
            self._to_release[group.ref] = group

    def _tidy(self, group: Group) -> None:
        if group.told is None and not group.total:
            del self._groups[group.ref]
            self._to_release.pop(group.ref, None)

    def _let_go(self, uid: str) -> None:
        del self._since[uid]
        self._due.pop(uid, None)

    def _remind(self, uid: str, group: Group) -> None:
        self._due[uid] = due = self._since[uid] + group.patience
        heappush(self._deadlines, (due, uid))

    def _put_off(self, group: Group) -> None:
        """Its patience may be another."""
        if group.counts[Stand.HELD]:
            for uid in group.entries:
                if uid in self._due and self._due[uid] != self._since[uid] + group.patience:
                    self._remind(uid, group)

    # To look at

    def ready(self, ref: GroupRef) -> bool:
        """Whether members of this group would be handed out, were it their turn."""
        group = self._groups.get(ref)
        return group is not None and group.can_go

    def __contains__(self, uid: str) -> bool:
        """Whether the pod is a member of any group."""
        return uid in self._members

    def __len__(self) -> int:
        """Groups that exist, or have members."""
        return len(self._groups)

    def validate(self) -> None:
        """Counts are right, nobody who may go is held unnoticed, and the owners of all who are held will be told."""
        counted = {ref: dict.fromkeys(Stand, 0) for ref in self._groups}
        for uid, (group, stand) in self._members.items():
            counted[group.ref][stand] += 1
            entry = group.entries.get(uid)
            if stand_of(entry) is not stand if entry is not None else stand is not Stand.PLACED:
                raise InvariantBroken(f"pod {uid} counts as {stand}: {entry.told() if entry else 'on a node'}")
        for ref, group in self._groups.items():
            if counted[ref] != group.counts or not group.entries.keys() <= self._members.keys():
                raise InvariantBroken(f"group {ref} is counted as {group.counts}, is {counted[ref]}")
            if group.counts[Stand.HELD] and group.can_go and ref not in self._to_release:
                raise InvariantBroken(f"group {ref} is held: {group.counts}")
        held = {uid for uid, member in self._members.items() if member.stand is Stand.HELD}
        if held != set(self._since) or not self._due.keys() <= held:
            raise InvariantBroken(f"held {sorted(held)}, since {sorted(self._since)}, due {sorted(self._due)}")


def _order(entry: Entry) -> tuple[int, float, str]:
    """In which the members of a gang are decided."""
    return -entry.pod.priority, entry.seen_at, entry.uid
