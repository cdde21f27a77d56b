"""Between queue and cycle: pods to decide, and what became of them.

Requests are numbered within the cycle's term and repeated until they are answered; a doubled one gets the same answer.
"""

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from shared.model.base import Count, Integer, Seconds
from shared.model.workloads import TopologyConstraint


class Take(msgspec.Struct, frozen=True, omit_defaults=True, tag="take"):
    """The cycle asks for up to `most` pods. Number n acknowledges batch n - 1; `epoch` is the cycle's.

    The queue answers as soon as it has a pod, and without any after `TAKE_PATIENCE`. `outcomes`: of decided pods, for a
    queue whose last batch said that it `hears_outcomes` here. They are handled when the Take first arrives.
    """

    epoch: Count
    number: Count
    most: Count
    outcomes: list["Outcome"] = []


TAKE_PATIENCE = 1.0
"""Seconds until the queue answers a Take without any pod."""


class GangGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A group in the tree of a gang that is made of composite pod groups.

    `parent`: the number of the group that it is in; a root names itself. Parents come before their groups. `least`: of
    a pod group, how many more members must be placed for it to count as placed; of a composite one, how many groups.
    `topology`, `placed_on`: as of a Gang, within the domain of its parent.
    """

    name: str
    parent: Count
    is_composite: bool
    least: Count
    topology: tuple[TopologyConstraint, ...] = ()
    placed_on: tuple[str, ...] = ()


class Gang(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A group of pods that are placed together or not at all. `least`: how many more members must be placed.

    `topology`: its constraints, at most MAX_TOPOLOGY_LEVELS, widest domain first. `placed_on`: nodes of its members
    that have one, at most MAX_PLACED_ON, those with the most members first: the others go to the same domains.
    `priority`: of all its members; None if each has its own. `groups`: of a gang that is a tree of groups, by number.
    `group`: the number of the pod's group. A pod of a Batch has `key`, `least` and `group`; the Batch has the rest.
    """

    key: str
    least: Count
    topology: tuple[TopologyConstraint, ...] = ()
    placed_on: tuple[str, ...] = ()
    priority: Integer | None = None
    never_preempts: bool = False
    groups: tuple[GangGroup, ...] = ()
    group: Count = 0


def name_of_gang(key: str) -> str:
    """`namespace/name` of the group, without its API."""
    return key.partition("/")[2]


MAX_PLACED_ON = 8
"""Nodes in a Gang: they only name its domains."""
MAX_PLACED_ON_CHARACTERS = 512
"""Of the nodes in a Gang together."""


class ClaimRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A resource claim by `namespace/name`, and its uid."""

    key: str
    uid: str


class QueuedClaims(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The resource claims that a pod names, in the order of its specification, for pods that have any.

    `content`: equal for pods whose claims ask for the same, or have the same devices, whatever their names.
    `private`: no other pending pod names one of them.
    """

    claims: list[ClaimRef]
    content: bytes
    private: bool = False


class QueuedVolumes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The volume claims that a pod uses, by name in the order of its volumes, if no other pod uses one of them and
    their names do not matter: pods whose claims have equal `content` are judged alike.
    """

    claims: list[str]
    content: bytes


class QueuedPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`pod`: the Pod as msgpack, as the watcher sent it. `attempt` counts from 1. `queued_at` is when the pod was first
    seen, `taken_at` when it left the active queue: Unix times by the queue's clock, for readers of the last release.

    Pods of one gang follow each other in a batch.
    """

    pod: msgspec.Raw
    attempt: Count
    queued_at: Seconds
    taken_at: Seconds
    gang: Gang | None = None
    claims: QueuedClaims | None = None
    volumes: QueuedVolumes | None = None


