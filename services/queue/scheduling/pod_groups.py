"""Pod groups: gangs, of which a minimum number of members must be placed together or none.

What matters of each member is its state in its group:

    ready       active, backing off or unschedulable, as all ready members of its gang
    held        gated here, to wait for other members
    preempting  gated until its victims are gone
    blocked     gated by something else
    in flight   with cycle
    placed      decided, or seen on a node, also if another scheduler has bound it

A member passes the gate while its group exists and has enough members, in any state. The ready members are one entry
of the queue (QueuedGang). They are popped together if they are as many as are missing and no member is preempting, as
victims were chosen for all of them; and held otherwise. Held members are released as soon as the ready and held ones
are enough, so no two members wait for each other: every move of a member must be reported here. Once at most one is
missing, each member has an entry of its own.

The queue reserves nothing for held members, so they may wait for ever. A group whose members are still held after
FIRST_EVENT says so by an Event on one of them; the owners of all are notified after the group's time-out.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from flotilla.results import SUCCESS, Status
from services.queue.scheduling.assigned_pod import AssignedPod
from services.queue.scheduling.composite_info import CompositeInfo
from services.queue.scheduling.group_changes import says_the_same
from services.queue.scheduling.group_forest import Forest
from services.queue.scheduling.group_gate import NOT_YET, VICTIMS, no_group, rejected, too_few, why_not_yet
from services.queue.scheduling.group_info import (
    GroupInfo,
    MemberOnNode,
    MemberState,
    member_state,
)
from services.queue.scheduling.group_tree import popped_as_tree, told
from services.queue.scheduling.holds import Holds
from services.queue.scheduling.not_members import NotMembers
from services.queue.scheduling.popped_together import PoppedTogether
from services.queue.scheduling.queued_gang import QueuedGang
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.errors import InvariantBroken
from shared.model.composite_groups import CompositePodGroup
from shared.model.objects import GroupRef, Pod, PodGroup, group_of

MAX_POPPED_TOGETHER = 1024
"""Members popped together, unless more are missing; the rest follow."""
RELEASED = "GangChanged"
"""The reason for a released member's move."""


class HeldTooLong(NamedTuple):
    info: QueuedPodInfo
    message: str


class Held(NamedTuple):
    """`since`: when the first of the members that are held now was."""

    members: int
    since: float


class _Member(NamedTuple):
    group: GroupInfo
    state: MemberState


