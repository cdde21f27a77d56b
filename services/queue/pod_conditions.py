"""What the queue has binders write to a pod that could not be scheduled: its condition, nominated node, and Event."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import replace

from services.queue.events import PodUnreadable
from services.queue.scheduling.pod_groups import HeldTooLong
from shared.deadlines import earliest
from shared.devices.pod_claims import is_left_to_group, other_pods_of
from shared.errors import InvariantBroken
from shared.messages.binding import ClaimRelease, Notice
from shared.messages.limits import CONDITION_SECONDS
from shared.messages.queue import Outcome, Verdict
from shared.model.devices import ResourceClaim
from shared.model.objects import Pod
from shared.runtime.rate_limited import RateLimited
from shared.runtime.unanswered import Unanswered

UNSCHEDULABLE_REASON = "Unschedulable"
ERROR_REASON = "SchedulerError"
CONDITION = "PodScheduled"
MAX_NOTICES = 256
"""Notices in one message, which goes to one binder."""
MAX_CHARACTERS = 1 << 20
"""Characters of all texts in one message; a longer notice goes alone."""
RETRY_DELAYS = (10.0, 20.0, 40.0, 80.0)
"""Seconds until a notice is sent again; the last one repeats."""


WAITING_FOR_GROUP = "WaitingForPodGroup"
"""The reason of an Event: FailedScheduling would make a later failure a repeat, with the text of the first."""
HINT = "SchedulingHint"
"""The reason of an Event that says what would help."""


def failure_notice(pod: Pod, outcome: Outcome, unshown: str | None = None) -> Notice:
    """Always an Event; the condition and the nominated node only if the pod does not show them.

    `unshown`: the earlier nomination that the status does not show. Its notice may have been lost, or be on its way, so
    another one is sent even if the status shows that.
    """
    nominated = unshown if outcome.nominated is None else outcome.nominated
    reason = UNSCHEDULABLE_REASON if outcome.verdict is Verdict.UNSCHEDULABLE else ERROR_REASON
    return Notice(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        scheduler=pod.spec.scheduler_name,
        reason=reason,
        message=outcome.message,
        patch=not _shows(pod, reason, outcome.message),
        nominated=None if unshown is None and nominated == pod.status.nominated_node_name else nominated,
        version=pod.metadata.resource_version,
    )


def binding_rejected_notice(pod: Pod, reason: str) -> Notice:
    """Repeats the condition that the binder wrote when a plugin rejected the binding; the binder sent the Event."""
    outcome = Outcome(pod.uid, Verdict.UNSCHEDULABLE, message=reason, nominated="")
    return replace(failure_notice(pod, outcome), event=False)


def nomination_cleared_notice(pod: Pod) -> Notice:
    """Clears the nomination of a pod whose gang is incomplete, or whose binding failed: another binder may set it."""
    outcome = Outcome(pod.uid, Verdict.FAILED, nominated="")
    return replace(failure_notice(pod, outcome), event=False, patch=False)


def claim_releases(
    pod: Pod, outcome: Outcome, claims: Mapping[str, ResourceClaim], waiting: Container[str] | None = None
) -> list[ClaimRelease]:
    """What becomes of the pod's claims: the first one that still has devices gives them back.

    `waiting`: the uids of all pods of the pod's group, if none of them has a node; then a claim gives its devices back
    also if it is reserved for the group, or for such pods.
    """
    allocated = (claims[key] for key in outcome.deallocate if key in claims and claims[key].is_allocated)
    releases = list(islice((each for claim in allocated if (each := _release_of(pod, claim, waiting))), 1))
    return releases + [ClaimRelease(key, claims[key].uid) for key in outcome.delete if key in claims]


def _release_of(pod: Pod, claim: ResourceClaim, waiting: Container[str] | None) -> ClaimRelease | None:
    group = pod.spec.scheduling_group
    release = ClaimRelease(claim.key, claim.uid, claim.status.allocation)
    if members := other_pods_of(claim, pod):
        left = waiting is not None and all(uid in waiting for uid in members)
        return replace(release, members=members) if left else None
    if group is None or not is_left_to_group(claim, pod):
        return release
    return replace(release, group=group.pod_group_name or "") if waiting is not None else None


def held_notice(held: HeldTooLong) -> Notice:
    return failure_notice(held.info.pod, Outcome(held.info.uid, Verdict.UNSCHEDULABLE, message=held.message))


def first_held_notice(held: HeldTooLong) -> Notice:
    """An Event only: the pod has not been tried yet, and its group may be completed soon."""
    return replace(held_notice(held), patch=False, told_as=WAITING_FOR_GROUP)


def hint_notice(pod: Pod, text: str) -> Notice:
    """An Event only: the condition says what kube-scheduler says."""
    told = failure_notice(pod, Outcome(pod.uid, Verdict.UNSCHEDULABLE, message=text))
    return replace(told, patch=False, nominated=None, told_as=HINT)


def unreadable_notice(event: PodUnreadable) -> Notice:
    return Notice(event.uid, event.namespace, event.name, event.scheduler, ERROR_REASON, event.problem)


def unconfirmed_notice(pod: Pod, sent: Notice, unshown: str | None) -> Notice | None:
    """The part of a sent notice that the pod does not show; None if it shows all of it."""
    patch = sent.patch and not _shows(pod, sent.reason, sent.message)
    if not patch and unshown is None:
        return None
    return replace(sent, patch=patch, nominated=unshown, version=pod.metadata.resource_version)


def count_for_one_message(notices: Sequence[Notice]) -> int:
    characters = 0
    for count, notice in enumerate(notices[:MAX_NOTICES]):
        characters += len(notice.message)
        if count and characters > MAX_CHARACTERS:
            return count
    return min(len(notices), MAX_NOTICES)


def _shows(pod: Pod, reason: str, message: str) -> bool:
    return any(
        condition.type == CONDITION
        and condition.status == "False"
        and condition.reason == reason
        and condition.message == message
        for condition in pod.status.conditions
    )


@dataclass(slots=True)
class _Unconfirmed:
    notice: Notice
    repeats: int = 0


class UnconfirmedConditions:
    """The last notice of each pod until the watch shows its content: it is sent again, without the Event and releases.

    A notice may be lost on the way, with a binder, or because the API server refuses it, and a pod that nothing helps
    fails again only after minutes. A condition that only says the same in other words is delayed for
    CONDITION_SECONDS: a pod that is rejected again and again would be written to each time.
    """

    def __init__(self) -> None:
        self._by_uid: Unanswered[str, _Unconfirmed] = Unanswered(RETRY_DELAYS)
        self._delayed: RateLimited[str, Notice] = RateLimited(CONDITION_SECONDS)
        """By reason; the status is the same as long as the queue says something."""

    def __len__(self) -> int:
        return len(self._by_uid)

    def send(self, notice: Notice, now: float) -> Notice | None:
        """Replaces the pod's earlier notice. Returns what of it is sent now, if anything."""
        self._expect(notice, now)
        return self.pass_on(notice, now)

    def pass_on(self, notice: Notice, now: float) -> Notice | None:
        """What of the notice is sent now, if anything; a condition that is delayed is `due_delayed` later."""
        later = replace(notice, event=False, releases=[])
        if not notice.patch or self._delayed.offer(notice.uid, notice.reason, later, now):
            return notice
        has_more = notice.event or notice.nominated is not None or notice.releases
        return replace(notice, patch=False) if has_more else None

    def written(self, notice: Notice, now: float) -> None:
        """A binder has written this by itself."""
        self._expect(notice, now)
        if notice.patch:
            self.binder_wrote(notice.uid, notice.reason, now)

    def binder_wrote(self, uid: str, reason: str, now: float) -> None:
        """A condition with this reason, which need not be shown."""
        self._delayed.record(uid, reason, now)

    def _expect(self, notice: Notice, now: float) -> None:
        """The watch is to show the notice, unless there is nothing in it to show."""
        self._by_uid.answered(notice.uid)
        if notice.event or notice.message:  # else it is about a nomination only
            self._delayed.drop(notice.uid)
        if notice.patch or notice.nominated is not None:
            self._by_uid.sent(notice.uid, _Unconfirmed(replace(notice, event=False, releases=[])), now)

    def delete(self, uid: str) -> None:
        self._by_uid.answered(uid)
        self._delayed.drop(uid)

    def due_delayed(self, now: float) -> list[Notice]:
        """Conditions that were delayed."""
        return self._delayed.due(now)

    def flush(self) -> list[Notice]:
        """All conditions that are delayed, before the end."""
        return self._delayed.flush()

    def due_again(self, now: float) -> list[tuple[Notice, bool]]:
        """Notices to send again, and whether this was their longest delay."""
        due = self._by_uid.due(now)
        for unconfirmed in due:
            unconfirmed.repeats += 1
        return [(unconfirmed.notice, unconfirmed.repeats >= len(RETRY_DELAYS)) for unconfirmed in due]

    def next_deadline(self) -> float | None:
        return earliest(self._by_uid.next_deadline(), self._delayed.next_deadline())

    def validate(self) -> None:
        self._delayed.validate()
        uids = list(self._by_uid)  # their order is not checked: the queue's clock may have been set back
        if len(uids) != len(set(uids)):
            raise InvariantBroken("a pod has two unconfirmed notices")
