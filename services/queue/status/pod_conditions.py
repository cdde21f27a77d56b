"""What the owner of a pod is told when it could not be scheduled."""

from collections.abc import Sequence

from msgspec.structs import replace

from services.queue.events import PodUnreadable
from services.queue.scheduling.pod_groups import Overdue
from shared.messages.binding import Notice
from shared.messages.queue import Outcome, Verdict
from shared.model.objects import Pod

UNSCHEDULABLE_REASON = "Unschedulable"
ERROR_REASON = "SchedulerError"
CONDITION = "PodScheduled"
MOST_NOTICES = 256
"""In one message: they go to one binder."""
MOST_CHARACTERS = 1 << 20
"""Of what owners are to read, in one message that may hold far more; what is longer goes alone."""


def notice_of(pod: Pod, outcome: Outcome, unshown: str | None = None) -> Notice:
    """An event always; the condition and the nominated node only if the pod does not say so already.

    `unshown`: what was said of its nomination before, and has not come to stand there. The word may have got lost.
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
        patch=not _says(pod, reason, outcome.message),
        nominated=None if nominated == pod.status.nominated_node_name else nominated,
        version=pod.metadata.resource_version,
    )


def unshown_notice(pod: Pod, said: Notice, unshown: str | None) -> Notice | None:
    """What of it the pod does not show; None if it shows all of it. `unshown`: as above."""
    patch = said.patch and not _says(pod, said.reason, said.message)
    if not patch and unshown is None:
        return None
    return replace(said, patch=patch, nominated=unshown, version=pod.metadata.resource_version)


def unbound_notice(pod: Pod, reason: str) -> Notice:
    """Of a binding that a plugin would not have: what the binder has said already, with its Event."""
    outcome = Outcome(pod.uid, Verdict.UNSCHEDULABLE, message=reason, nominated="")
    return replace(notice_of(pod, outcome), event=False)


def held_notice(overdue: Overdue) -> Notice:
    """To the owner of a pod that has waited long for others of its group."""
    outcome = Outcome(overdue.entry.uid, Verdict.UNSCHEDULABLE, message=overdue.message)
    return notice_of(overdue.entry.pod, outcome)


def unreadable_notice(event: PodUnreadable) -> Notice:
    """What its condition says is not known."""
    return Notice(
        uid=event.uid,
        namespace=event.namespace,
        name=event.name,
        scheduler=event.scheduler,
        reason=ERROR_REASON,
        message=event.problem,
    )


def fitting(notices: Sequence[Notice]) -> int:
    """How many of the first go in one message."""
    characters = 0
    for count, notice in enumerate(notices[:MOST_NOTICES]):
        characters += len(notice.message)
        if count and characters > MOST_CHARACTERS:
            return count
    return min(len(notices), MOST_NOTICES)


def _says(pod: Pod, reason: str, message: str) -> bool:
    return any(
        condition.type == CONDITION
        and condition.status == "False"
        and condition.reason == reason
        and condition.message == message
        for condition in pod.status.conditions
    )
