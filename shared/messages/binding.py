"""Between snapshot and binders: orders, evictions and their outcomes. From the queue to binders: notices for owners of
pods. From the command line to binders: which pods wait for permits?
"""

from typing import Literal

import msgspec

from shared.messages.state import BindingOrder
from shared.model.base import Count, Integer, Seconds
from shared.model.devices import AllocationResult

LONGEST_WAIT = 15 * 60.0
"""Seconds that a binder may wait for at a time: the longest permit; a longer PreBind extends its wait."""
OVERDUE = "the binding was not finished in time"
"""Why an attempt failed whose deadline has passed: at the binder, or in the snapshot's ledger."""


class BindingOrders(msgspec.Struct, frozen=True, omit_defaults=True, tag="bind"):
    """To one binder process, from the snapshot of this `epoch`.

    A binder refuses an epoch older than the newest it has seen, an `incarnation` that is not its own, and a
    `number` that does not exceed the last one of the epoch. So it never repeats an order that it has finished and
    forgotten.
    """

    epoch: Count
    orders: list[BindingOrder]
    incarnation: str = ""
    number: Count = 0


class BinderBeat(msgspec.Struct, frozen=True, omit_defaults=True, tag="binder-beat"):
    """A binder's heartbeat, with the number of orders that it can still take. `incarnation` differs for each process.

    Orders of a binder that stops sending heartbeats, has restarted, or is `gone` go to other binders. `at`: the
    binder's Unix time, `uptime`: seconds since the process began; 0 if unknown. `epoch`, `number`: the newest of the
    snapshot that it obeys.
    """

    binder: str
    incarnation: str
    room: Count
    gone: bool = False
    at: Seconds = 0.0
    uptime: Seconds = 0.0
    epoch: Count = 0
    number: Count = 0


class BindingOutcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The outcome of an attempt, or its state. `reason`: why it failed; empty if the pod is bound. `wait`: it may take
    this many more seconds.

    `plugin` made it fail; `rejected`: as unschedulable, not with an error. `handed_back`: no bind call was made,
    and another binder may have the order. `gone`: the API server has no such pod, or another one of that name, so
    it will never be bound. `version`: the order's pod version; empty if this process's bind call may still succeed.
    `fenced`: no bind call with this version can succeed any more, by any process; without it, another process's call
    may still bind the pod.
    `found`: the pod is unbound and has this version now; the attempt continues once it is ordered with it.
    """

    uid: str
    attempt: Count
    reason: str = ""
    plugin: str = ""
    rejected: bool = False
    handed_back: bool = False
    gone: bool = False
    version: str = ""
    fenced: bool = False
    found: str = ""
    wait: Seconds | None = None

    @property
    def bound(self) -> bool:
        return not (self.reason or self.found or self.waits)

    @property
    def waits(self) -> bool:
        return self.wait is not None

    @property
    def failed(self) -> bool:
        """No further outcome of this binder will follow."""
        return bool(self.reason) and not self.found and not self.waits


class BindingOutcomes(msgspec.Struct, frozen=True, omit_defaults=True, tag="bound"):
    """From a binder, repeated until it is acknowledged by Received (epoch, number).

    `incarnation`: of the sender, as in its heartbeats.
    """

    binder: str
    epoch: Count
    number: Count
    outcomes: list[BindingOutcome]
    incarnation: str = ""


class Recall(msgspec.Struct, frozen=True, omit_defaults=True, tag="recall"):
    """From the snapshot of a new term to one binder process: which attempts do you hold?

    From then on the binder refuses older epochs. The reply repeats `number`. `orders`: the number of the last orders
    to any binder. One whose beat names a later epoch or number is asked at each beat; it ends if it hears nothing
    else.
    """

    epoch: Count
    number: Count
    incarnation: str
    orders: Count = 0


class HeldAttempt(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An attempt that the binder holds and continues. `version`: as in its order. `wait`: seconds that it may still
    wait.
    """

    uid: str
    attempt: Count
    version: str = ""
    wait: Seconds = 0.0


class Recalled(msgspec.Struct, frozen=True, omit_defaults=True, tag="recalled"):
    """Reply to Recall: one of `parts` parts, counted from 0. The snapshot asks again until it has all of them."""

    binder: str
    incarnation: str
    epoch: Count
    number: Count
    part: Count
    parts: Count
    attempts: list[HeldAttempt] = []


