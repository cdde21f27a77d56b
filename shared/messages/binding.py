"""Between snapshot and binders: orders, and what became of them. And what is to be told to the owner of a pod."""

import msgspec

from shared.messages.state import BindingOrder


class BindingOrders(msgspec.Struct, frozen=True, omit_defaults=True, tag="bind"):
    """To one binder. `epoch` is the snapshot's; an older one than the binder has seen is refused."""

    epoch: int
    orders: list[BindingOrder]


class BinderBeat(msgspec.Struct, frozen=True, omit_defaults=True, tag="binder-beat"):
    """A binder lives, and has room for so many orders in all. `incarnation` differs for each start of the process.

    A binder that does not beat any more, or has begun anew, has lost its orders: the snapshot looks them up.
    """

    binder: str
    incarnation: str
    room: int


class BindingOutcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`reason`: why it will not be bound; empty if it is. `until`: not known yet, it waits for a permit till then."""

    uid: str
    attempt: int
    reason: str = ""
    until: float | None = None

    @property
    def bound(self) -> bool:
        return not self.reason and self.until is None


class BindingOutcomes(msgspec.Struct, frozen=True, omit_defaults=True, tag="bound"):
    """From a binder, sent again until it is acknowledged with Received (epoch, number)."""

    binder: str
    epoch: int
    number: int
    outcomes: list[BindingOutcome]


class PermitAnswer(msgspec.Struct, frozen=True, omit_defaults=True, tag="permit"):
    """To all binders: a pod that waits for this plugin's permit has it, or will not get it."""

    uid: str
    plugin: str
    allow: bool
    reason: str = ""


class Notice(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod could not be scheduled: an Event says so, and (`patch`) its PodScheduled condition.

    `reason` is kube-scheduler's: Unschedulable, SchedulerError or SchedulingGated.
    """

    uid: str
    namespace: str
    name: str
    scheduler: str
    reason: str
    message: str
    patch: bool = True
    event: bool = True


class Notices(msgspec.Struct, frozen=True, omit_defaults=True, tag="notices"):
    """To any one binder."""

    notices: list[Notice]
