"""What the queue has binders write to groups of scheduling.k8s.io: whether the group was placed.

As in kube-scheduler, a group's condition becomes True as soon as no member is missing, and stays so. Until then it says
why the last attempt failed; a composite group's, why one of the groups below it did. Groups that name each other as
parents, or otherwise form no tree, say so. The queue sends each change once, and again until the watch shows it.
"""

from collections.abc import Iterable, Mapping, Sequence

from services.queue.scheduling.group_info import GroupInfo, MemberState
from services.queue.scheduling.pod_groups import PodGroups
from shared.deadlines import earliest
from shared.errors import InvariantBroken
from shared.messages.binding import GROUP_INVALID, GROUP_SCHEDULED, GroupNotice
from shared.messages.limits import CONDITION_SECONDS
from shared.messages.queue import Outcome, Verdict
from shared.model.composite_groups import CompositePodGroup
from shared.model.objects import GroupApi, GroupRef, Pod, PodGroup, group_of
from shared.runtime.rate_limited import RateLimited
from shared.runtime.unanswered import Unanswered

RETRY_DELAYS = (10.0, 20.0, 40.0, 80.0)
"""Seconds until a notice is sent again; the last one repeats."""
MAX_MESSAGE = 4096
"""Characters of a condition's message."""
MAX_GROUP_NOTICES = 64
"""Groups in one message to a binder; with their messages they take at most 1 MiB."""
_Group = PodGroup | CompositePodGroup
_Key = tuple[bool, str]
"""Whether it is a composite group, and its `namespace/name`."""
_REASONS = {Verdict.UNSCHEDULABLE: "Unschedulable", Verdict.FAILED: "SchedulerError"}