class PermitAnswer(msgspec.Struct, frozen=True, omit_defaults=True, tag="permit"):
    """To all binders, on `binder.permits`: this plugin allows the pod, or rejects it.

    `attempt`: only this one is meant; 0: whichever waits, or is the next to. `id`: chosen by a sender that wants to be
    told what becomes of the answer: each binder replies with PermitHeard.
    """

    uid: str
    plugin: str
    allow: bool
    reason: str = ""
    attempt: Count = 0
    id: str = ""


class Withdraw(msgspec.Struct, frozen=True, omit_defaults=True, tag="withdraw"):
    """To all binders: the holder of this attempt ends it as rejected by `plugin`, unless its pod may already be bound.

    `epoch`: the snapshot's; a binder that withdraws a victim copies it from the Evict. Without one, or with one
    older than the binder has seen, the message is refused.
    """

    uid: str
    attempt: Count
    plugin: str
    reason: str
    epoch: Count = 0


class Displaced(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that is to leave its node or lose its nomination. `attempt`: it is assumed by that one; 0: it is bound.

    `violates`: names of the PodDisruptionBudgets, of its namespace, that do not allow its eviction; a few at most.
    """

    uid: str
    namespace: str
    name: str
    attempt: Count = 0
    violates: tuple[str, ...] = ()


class Evict(msgspec.Struct, frozen=True, omit_defaults=True, tag="evict"):
    """To any one binder: evict these victims of the pod with this uid, which is nominated to `node`.

    `epoch` is the snapshot's, `attempt` the sequence number of the nomination. `denominated`: pods of lower
    priority whose nomination to the node was revoked. May be carried out twice. `window`: seconds from arrival
    after which no further victim is touched; 0: the binder's own limit. `gang`: the victims are evicted for this gang,
    named as in a Nominate.
    """

    epoch: Count
    attempt: Count
    uid: str
    namespace: str
    name: str
    profile: str
    node: str
    victims: list[Displaced]
    denominated: list[Displaced] = []
    window: Seconds = 0.0
    gang: str = ""


class NominationOf(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A nomination with these victims. All fields as in the Evict."""

    uid: str
    attempt: Count
    node: str
    victims: list[str] = []


class IsNominated(msgspec.Struct, frozen=True, omit_defaults=True, tag="is-nominated"):
    """From a binder to the snapshot, before a victim is touched: does this nomination stand, with these victims?

    All fields as in the Evict. `more`: further nominations that are asked about.
    """

    uid: str
    attempt: Count
    node: str
    victims: list[str] = []
    more: list[NominationOf] = []


class Nominated(msgspec.Struct, frozen=True, omit_defaults=True, tag="nominated"):
    """Reply to IsNominated. `epoch`: the snapshot's; one older than the Evict's cannot know the nomination.

    `more`: whether each of the further ones stands; empty from a snapshot of the last release.
    """

    epoch: Count
    stands: bool = False
    more: list[bool] = []


class IsPlaced(msgspec.Struct, frozen=True, omit_defaults=True, tag="is-placed"):
    """From a binder to the snapshot, before a pod's claim is released: is the pod assumed, or bound by now?

    `group`: or any pod of this PodGroup (`namespace/name`), which the claim is reserved for.
    """

    uid: str
    group: str = ""


class PlacedNow(msgspec.Struct, frozen=True, omit_defaults=True, tag="placed-now"):
    """Reply to IsPlaced. `epoch`: the snapshot's; one older than the binder has heard of cannot know.

    `group`: that was asked about; a snapshot of the last release does not look at it.
    """

    epoch: Count
    placed: bool = False
    group: str = ""


class EvictedPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that was told to terminate, or (`in_memory`) was kept from being bound. `owner`: its controller, as
    `ReplicaSet/web`. `group`: the name of its pod group. `node`: where it ran, if that is another node than the
    preemptor's, as of victims of a gang. `violates`: as in Displaced.
    """

    uid: str
    namespace: str
    name: str
    owner: str = ""
    priority: Integer = 0
    in_memory: bool = False
    group: str = ""
    node: str = ""
    violates: tuple[str, ...] = ()


class Preemption(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The victims of this pod on `node`. `gang`: it is a member of, whose victims may be on other nodes, too."""

    namespace: str
    name: str
    node: str
    victims: tuple[EvictedPod, ...] = ()
    gang: str = ""


class Evicted(msgspec.Struct, frozen=True, omit_defaults=True, tag="evicted"):
    """From a binder to the queue: all victims were told to terminate, or (`failure`) why not all of them.

    Repeated until the queue acknowledges it by Received; the snapshot receives it too. `preemption`: what the binder
    did, for the journal; None from binders of the last release.
    """

    uid: str
    attempt: Count
    failure: str = ""
    preemption: Preemption | None = None


class ClaimRelease(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A resource claim that is to give back this allocation; without one, that is to be deleted.

    A claim that has changed since, or that another pod uses, is left alone. `group`: the name of the pod's PodGroup, if
    the claim is reserved for it; it is left alone if a pod of the group has a node by now. `members`: other pods of the
    group that it may be reserved for; it is left alone if one of them has a node by now.
    """

    key: str
    uid: str
    allocation: AllocationResult | None = None
    group: str = ""
    members: list[str] = []


class Notice(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod could not be scheduled: write an Event, and (`patch`) its PodScheduled condition.

    `reason` is kube-scheduler's: Unschedulable, SchedulerError or SchedulingGated. `nominated`: the status's
    nominatedNodeName; empty to clear it, None to leave it. `version`: the resourceVersion of the pod that failed,
    empty if unknown; a pod that was bound since is left alone. `releases`: claims of the pod that keep it from being
    scheduled. `told_as`: the Event's reason, if it is Normal and not FailedScheduling.
    """

    uid: str
    namespace: str
    name: str
    scheduler: str
    reason: str
    message: str
    patch: bool = True
    event: bool = True
    nominated: str | None = None
    version: str = ""
    releases: list[ClaimRelease] = []
    told_as: str = ""


class GroupNotice(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Write to a PodGroup of scheduling.k8s.io whether it was placed. `reason` is kube-scheduler's: Scheduled if it
    was, otherwise Unschedulable, SchedulerError or Invalid. `composite`: it is a CompositePodGroup.
    """

    key: str
    uid: str
    reason: str
    message: str = ""
    composite: bool = False

    @property
    def is_placed(self) -> bool:
        return self.reason == GROUP_SCHEDULED


GROUP_SCHEDULED = "Scheduled"
GROUP_INVALID = "Invalid"
"""The groups above it form no tree; kube-scheduler's API names this reason since v1.37."""


class Notices(msgspec.Struct, frozen=True, omit_defaults=True, tag="notices"):
    """To any one binder. `epoch`: the queue's. `groups`: not written by binders of the last release."""

    notices: list[Notice]
    epoch: Count = 0
    groups: list[GroupNotice] = []


# What happened to a pod


class FindAttempt(msgspec.Struct, frozen=True, omit_defaults=True, tag="find-attempt"):
    """To all binders, on `binder.list`: the last attempt to bind this pod. Only a binder that remembers it replies."""

    uid: str


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When (Unix time) an attempt entered a state."""

    at: Seconds
    state: str


class AttemptFound(msgspec.Struct, frozen=True, omit_defaults=True, tag="attempt-found"):
    """`reason`: why it failed."""

    binder: str
    attempt: Count
    steps: tuple[Step, ...]
    reason: str = ""


# Pods that wait for permits

MAX_LISTED = 1000
"""Pods in one answer."""


class PermitHeard(msgspec.Struct, frozen=True, omit_defaults=True, tag="permit-heard"):
    """From each binder, on `binder.waiting`: what became of the PermitAnswer with this `id` there.

    `counted`: the pod waited for it. `kept`: until the attempt begins to wait. `late`: the attempt is past its permits,
    or has kept too many answers. `unknown`: the binder has no such attempt, so another one may have it.
    """

    id: str
    binder: str
    uid: str
    result: Literal["counted", "kept", "late", "unknown"]


class ListPermits(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-permits"):
    """To all binders, on `binder.permits`. `id` is chosen by the asker and repeated in each answer."""

    id: str


class PermitPending(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that waits for permits. `plugins`: those that have not allowed it, and the seconds that it waits for them.

    `since`: when the wait began (Unix time, by the binder's clock). `waited`: seconds so far; None from binders of
    the last release. `attempt`: for a PermitAnswer that is to count for this wait only.
    """

    uid: str
    namespace: str
    name: str
    node: str
    since: Seconds
    plugins: dict[str, Seconds]
    waited: Seconds | None = None
    attempt: Count = 0


class Permits(msgspec.Struct, frozen=True, omit_defaults=True, tag="permits"):
    """From each binder, on `binder.waiting`: its waiting pods, longest first. `more`: how many are not listed."""

    id: str
    binder: str
    waiting: list[PermitPending]
    more: Count = 0