class Batch(msgspec.Struct, frozen=True, omit_defaults=True, tag="batch"):
    """Pods in queue order; the answer to the Take of this epoch and number.

    `seq`: the snapshot's sequence number that evaluations must have seen, because that change may have requeued the
    pods. `gangs`: by key, those of which there is more to say than their pods have.
    `sender_epoch`: the queue's. `hears_outcomes`: it has handled the outcomes in the Take; a queue of the last release
    does not.
    """

    epoch: Count
    number: Count
    pods: list[QueuedPod]
    seq: Count = 0
    sender_epoch: Count = 0
    hears_outcomes: bool = False
    gangs: dict[str, Gang] = {}

    def whole(self, queued: QueuedPod) -> QueuedPod:
        """One of its pods, with all that it says of the pod's gang."""
        gang = None if queued.gang is None else self.gangs.get(queued.gang.key)
        if queued.gang is None or gang is None:
            return queued
        return replace(queued, gang=replace(gang, group=queued.gang.group))


class Verdict(StrEnum):
    DECIDED = "decided"
    """The pod is assumed on a node, and will be bound."""
    UNSCHEDULABLE = "unschedulable"
    FAILED = "failed"
    """A plugin failed on the pod, or the pod cannot be read."""
    SUPERSEDED = "superseded"
    """The pod is placed already."""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`plugins` rejected the pod, so their events requeue it; `pending`: those that wait for something.

    `nominated`: its nominated node; empty ends its nomination, None leaves it as it is. `preemption`: the number of the
    nomination if victims are evicted for it; the pod is not tried again before they are. `deallocate`: resource claims
    of the pod, one of which is to give back its devices; `delete`: claims to be deleted.
    """

    uid: str
    verdict: Verdict
    node: str = ""
    message: str = ""
    plugins: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    nominated: str | None = None
    preemption: Count = 0
    deallocate: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


MAX_HINT = 900
"""Characters of a hint: an Event's note holds 1,024 bytes."""


class Hint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What would help a pod that fits nowhere, for an Event."""

    uid: str
    text: str


class Outcomes(msgspec.Struct, frozen=True, omit_defaults=True, tag="outcomes"):
    """From the cycle, repeated until Received. `hints`: about pods whose outcomes it has reported before."""

    epoch: Count
    number: Count
    outcomes: list[Outcome]
    hints: tuple[Hint, ...] = ()


class Received(msgspec.Struct, frozen=True, omit_defaults=True, tag="received"):
    """Acknowledges the message of this epoch and number. `sender_epoch`: of the queue or the snapshot that sends it."""

    epoch: Count
    number: Count
    sender_epoch: Count = 0


POD_GONE = "the pod is gone"
"""Prefix of the reason if there is no pod to decide again."""


class Forgotten(msgspec.Struct, frozen=True, omit_defaults=True, tag="forgotten"):
    """From the snapshot: these pods were assumed, are no longer, and must be decided again."""

    epoch: Count
    pods: list["ForgottenPod"]


class ForgottenPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`plugin` failed the pod's binding; `rejected`: by a rejection, not an error."""

    uid: str
    reason: str
    plugin: str = ""
    rejected: bool = False


class Assumed(msgspec.Struct, frozen=True, omit_defaults=True, tag="assumed"):
    """From the snapshot at the beginning of its term: all pods that are assumed and not bound yet.

    Decisions at the end of the previous term may be lost; such pods must be decided again.
    """

    epoch: Count
    uids: list[str]


class Absorbed(msgspec.Struct, frozen=True, omit_defaults=True, tag="absorbed"):
    """From the snapshot: the published state `seq` includes the watcher's stream up to this number of its epoch."""

    epoch: Count
    seq: Count
    watch_epoch: Count
    watch_seq: Count


class Activate(msgspec.Struct, frozen=True, omit_defaults=True, tag="activate"):
    """From a binder: a plugin activates these pods (uids), regardless of what they wait for."""

    uids: list[str]


class Inspect(msgspec.Struct, frozen=True, omit_defaults=True, tag="inspect"):
    """Asks for QueueContents."""


class QueueContents(msgspec.Struct, frozen=True, omit_defaults=True, tag="queue-contents"):
    """Uids by state."""

    active: list[str]
    backoff: list[str]
    unschedulable: list[str]
    gated: list[str]
    in_flight: list[str]
    """With the cycle, without an outcome."""
    binding: list[str]
    """Decided, not yet seen bound."""