class PodGroups:
    def __init__(self) -> None:
        self._groups: dict[GroupRef, GroupInfo] = {}
        self.forest = Forest()
        """Read only for others."""
        self.others = NotMembers()
        self._strays: list[QueuedPodInfo] = []
        """Pods seen on nodes that may still stand in the entry of a tree."""
        self._members: dict[str, _Member] = {}
        self._to_release: dict[GroupRef, GroupInfo] = {}
        self._to_regroup: dict[GroupRef, GroupInfo] = {}
        """Groups whose ready members may stand in another entry than they should."""
        self._changed: dict[GroupRef, GroupInfo] = {}
        """Groups that may lack no member, or are in another tree, since `take_changed`."""
        self._holds = Holds()
        self._preempting = 0
        """Members, of all groups."""

    # What the watch shows

    def observe(self, before: object, now: object) -> None:
        """Takes in a group or an assigned pod, added (`before` is None), updated, or deleted (`now` is None)."""
        match before if now is None else now:
            case AssignedPod(uid=uid, name=name, node=node, parts=parts):
                self.remove(uid) if now is None else self.assigned(uid, parts.group, name, node)
            case PodGroup() as group:
                self.delete_group(group.ref) if now is None else self.set_group(group)
            case CompositePodGroup() as composite:
                forest = self.forest
                below = forest.delete(composite.key) if now is None else forest.set(composite)
                self._changed |= {group.ref: group for group in below}
                self._look_again(below)
            case Pod() as pod:
                self.remove(pod.uid) if now is None else self.assigned(
                    pod.uid, group_of(pod), pod.name, pod.spec.node_name
                )

    def set_group(self, pod_group: PodGroup) -> None:
        group = self._group(pod_group.ref)
        before, group.object = group.object, pod_group
        if says_the_same(before, pod_group):
            self._changed[group.ref] = group
            return
        self._look_again(self.forest.place(group, pod_group.parent))
        self._changed[group.ref] = self._to_regroup[group.ref] = group
        self._check_release(group)
        self._holds.update(group)

    def set_unreadable(self, ref: GroupRef, problem: str) -> None:
        """The group, which does not count, cannot be read; without a problem: it can, or is gone."""
        self.others.set_unreadable(ref, problem)
        if (group := self._groups.get(ref)) is not None:
            group.unreadable = problem

    def delete_group(self, ref: GroupRef) -> None:
        """Members popped from now on are held."""
        group = self._groups.get(ref)
        if group is not None:
            group.object = None
            self._look_again(self.forest.place(group, ""))
            self._to_regroup[ref] = group
            self._holds.update(group)
            self._drop_if_empty(group)

    # Members

    def moved(self, info: QueuedPodInfo, now: float) -> None:
        """Takes in a pod's new state or new group. Pods that never were in a group need not be reported.

        The pod must be in no container: it may stand in another entry from here on. It joins a gang that is in another
        state only once it is `misplaced`.
        """
        self._set_member(info, now)
        gang = self.gang_of(info) if member_state(info) is MemberState.READY else None
        if gang is not None and gang.state not in (None, info.state):
            group = self._members[info.uid].group
            self._to_regroup[group.ref] = group
            gang = None
        if gang is not info.gang:
            if info.gang is not None:
                info.gang.leave(info)
            info.gang = gang
            if gang is not None:
                gang.join(info)

    def _set_member(self, info: QueuedPodInfo, now: float) -> None:
        uid, ref = info.uid, group_of(info.pod)
        known = self._members.get(uid)
        if (ref is None and known is None) or (known is not None and uid not in known.group.pods):
            return  # in no group; or seen on a node, which outweighs the queue's state
        state = member_state(info)
        if ref is None or state is None:
            self.remove(uid)
            return
        if known is not None and known.group.ref != ref:
            self.remove(uid)
        if info.ungated_at is None and state is not MemberState.BLOCKED:
            info.ungated_at = now
        group = self._group(ref)
        group.pods[uid] = info
        self._set(uid, group, state, now)

    def assigned(self, uid: str, ref: GroupRef | None, name: str = "", node: str = "") -> None:
        """Takes in that a pod of this name is on this node."""
        known = self._members.get(uid)
        if known is not None and known.group.ref != ref:
            self.remove(uid)
        if ref is not None:
            group = self._group(ref)
            if (info := group.pods.pop(uid, None)) is not None:
                self._to_regroup[ref] = group
                self._strays += [info] if info.gang is not None and info.gang is not group.gang else []
            group.on_nodes[uid] = MemberOnNode(name, node)
            self._set(uid, group, MemberState.PLACED, 0.0)

    def finished(self, uid: str) -> None:
        """Takes in that the pod, which is reported as gone as well, has finished."""
        if (known := self._members.get(uid)) is not None:
            self.others.add_finished(known.group, uid)

    def remove(self, uid: str) -> None:
        known = self._members.pop(uid, None)
        if known is None:
            return
        group = known.group
        self._count(group, known.state, None)
        group.pods.pop(uid, None)
        group.on_nodes.pop(uid, None)
        if known.state is MemberState.HELD:
            self._holds.end(uid, group)
        self._drop_if_empty(group)

    # Order, gate, pop, release

    def pods_that_stand_elsewhere(self, before: object, now: object) -> list[QueuedPodInfo]:
        """The members of groups whose priority may have changed with this change of a group."""
        if isinstance(now, AssignedPod) or (before is not None and _standing(before) == _standing(now)):
            return []
        match now:
            case PodGroup() as found:
                group = self._groups.get(found.ref)
                has_priority = group is not None and (group.priority is not None or before is not None)
                return list(group.pods.values()) if group is not None and has_priority else []
            case CompositePodGroup() as found:
                node = self.forest.get(found.key)
                is_plain = before is None and found.priority is None
                groups = [] if node is None or is_plain else self.forest.leaves(node)
                return [info for group in groups for info in group.pods.values()]
        return []

    def sorted_as(self, pod: Pod) -> Pod:
        """The pod as QueueSort sees it: with the priority of its group, if that has one."""
        priority = self.priority_of(pod)
        return pod if priority == pod.priority else replace(pod, spec=replace(pod.spec, priority=priority))

    def priority_of(self, pod: Pod) -> int:
        """That of its group, if that has one: nominations of lower priority reserve no room against the pod."""
        ref = group_of(pod) if self._groups else None
        group = None if ref is None else self._groups.get(ref)
        return pod.priority if group is None or group.priority is None else group.priority

    def pre_enqueue(self, info: QueuedPodInfo) -> Status:
        """Rejects the pod unless its group exists and has the minimum of members."""
        ref = group_of(info.pod)
        if ref is None:
            return SUCCESS
        group = self._groups.get(ref)
        if group is None or group.object is None:
            return no_group(ref)
        known = self._members.get(info.uid)
        total = group.total + (known is None or known.group is not group)
        return too_few(ref) if total < group.minimum else why_not_yet(group)

    def pop_with(self, first: QueuedPodInfo) -> PoppedTogether | Status:
        """The pod with the members to pop together with it, in the order of their decisions; or why it is held."""
        known = self._members.get(first.uid)
        if known is None or first.uid not in known.group.pods:
            return PoppedTogether([first])
        group = known.group
        ref, missing = group.ref, group.missing
        if group.object is None:
            return no_group(ref)
        if group.above or group.problem:
            status = why_not_yet(group)
            if not status.ok:
                return status
        if first.gang is None:
            return PoppedTogether([first])
        if group.total < group.minimum:
            return too_few(ref)
        if self._waits_for_victims(group):
            return rejected(ref, VICTIMS)
        if (unit := group.unit) is not None:
            return self._pop_tree(unit, first.gang, ref)
        if len(first.gang.pods) < missing:
            return rejected(ref, NOT_YET)
        pods = first.gang.in_order()[: max(missing, MAX_POPPED_TOGETHER)]
        gang = group.told() if not group.above else told(self.forest, group)
        return PoppedTogether(pods, gang, (len(gang.groups) - 1,) * len(pods) if gang.groups else ())

    def _pop_tree(self, unit: CompositeInfo, entry: QueuedGang, ref: GroupRef) -> PoppedTogether | Status:
        members = [(self._members[uid].group, info) for uid, info in entry.pods.items()]
        return popped_as_tree(self.forest, unit, members) or rejected(ref, NOT_YET)

    def gang_of(self, info: QueuedPodInfo) -> QueuedGang | None:
        """The entry in which the pod waits for its turn; None if it has its own."""
        ref = group_of(info.pod) if self._groups else None
        group = None if ref is None else self._groups.get(ref)
        if group is None or info.uid in group.on_nodes or not group.is_together(info.pod):
            return None
        return group.gang if not group.above else group.entry

    def is_short(self, pod: Pod) -> bool:
        """Whether the pod's group is gone, or has fewer members than its minimum: nothing that is due completes it."""
        ref = group_of(pod)
        group = None if ref is None else self._groups.get(ref)
        if ref is None or group is None or group.object is None:
            return ref is not None
        return group.total < group.minimum or not why_not_yet(group).ok

    def misplaced(self) -> list[QueuedPodInfo]:
        """Ready members that are in another entry than they should be, to be queued again where they are."""
        if not self._to_regroup:
            return []
        groups, self._to_regroup = self._to_regroup, {}
        strays, self._strays = self._strays, []
        found = {info.uid: info for group in groups.values() for info in (group.pods | group.gang.pods).values()}
        found |= {info.uid: info for info in strays}
        return [
            info
            for info in found.values()
            if member_state(info) is MemberState.READY and info.gang is not self.gang_of(info)
        ]

    def released(self) -> list[QueuedPodInfo]:
        """Members that need not be held any more, to be queued again through all their gates."""
        if not self._to_release:
            return []
        groups, self._to_release = self._to_release, {}
        return [
            info
            for group in groups.values()
            if self._can_release(group)
            for info in self._in_state(group, MemberState.HELD)
        ]

    # Owners of held members

    @property
    def has_held(self) -> bool:
        return bool(self._holds.since)

    def held_too_long(self, now: float) -> list[HeldTooLong]:
        """Members whose owners are to be notified, once for each time that they are held."""
        return [self._held_too_long(uid, now) for uid in self._holds.overdue(now)]

    def first_events(self, now: float) -> list[HeldTooLong]:
        """For each group that holds members since FIRST_EVENT: the first of them whose owner does not know."""
        found: list[HeldTooLong] = []
        for ref in self._holds.due_first_events(now):
            held = [info.uid for info in self._in_state(self._groups[ref], MemberState.HELD)]
            if all(map(self._holds.is_unknown, held)):
                found.append(self._held_too_long(held[0], now))
        return found

    def _held_too_long(self, uid: str, now: float) -> HeldTooLong:
        group = self._members[uid].group
        return HeldTooLong(group.pods[uid], group.why_held(now - self._holds.since[uid]))

    def next_first_event(self) -> float | None:
        return self._holds.next_first_event()

    def next_deadline(self) -> float | None:
        return self._holds.next_deadline()

    def take_changed(self) -> list[GroupInfo]:
        """Groups that may lack no member, or are in another tree, since the last call."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, {}
        return list(changed.values())

    # Introspection

    def get(self, ref: GroupRef) -> GroupInfo | None:
        """Read only."""
        return self._groups.get(ref)

    def groups(self) -> list[GroupInfo]:
        """Read only."""
        return list(self._groups.values())

    def shortage(self, info: QueuedPodInfo) -> str:
        """Why the pod is held, as things stand; empty if it is not. Its gate's reason is that of the time it came."""
        known = self._members.get(info.uid)
        return known.group.shortage if known is not None and known.state is MemberState.HELD else ""

    def state_of(self, uid: str) -> MemberState:
        return self._members[uid].state

    def held(self, group: GroupInfo) -> Held | None:
        """None if no member is held."""
        since = [self._holds.since[info.uid] for info in self._in_state(group, MemberState.HELD)]
        return Held(len(since), min(since)) if since else None

    # Inside

    def _group(self, ref: GroupRef) -> GroupInfo:
        group = self._groups.get(ref)
        if group is None:
            group = self._groups[ref] = GroupInfo(ref, unreadable=self.others.problem_of(ref))
        return group

    def _in_state(self, group: GroupInfo, state: MemberState) -> list[QueuedPodInfo]:
        members = self._members
        return [info for uid, info in group.pods.items() if members[uid].state is state]

    def _set(self, uid: str, group: GroupInfo, state: MemberState, now: float) -> None:
        known = self._members.get(uid)
        before = None if known is None else known.state
        if before is state:
            return
        self._count(group, before, state)
        self._members[uid] = _Member(group, state)
        if state is MemberState.PLACED:
            self._changed[group.ref] = group
        if before is MemberState.HELD:
            self._holds.end(uid, group)
        if state is MemberState.HELD:
            self._holds.begin(uid, group, now)
        self._check_release(group)

    def _count(self, group: GroupInfo, before: MemberState | None, now: MemberState | None) -> None:
        together = group.missing > 1
        if before is not None:
            group.counts[before] -= 1
        if now is not None:
            group.counts[now] += 1
        self._preempting += (now is MemberState.PREEMPTING) - (before is MemberState.PREEMPTING)
        if before is MemberState.PREEMPTING:
            for each in self._popped_with(group):
                self._check_release(each)
        if (group.missing > 1) is not together:
            self._to_regroup[group.ref] = group
        if group.parent is not None:
            self._look_again(self.forest.moved_on(group))

    def _look_again(self, groups: Iterable[GroupInfo]) -> None:
        """Something above these groups has changed: their members may be held, or stand in another entry."""
        for group in groups:
            self._to_regroup[group.ref] = group
            self._check_release(group)

    def _check_release(self, group: GroupInfo) -> None:
        if group.counts[MemberState.HELD] and self._can_release(group):
            self._to_release[group.ref] = group

    def _can_release(self, group: GroupInfo) -> bool:
        return group.can_release and not self._waits_for_victims(group)

    def _waits_for_victims(self, group: GroupInfo) -> bool:
        """Whether one of the members that are popped together is preempting."""
        if not self._preempting or not group.goes_together:
            return False
        return any(each.counts[MemberState.PREEMPTING] for each in self._popped_with(group))

    def _popped_with(self, group: GroupInfo) -> Iterable[GroupInfo]:
        return [group] if group.unit is None else self.forest.leaves(group.unit)

    def _drop_if_empty(self, group: GroupInfo) -> None:
        if group.object is None and not group.total:
            del self._groups[group.ref]
            self._to_release.pop(group.ref, None)
            self._to_regroup.pop(group.ref, None)

    def __contains__(self, uid: str) -> bool:
        """Whether the pod is a member of any group."""
        return uid in self._members

    def __len__(self) -> int:
        """Groups that exist or have members."""
        return len(self._groups)

    def validate(self) -> None:
        """Counts are right, no releasable member stays held, and every held member's owner will be told."""
        counted = {ref: dict.fromkeys(MemberState, 0) for ref in self._groups}
        for uid, (group, state) in self._members.items():
            counted[group.ref][state] += 1
            info = group.pods.get(uid)
            if member_state(info) is not state if info is not None else state is not MemberState.PLACED:
                raise InvariantBroken(f"pod {uid} counts as {state}: {info.history() if info else 'on a node'}")
        self.forest.validate()
        for ref, group in self._groups.items():
            group.gang.validate()
            for info in () if ref in self._to_regroup else group.pods.values():
                due = self.gang_of(info) if member_state(info) is MemberState.READY else None
                if info.gang is not due:
                    raise InvariantBroken(f"pod {info.pod.key} is in another entry than its gang: {info.history()}")
            if counted[ref] != group.counts or not group.pods.keys() <= self._members.keys():
                raise InvariantBroken(f"group {ref} is counted as {group.counts}, is {counted[ref]}")
            if group.counts[MemberState.HELD] and self._can_release(group) and ref not in self._to_release:
                raise InvariantBroken(f"group {ref} is held, but can be released: {group.counts}")
            if group.on_nodes.keys() & group.pods.keys():
                raise InvariantBroken(f"group {ref} has members in the queue and on nodes")
        held = {uid for uid, member in self._members.items() if member.state is MemberState.HELD}
        self._holds.validate(held, {ref for ref, group in self._groups.items() if group.counts[MemberState.HELD]})


def _standing(group: object) -> tuple[int | None, str] | None:
    """By what its pods stand in the queue."""
    return (group.priority, group.parent) if isinstance(group, PodGroup | CompositePodGroup) else None
