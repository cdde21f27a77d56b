"""Between queue and cycle: pods to decide, and what became of them.

Both ways are pulled or acknowledged, numbered within the cycle's term, and repeated until they are; a doubled message
is answered as the first one was.
"""

from enum import StrEnum

import msgspec


class Take(msgspec.Struct, frozen=True, omit_defaults=True, tag="take"):
    """From cycle: up to `most` pods, please. Number n says that batch n - 1 has arrived; `epoch` is cycle's.

    The queue answers as soon as it has any, or with none when it has kept the asker waiting for `TAKE_PATIENCE`.
    """

    epoch: int
    number: int
    most: int


TAKE_PATIENCE = 1.0


class Gang(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A group of pods that are placed together or not at all. `least`: so many more of them must find a place."""

    key: str
    least: int


class QueuedPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`pod`: the Pod as msgpack, as the watcher sent it. `attempt` counts from 1. `queued_at` is when the pod was first
    seen, `taken_at` when it left the active queue: Unix times by the queue's clock, for readers of the last release.

    Pods of one gang follow each other in a batch.
    """

    pod: msgspec.Raw
    attempt: int
    queued_at: float
    taken_at: float
    gang: Gang | None = None


class Batch(msgspec.Struct, frozen=True, omit_defaults=True, tag="batch"):
    """In queue order. Answers the Take of the same epoch and number.

    `seq`: snapshot's; these pods are to be judged on a state no older than that, for it may be what woke them.
    `sender_epoch`: the queue's.
    """

    epoch: int
    number: int
    pods: list[QueuedPod]
    seq: int = 0
    sender_epoch: int = 0


class Verdict(StrEnum):
    DECIDED = "decided"
    """It is assumed to be on a node and on its way to be bound."""
    UNSCHEDULABLE = "unschedulable"
    FAILED = "failed"
    """A plugin failed on it, or it cannot be read."""
    SUPERSEDED = "superseded"
    """It holds a place already."""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`plugins`: those that rejected it, so that their events wake it; `pending`: those that wait for something.

    `nominated`: the node that it is to have; empty if it loses the one it had, None where nothing is said about it.
    `preemption`: the number of the nomination if pods are made to leave for it; it is not tried before that is done.
    """

    uid: str
    verdict: Verdict
    node: str = ""
    message: str = ""
    plugins: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    nominated: str | None = None
    preemption: int = 0


class Outcomes(msgspec.Struct, frozen=True, omit_defaults=True, tag="outcomes"):
    """From cycle, sent again until it is acknowledged."""

    epoch: int
    number: int
    outcomes: list[Outcome]


class Received(msgspec.Struct, frozen=True, omit_defaults=True, tag="received"):
    """The message of this epoch and number has arrived and will not be forgotten.

    `sender_epoch`: that of the queue or the snapshot, which says so.
    """

    epoch: int
    number: int
    sender_epoch: int = 0


POD_GONE = "the pod is gone"
"""So begins the reason where there is nothing to decide anew; what the pod held is free all the same."""


class Forgotten(msgspec.Struct, frozen=True, omit_defaults=True, tag="forgotten"):
    """From snapshot: these pods were assumed, hold no place any more, and are to be decided anew."""

    epoch: int
    pods: list["ForgottenPod"]


class ForgottenPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`plugin` had its binding fail; `rejected`: it would not have the pod there, as opposed to an error."""

    uid: str
    reason: str
    plugin: str = ""
    rejected: bool = False


class Assumed(msgspec.Struct, frozen=True, omit_defaults=True, tag="assumed"):
    """From snapshot, as its term begins: these pods are assumed, and none that is not bound by now but them.

    What was decided at the end of the term before may have got lost with it; such pods are to be decided anew.
    """

    epoch: int
    uids: list[str]


class Absorbed(msgspec.Struct, frozen=True, omit_defaults=True, tag="absorbed"):
    """From snapshot: what the watcher said up to this number of its epoch is part of the state `seq`, and published."""

    epoch: int
    seq: int
    watch_epoch: int
    watch_seq: int


class Activate(msgspec.Struct, frozen=True, omit_defaults=True, tag="activate"):
    """From a binder: a plugin wants these pods (uids) to be tried again, whatever they wait for."""

    uids: list[str]


class Inspect(msgspec.Struct, frozen=True, omit_defaults=True, tag="inspect"):
    """What does the queue hold?"""


class QueueContents(msgspec.Struct, frozen=True, omit_defaults=True, tag="queue-contents"):
    """The uids of pods in each of the queue's places."""

    active: list[str]
    backoff: list[str]
    unschedulable: list[str]
    gated: list[str]
    in_flight: list[str]
    """Handed to cycle, no outcome yet."""
    binding: list[str]
    """Decided, and not yet seen bound."""