class GroupConditions:
    def __init__(self, groups: PodGroups) -> None:
        self._groups = groups
        self._failures: dict[GroupRef, Outcome] = {}
        """The first failure of each group in the present event."""
        self._sent: dict[_Key, GroupNotice] = {}
        """The last notice of each group until the watch shows its content."""
        self._unconfirmed: Unanswered[_Key, GroupNotice] = Unanswered(RETRY_DELAYS)
        self._delayed: RateLimited[_Key, GroupNotice] = RateLimited(CONDITION_SECONDS)
        """By the groups' uids and the reasons: a condition that only says the same in other words is delayed."""

    def __len__(self) -> int:
        return len(self._unconfirmed)

    def failed(self, pod: Pod, outcome: Outcome) -> None:
        """A member's attempt has failed."""
        ref = group_of(pod)
        if ref is not None and ref.api is GroupApi.SCHEDULING:
            self._failures.setdefault(ref, outcome)

    def take(self, now: float, *, is_last: bool = False) -> list[GroupNotice]:
        """What is to be written now: of groups that were placed or failed in this event, what was delayed, and what is
        sent again. `is_last`: the term ends.
        """
        failures, self._failures = self._failures, {}
        changed = self._groups.take_changed()
        found = self._newly(changed, failures, now) if changed or failures else []
        found += [each for each in (self._delayed.flush() if is_last else self._delayed.due(now)) if self._is_due(each)]
        for notice in self._unconfirmed.due(now):
            key = _key(notice)
            if self._is_due(notice) and self._delayed.offer(key, (notice.uid, notice.reason), notice, now):
                found.append(notice)
        return found

    def _newly(
        self, changed: Sequence[GroupInfo], failures: Mapping[GroupRef, Outcome], now: float
    ) -> list[GroupNotice]:
        notices: dict[_Key, GroupNotice] = {}
        for notice in (*self._placed(changed), *self._not_placed(failures.items()), *self._invalid(changed)):
            notices.setdefault(_key(notice), notice)
        for key, notice in notices.items():
            self._unconfirmed.answered(key)
            self._unconfirmed.sent(key, notice, now)
            self._sent[key] = notice
        return [each for key, each in notices.items() if self._delayed.offer(key, (each.uid, each.reason), each, now)]

    def next_deadline(self) -> float | None:
        return earliest(self._unconfirmed.next_deadline(), self._delayed.next_deadline())

    def _placed(self, changed: Iterable[GroupInfo]) -> Iterable[GroupNotice]:
        for group in changed:
            if group.missing == 0 and group.counts[MemberState.PLACED] and _has_open_condition(group.object):
                yield from self._changed(group.object, GROUP_SCHEDULED, "")
            for above in group.above:
                if above.shown.placed and _has_open_condition(above.object):
                    yield from self._changed(above.object, GROUP_SCHEDULED, "")

    def _not_placed(self, failures: Iterable[tuple[GroupRef, Outcome]]) -> Iterable[GroupNotice]:
        for ref, outcome in failures:
            group = self._groups.get(ref)
            if group is None:
                continue
            reason, message = _REASONS[outcome.verdict], outcome.message[:MAX_MESSAGE]
            is_placed = not group.missing and group.counts[MemberState.PLACED]
            objects: list[_Group | None] = [None if is_placed else group.object]
            objects += [above.object for above in group.above if not above.shown.placed]
            for each in objects:
                if _has_open_condition(each):
                    yield from self._changed(each, reason, message)

    def _invalid(self, changed: Iterable[GroupInfo]) -> Iterable[GroupNotice]:
        """Of pod groups that are in no tree, and of composite groups with no other ones."""
        for group in changed:
            if not group.invalid:
                continue
            above = [each.object for each in group.invalid if self._groups.forest.is_invalid(each)]
            for each in (group.object, *above):
                if _has_open_condition(each):
                    yield from self._changed(each, GROUP_INVALID, group.problem[:MAX_MESSAGE])

    def _changed(self, group: _Group | None, reason: str, message: str) -> Iterable[GroupNotice]:
        """The notice, unless the group shows its content, or it was sent and is repeated until the group does."""
        assert group is not None
        notice = GroupNotice(group.key, group.uid, reason, message, isinstance(group, CompositePodGroup))
        sent = self._sent.get(_key(notice))
        is_sent = sent is not None and sent.uid == notice.uid and (sent == notice or sent.is_placed)
        if not _shows(group, notice):
            if not is_sent:
                yield notice
        elif self._delayed.drop(_key(notice)):  # what was delayed is not said any more
            self._forget(notice)

    def _is_due(self, notice: GroupNotice) -> bool:
        """Whether to send it again; one that is shown, or whose group is gone, is forgotten."""
        known = self._object(notice)
        if known is not None and known.uid == notice.uid and not _shows(known, notice):
            return True
        self._forget(notice)
        return False

    def _forget(self, notice: GroupNotice) -> None:
        self._unconfirmed.answered(_key(notice))
        self._sent.pop(_key(notice), None)

    def _object(self, notice: GroupNotice) -> _Group | None:
        if notice.composite:
            above = self._groups.forest.get(notice.key)
            return None if above is None else above.object
        group = self._groups.get(GroupRef(GroupApi.SCHEDULING, notice.key))
        return None if group is None else group.object

    def validate(self) -> None:
        self._delayed.validate()
        if self._failures:
            raise InvariantBroken(f"failures of groups were not sent: {sorted(map(str, self._failures))}")
        if set(self._unconfirmed) != self._sent.keys():
            raise InvariantBroken("a group's notice is not repeated, or repeated and not remembered")


def _has_open_condition(group: _Group | None) -> bool:
    """Whether its API has the condition, and it is not True yet."""
    if group is None or (isinstance(group, PodGroup) and group.api is not GroupApi.SCHEDULING):
        return False
    condition = group.scheduled_condition
    return condition is None or condition.status != "True"


def _shows(group: _Group, notice: GroupNotice) -> bool:
    condition = group.scheduled_condition
    if condition is None:
        return False
    if condition.status == "True":
        return True
    return (condition.reason, condition.message) == (notice.reason, notice.message)


def _key(notice: GroupNotice) -> _Key:
    return notice.composite, notice.key
