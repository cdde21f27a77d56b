"""What the queue is told, and what it wants done. Effects are to be carried out in order."""

from collections.abc import Sequence
from typing import Any

import msgspec

from services.queue.kept import Kept
from shared.errors import FlotillaError
from shared.framework.clusterevents import ClusterEvent
from shared.messages.binding import Evicted, Notice
from shared.messages.queue import Absorbed, Activate, Assumed, Batch, Forgotten, Outcomes, Received, Take
from shared.model.objects import Pod

Position = tuple[int, int]
"""In the watcher's stream: its epoch, and the number of a message."""


class PodPending(msgspec.Struct, frozen=True):
    """Event: the watch says that a pod without a node is so. `size`: bytes that it takes in a message."""

    pod: Pod
    seen_at: float
    size: int = 0


class PodBound(msgspec.Struct, frozen=True):
    """Event: the watch says that a pod has a node."""

    uid: str


class PodGone(msgspec.Struct, frozen=True):
    """Event: the watch says that a pod is no more, or has ended."""

    uid: str


class PodStale(msgspec.Struct, frozen=True):
    """Event: the watch shows a pod of the past, without the node that it is on."""

    key: str


class PodUnreadable(msgspec.Struct, frozen=True):
    """Event: there is a pod without a node that cannot be used."""

    uid: str
    namespace: str
    name: str
    scheduler: str
    problem: str


class ClusterChange(msgspec.Struct, frozen=True):
    """Event: something else has changed that may help pods that were rejected.

    `before` is None for what was added, `now` for what was deleted. The ClusterObjects show it already.
    """

    event: ClusterEvent
    before: Any = None
    now: Any = None


Seen = PodPending | PodBound | PodGone | PodStale | PodUnreadable | ClusterChange


class Observed(msgspec.Struct, frozen=True):
    """Event: what the watch says, in order; nothing is handed out before all of it is known.

    `at`: where in the watcher's stream. Whom it may help is tried once the snapshot has absorbed it; none: at once.
    """

    seen: Sequence[Seen]
    at: Position | None = None


class Listed(msgspec.Struct, frozen=True):
    """Event: all pods that there are have been told; what is kept of others is of no use.

    `at`: where in the watcher's stream. What is rejected before the snapshot has absorbed it is tried again then.
    """

    at: Position


class Tick(msgspec.Struct, frozen=True):
    """Event: time has passed."""


class Answer(msgspec.Struct, frozen=True):
    """Effect: to whoever sent the Take of this epoch and number. `again`: as it was answered before."""

    batch: Batch
    again: bool = False


class Acknowledge(msgspec.Struct, frozen=True):
    """Effect: to whoever sent the Outcomes of this epoch and number."""

    message: Received


class Notify(msgspec.Struct, frozen=True):
    """Effect: let a binder tell the owner of a pod."""

    notice: Notice


class Withdrawn(msgspec.Struct, frozen=True):
    """Effect: cycle need not decide this pod any more."""

    uid: str


class Ended(msgspec.Struct, frozen=True):
    """Effect: a pod has left the queue for good, bound or not. `active_at`: when it was first active, if ever."""

    uid: str
    key: str
    profile: str
    bound: bool
    attempts: int
    seen_at: float
    active_at: float | None
    ended_at: float


class Remember(msgspec.Struct, frozen=True):
    """Effect: this is to outlive the queue; it replaces what was to be remembered of the pod before."""

    uid: str
    kept: Kept


class Lapse(msgspec.Struct, frozen=True):
    """Effect: nothing is to be remembered of this pod any more."""

    uid: str


class Stale(msgspec.Struct, frozen=True):
    """Effect: the watch has shown a pod of the past, without the node that it is on. It was refused."""

    key: str


class Problem(msgspec.Struct, frozen=True):
    """Effect: somebody should know of this; nothing else was touched."""

    error: FlotillaError


Event = Seen | Observed | Activate | Listed | Take | Outcomes | Evicted | Forgotten | Assumed | Absorbed | Tick
Effect = Answer | Acknowledge | Notify | Withdrawn | Ended | Remember | Lapse | Stale | Problem
