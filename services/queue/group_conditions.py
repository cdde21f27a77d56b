"""What the queue has binders write to PodGroups of scheduling.k8s.io: whether the group was placed.

As in kube-scheduler, a group's condition becomes True as soon as no member is missing, and stays so. Until then it says
why the last attempt failed. The queue sends each change once, and again until the watch shows it.
"""

from collections.abc import Iterable

from services.queue.scheduling.group_info import GroupInfo, MemberState
from services.queue.scheduling.pod_groups import PodGroups
from shared.errors import InvariantBroken
from shared.messages.binding import GROUP_SCHEDULED, GroupNotice
from shared.messages.queue import Outcome, Verdict
from shared.model.objects import GroupApi, GroupRef, Pod, PodGroup, group_of
from shared.runtime.unanswered import Unanswered

RETRY_DELAYS = (10.0, 20.0, 40.0, 80.0)
"""Seconds until a notice is sent again; the last one repeats."""
MAX_MESSAGE = 4096
"""Characters of a condition's message."""
MAX_GROUP_NOTICES = 64
"""Groups in one message to a binder; with their messages they take at most 1 MiB."""
_REASONS = {Verdict.UNSCHEDULABLE: "Unschedulable", Verdict.FAILED: "SchedulerError"}


class GroupConditions:
    def __init__(self, groups: PodGroups) -> None:
        self._groups = groups
        self._failures: dict[GroupRef, Outcome] = {}
        """The first failure of each group in the present event."""
        self._sent: dict[GroupRef, GroupNotice] = {}
        """The last notice of each group until the watch shows its content."""
        self._unconfirmed: Unanswered[GroupRef, GroupNotice] = Unanswered(RETRY_DELAYS)

    def __len__(self) -> int:
        return len(self._unconfirmed)

    def failed(self, pod: Pod, outcome: Outcome) -> None:
        """A member's attempt has failed."""
        ref = group_of(pod)
        if ref is not None and ref.api is GroupApi.SCHEDULING:
            self._failures.setdefault(ref, outcome)

    def take(self, now: float) -> list[GroupNotice]:
        """What is to be written now: of groups that were placed or failed in this event, and what is sent again."""
        failures, self._failures = self._failures, {}
        notices = [*self._placed(), *self._not_placed(failures.items())]
        for notice in notices:
            ref = _ref(notice)
            self._unconfirmed.answered(ref)
            self._unconfirmed.sent(ref, notice, now)
            self._sent[ref] = notice
        return notices + [notice for notice in self._unconfirmed.due(now) if self._is_due(notice)]

    def next_deadline(self) -> float | None:
        return self._unconfirmed.next_deadline()

    def _placed(self) -> Iterable[GroupNotice]:
        for group in self._groups.take_completed():
            if group.missing == 0 and group.counts[MemberState.PLACED] and _has_open_condition(group.object):
                yield from self._changed(group, GROUP_SCHEDULED, "")

    def _not_placed(self, failures: Iterable[tuple[GroupRef, Outcome]]) -> Iterable[GroupNotice]:
        for ref, outcome in failures:
            group = self._groups.get(ref)
            if group is None or not _has_open_condition(group.object):
                continue
            if group.missing or not group.counts[MemberState.PLACED]:
                yield from self._changed(group, _REASONS[outcome.verdict], outcome.message[:MAX_MESSAGE])

    def _changed(self, group: GroupInfo, reason: str, message: str) -> Iterable[GroupNotice]:
        """The notice, unless the group shows its content, or it was sent and is repeated until the group does."""
        assert group.object is not None
        notice, sent = GroupNotice(group.object.key, group.object.uid, reason, message), self._sent.get(group.ref)
        is_sent = sent is not None and sent.uid == notice.uid and (sent == notice or sent.is_placed)
        if not is_sent and not _shows(group.object, notice):
            yield notice

    def _is_due(self, notice: GroupNotice) -> bool:
        """Whether to send it again; one that is shown, or whose group is gone, is forgotten."""
        ref = _ref(notice)
        group = self._groups.get(ref)
        known = None if group is None else group.object
        if known is not None and known.uid == notice.uid and not _shows(known, notice):
            return True
        self._unconfirmed.answered(ref)
        del self._sent[ref]
        return False

    def validate(self) -> None:
        if self._failures:
            raise InvariantBroken(f"failures of groups were not sent: {sorted(map(str, self._failures))}")
        if set(self._unconfirmed) != self._sent.keys():
            raise InvariantBroken("a group's notice is not repeated, or repeated and not remembered")


def _has_open_condition(group: PodGroup | None) -> bool:
    """Whether its API has the condition, and it is not True yet."""
    if group is None or group.api is not GroupApi.SCHEDULING:
        return False
    condition = group.scheduled_condition
    return condition is None or condition.status != "True"


def _shows(group: PodGroup, notice: GroupNotice) -> bool:
    condition = group.scheduled_condition
    if condition is None:
        return False
    if condition.status == "True":
        return True
    return (condition.reason, condition.message) == (notice.reason, notice.message)


def _ref(notice: GroupNotice) -> GroupRef:
    return GroupRef(GroupApi.SCHEDULING, notice.key)
