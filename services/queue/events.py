"""The events that the queue's core handles, and the effects that its shell carries out in order."""

from collections.abc import Sequence

import msgspec

from services.queue.scheduling.assigned_pod import AssignedPod
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.in_flight_events import Position
from services.queue.scheduling.queued_pod_info import RetryRecord
from shared.errors import FlotillaError
from shared.messages.binding import Evicted, GroupNotice, Notice
from shared.messages.queue import Absorbed, Activate, Assumed, Batch, Forgotten, Outcomes, Received, Take
from shared.model.objects import GroupRef, Pod


class PodPending(msgspec.Struct, frozen=True):
    """Event: the watch shows a pod without a node. `body`: the pod as the watcher encoded it, if it is at hand."""

    pod: Pod
    seen_at: float
    body: msgspec.Raw = msgspec.Raw(b"")


class PodBound(msgspec.Struct, frozen=True):
    """Event: the watch shows the pod on a node."""

    uid: str


class PodsBound(msgspec.Struct, frozen=True):
    """Event: the watch shows these pods on nodes for the first time. They are alike, and use no volumes."""

    pods: Sequence[AssignedPod]


class PodGone(msgspec.Struct, frozen=True):
    """Event: the pod was deleted, or has finished."""

    uid: str
    finished: bool = False


class PodStale(msgspec.Struct, frozen=True):
    """Event, and effect: the watch shows an old version of a pod, without the node it is on. The queue ignores it."""

    key: str


class PodUnreadable(msgspec.Struct, frozen=True):
    """Event: a pod without a node cannot be decoded."""

    uid: str
    namespace: str
    name: str
    scheduler: str
    problem: str


class GroupUnreadable(msgspec.Struct, frozen=True):
    """Event: a pod group cannot be read; without a problem: it can, or is gone."""

    ref: GroupRef
    problem: str


WatchEvent = PodPending | PodBound | PodsBound | PodGone | PodStale | PodUnreadable | GroupUnreadable | ClusterChange


class WatchEvents(msgspec.Struct, frozen=True):
    """Event: what the watch shows, in order; no pod is handed out before all of it is handled.

    `at`: the position in the watcher's stream. Pods are requeued once the snapshot has absorbed it; if None, at once.
    """

    events: Sequence[WatchEvent]
    at: Position | None = None


class ListingComplete(msgspec.Struct, frozen=True):
    """Event: the queue has been told of every pod; it deletes the retry records of others.

    `at`: the position in the watcher's stream. Pods rejected before the snapshot has absorbed it are requeued then.
    """

    at: Position


class Tick(msgspec.Struct, frozen=True):
    """Event: time has passed."""


class TermEnds(msgspec.Struct, frozen=True):
    """Event: requests are not heard any more."""


class SendBatch(msgspec.Struct, frozen=True):
    """Effect: answer the Take of this epoch and number. `again`: it was answered before."""

    batch: Batch
    again: bool = False


class PodEnded(msgspec.Struct, frozen=True):
    """Effect: a pod has left the queue for good, bound or not. `active_at`: when it was first active, if ever."""

    uid: str
    key: str
    profile: str
    bound: bool
    attempts: int
    seen_at: float
    active_at: float | None
    ended_at: float


class StoreRetry(msgspec.Struct, frozen=True):
    """Effect: store the pod's retry record, in place of an earlier one; None deletes it."""

    uid: str
    record: RetryRecord | None


class Problem(msgspec.Struct, frozen=True):
    """Effect: log an error that affects nothing else."""

    error: FlotillaError


Message = Activate | Take | Outcomes | Evicted | Forgotten | Assumed | Absorbed
Event = WatchEvent | WatchEvents | ListingComplete | Message | Tick | TermEnds
Effect = SendBatch | Received | Notice | GroupNotice | PodEnded | StoreRetry | PodStale | Problem
"""`Received`: answer the Outcomes of this epoch and number. `Notice`, `GroupNotice`: have a binder write it to the pod,
or to its group.
"""
