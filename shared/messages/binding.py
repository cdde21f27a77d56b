"""Between snapshot and binders: orders, and what became of them. And what is to be told to the owner of a pod."""

import msgspec

from shared.messages.state import BindingOrder

LONGEST_WAIT = 15 * 60.0
"""Seconds that a binder may ask for at a time: no plugin waits longer for a permit, and PreBind asks again."""


class BindingOrders(msgspec.Struct, frozen=True, omit_defaults=True, tag="bind"):
    """To one binder process. `epoch` is the snapshot's.

    A binder refuses an older epoch than it has seen, another `incarnation` than its own, and within an epoch a `number`
    that is not above the last: so it never carries out an order that it may have had, ended and forgotten.
    """

    epoch: int
    orders: list[BindingOrder]
    incarnation: str = ""
    number: int = 0


class BinderBeat(msgspec.Struct, frozen=True, omit_defaults=True, tag="binder-beat"):
    """A binder lives, and has room for so many orders in all. `incarnation` differs for each start of the process.

    A binder that does not beat any more, or has begun anew, or is `gone`, has lost its orders: others get them.
    `at`: the binder's Unix time, `uptime`: seconds since the process began, each 0 if it does not say.
    """

    binder: str
    incarnation: str
    room: int
    gone: bool = False
    at: float = 0.0
    uptime: float = 0.0


class BindingOutcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`reason`: why it will not be bound; empty if it is. `wait`: not known yet, it may wait for so many more seconds.

    `plugin` had it fail; `rejected`: it would not have the pod there, as opposed to an error. `handed_back`: nothing
    was asked of the API server that could bind it, and another binder is to have the order. `gone`: the API server has
    no such pod, or another of its name; so nobody will bind it. `version`: the one in the order that this is about.
    `fenced`: no call that names this version can bind the pod any more, whoever makes it; without that, a failure says
    that this process has made none, and will not. `found`: the pod is not bound and at this version now; the attempt
    goes on once it is ordered with that.
    """

    uid: str
    attempt: int
    reason: str = ""
    plugin: str = ""
    rejected: bool = False
    handed_back: bool = False
    gone: bool = False
    version: str = ""
    fenced: bool = False
    found: str = ""
    wait: float | None = None

    @property
    def bound(self) -> bool:
        return not (self.reason or self.found or self.waits)

    @property
    def waits(self) -> bool:
        return self.wait is not None

    @property
    def failed(self) -> bool:
        """Finally, as far as the binder is concerned."""
        return bool(self.reason) and not self.found and not self.waits


class BindingOutcomes(msgspec.Struct, frozen=True, omit_defaults=True, tag="bound"):
    """From a binder, sent again until it is acknowledged with Received (epoch, number).

    `incarnation`: of the process that says so, as in its beats.
    """

    binder: str
    epoch: int
    number: int
    outcomes: list[BindingOutcome]
    incarnation: str = ""


class Recall(msgspec.Struct, frozen=True, omit_defaults=True, tag="recall"):
    """From the snapshot of a new term to one binder process: which attempts does it hold?

    From then on the binder refuses older epochs. `number`: of the question, which the answer repeats.
    """

    epoch: int
    number: int
    incarnation: str


class HeldAttempt(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A binder has it, and goes on with it. `version`: as in its order. `wait`: seconds that it may still wait."""

    uid: str
    attempt: int
    version: str = ""
    wait: float = 0.0


class Recalled(msgspec.Struct, frozen=True, omit_defaults=True, tag="recalled"):
    """To Recall: one of `parts` parts of what the process holds, from 0 on. Asked for again until all have come."""

    binder: str
    incarnation: str
    epoch: int
    number: int
    part: int
    parts: int
    attempts: list[HeldAttempt] = []


class PermitAnswer(msgspec.Struct, frozen=True, omit_defaults=True, tag="permit"):
    """To all binders: a pod that waits for this plugin's permit has it, or will not get it."""

    uid: str
    plugin: str
    allow: bool
    reason: str = ""


class Withdraw(msgspec.Struct, frozen=True, omit_defaults=True, tag="withdraw"):
    """To all binders: whoever has this attempt ends it as rejected by `plugin`, unless its pod may be bound already.

    `epoch`: the snapshot's; a binder that withdraws a victim has it from the Evict. Without one, or with an older one
    than the binder has seen, it is refused.
    """

    uid: str
    attempt: int
    plugin: str
    reason: str
    epoch: int = 0


class Displaced(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that is to leave its node, or to lose its nomination. `attempt`: it is assumed by that; 0: it is bound."""

    uid: str
    namespace: str
    name: str
    attempt: int = 0


class Evict(msgspec.Struct, frozen=True, omit_defaults=True, tag="evict"):
    """To any one binder: have these pods make way for the pod of this uid, which is nominated to `node`.

    `epoch` is the snapshot's, `attempt` the sequence number of the nomination. `denominated`: pods of lower priority
    that were nominated to the node and are not any more. May be carried out twice. `window`: seconds from the arrival
    after which no further victim is touched; 0: as long as the binder sees fit.
    """

    epoch: int
    attempt: int
    uid: str
    namespace: str
    name: str
    profile: str
    node: str
    victims: list[Displaced]
    denominated: list[Displaced] = []
    window: float = 0.0


class IsNominated(msgspec.Struct, frozen=True, omit_defaults=True, tag="is-nominated"):
    """From a binder to the snapshot, before a victim is touched: does this nomination stand, and for these victims?

    Everything as in the Evict.
    """

    uid: str
    attempt: int
    node: str
    victims: list[str] = []


class Nominated(msgspec.Struct, frozen=True, omit_defaults=True, tag="nominated"):
    """To IsNominated. `epoch`: the snapshot's; one that is older than the Evict's knows nothing of it."""

    epoch: int
    stands: bool = False


class Evicted(msgspec.Struct, frozen=True, omit_defaults=True, tag="evicted"):
    """From a binder to the queue: all victims have been told to go, or (`failure`) why not all of them.

    Sent again until the queue acknowledges it with Received; the snapshot hears it too.
    """

    uid: str
    attempt: int
    failure: str = ""


class Notice(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod could not be scheduled: an Event says so, and (`patch`) its PodScheduled condition.

    `reason` is kube-scheduler's: Unschedulable, SchedulerError or SchedulingGated. `nominated`: the node that the pod
    is to have in its status; empty for none, None where nothing is said about it. `version`: the pod's
    metadata.resourceVersion that this is about, empty if unknown: a pod that has been bound since is not to be told.
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


class Notices(msgspec.Struct, frozen=True, omit_defaults=True, tag="notices"):
    """To any one binder. `epoch`: the queue's."""

    notices: list[Notice]
    epoch: int = 0
