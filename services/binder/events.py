"""The events that the binder's core handles, and the effects that its shell carries out in order.

Structs rather than dataclasses: each pod costs several, and structs are made three times as fast.
"""

from enum import Enum

import msgspec

from flotilla.results import ApiCall, Code
from shared.config.structs import ExtenderConfig
from shared.errors import FlotillaError
from shared.extenders.talk import name_of
from shared.messages.binding import (
    BindingOrders,
    BindingOutcomes,
    PermitAnswer,
    PermitHeard,
    Recall,
    Recalled,
    Withdraw,
)
from shared.messages.identity import NameTaken
from shared.messages.queue import Received
from shared.messages.state import BindingOrder
from shared.plugins.devices.device_readiness import WaitResult
from shared.plugins.devices.pre_bind import ClaimCreated


class Done(msgspec.Struct, frozen=True, gc=False):
    """The API server did it. `body`: its answer to a call that does not bind."""

    body: bytes = b""


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The API server refused the call (4xx), or certainly did not get it (status 0)."""

    status: int
    message: str


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """No answer, or one that leaves open whether the call was carried out (5xx)."""

    message: str


Result = Done | Refused | Unknown


class Where(Enum):
    """Where the pod is, by the API server."""

    ON_NODE = "on a node"
    UNBOUND = "not bound"
    GONE = "gone"
    UNKNOWN = "no answer"


class Called(msgspec.Struct, frozen=True, gc=False):
    """Event: the result of a Call, of the same attempt and step."""

    uid: str
    attempt: int
    step: int
    result: Result


class LookedUp(msgspec.Struct, frozen=True, gc=False):
    """Event: the answer to a LookUp. A pod of this name with another uid counts as gone.

    `version`: of a pod that is not bound; if the LookUp `fences` a version, another than that. `terminating`: the pod
    is being deleted, so it will not be bound.
    """

    uid: str
    attempt: int
    where: Where
    node: str = ""
    version: str = ""
    terminating: bool = False


class Nominated(msgspec.Struct, frozen=True, gc=False):
    """Event: the answer to a Nominate. `version`: of the pod with its nomination; empty if it was not written."""

    uid: str
    attempt: int
    version: str


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Event: time has passed."""


class Leave(msgspec.Struct, frozen=True, gc=False):
    """Event: begin nothing more, and hand back what waits."""


class Exit(msgspec.Struct, frozen=True, gc=False):
    """Event: the process ends now, so that nothing more will come of what is under way."""


class ExtenderBinding(msgspec.Struct, frozen=True, gc=False):
    """A call that has an extender bind the pod."""

    extender: ExtenderConfig
    body: bytes


class Call(msgspec.Struct, frozen=True, gc=False):
    """Effect: make this call, if `BinderCore.awaits` it; Called answers it.

    Calls are made in the order of their effects, but those that continue an attempt go first: so pods that take several
    calls are bound one after the other, and not all at the end. None may outlast the deadline: from then on the
    snapshot decides.
    """

    uid: str
    attempt: int
    step: int
    api: ApiCall | ExtenderBinding
    deadline: float
    binds: bool

    @property
    def continues(self) -> bool:
        """Whether it follows another call of the attempt. A read does not: it may be one of many polls."""
        return self.step > 1 and not (isinstance(self.api, ApiCall) and self.api.method == "GET")

    @property
    def name(self) -> str:
        """In traces."""
        if isinstance(self.api, ExtenderBinding):
            return f"extender {name_of(self.api.extender)}"
        return f"{self.api.method} {self.api.path}"


class LookUp(msgspec.Struct, frozen=True, gc=False):
    """Effect: ask the API server where the pod is; LookedUp answers it.

    `fences`: if the pod is still at this version, give it another one, so that no earlier call can bind it.
    """

    uid: str
    attempt: int
    namespace: str
    name: str
    fences: str = ""


class Nominate(msgspec.Struct, frozen=True, gc=False):
    """Effect: write the node of the order into the pod's `status.nominatedNodeName`; Nominated answers it.

    Best effort: for autoscalers, to which the pod would look unscheduled while it waits for permits or PreBind. Only if
    `BinderCore.awaits` it, and the pod has the order's version.
    """

    order: BindingOrder

    @property
    def uid(self) -> str:
        return self.order.uid

    @property
    def attempt(self) -> int:
        return self.order.attempt


class TellOwner(msgspec.Struct, frozen=True, gc=False):
    """Effect: record an Event on the pod. Best effort.

    `failure`: set its condition PodScheduled to False with this reason, too, and clear its nomination; empty if bound.
    """

    order: BindingOrder
    message: str
    failure: str = ""


class TellDevicesAwaited(msgspec.Struct, frozen=True, gc=False):
    """Effect: record an Event on the pod, whose devices have binding conditions. Best effort."""

    order: BindingOrder


class DeviceWaitEnded(msgspec.Struct, frozen=True, gc=False):
    """Effect: for metrics: the wait for binding conditions of devices of these drivers is over."""

    profile: str
    drivers: tuple[str, ...]
    result: WaitResult
    seconds: float


class SendBeat(msgspec.Struct, frozen=True, gc=False):
    """Effect: tell the snapshot that the binder is alive, and how many orders it may hold."""

    room: int
    epoch: int = 0
    number: int = 0


class EndProcess(msgspec.Struct, frozen=True, gc=False):
    """Effect: begin again in a new process, because what this one follows cannot be true."""

    why: str


class AttemptEnded(msgspec.Struct, frozen=True, gc=False):
    """Effect: for logs and traces. `reason` is empty if the pod is bound."""

    order: BindingOrder
    began: float
    reason: str


class PermitWaitEnded(msgspec.Struct, frozen=True, gc=False):
    """Effect: for metrics."""

    code: Code
    seconds: float


class ActivatePods(msgspec.Struct, frozen=True, gc=False):
    """Effect: plugins ask the queue to retry these pods (uids)."""

    uids: list[str]


class Problem(msgspec.Struct, frozen=True, gc=False):
    """Effect: log and count an error that affects nothing else."""

    error: FlotillaError


Event = (
    Called
    | Nominated
    | BindingOrders
    | Recall
    | Received
    | Tick
    | LookedUp
    | PermitAnswer
    | Withdraw
    | NameTaken
    | Leave
)
"""`NameTaken`: another process has our name; also an effect: end this process."""
Effect = (
    Call
    | LookUp
    | Nominate
    | BindingOutcomes
    | Recalled
    | TellOwner
    | TellDevicesAwaited
    | SendBeat
    | EndProcess
    | ActivatePods
    | NameTaken
    | Problem
    | AttemptEnded
    | PermitWaitEnded
    | PermitHeard
    | DeviceWaitEnded
    | ClaimCreated
)
"""`BindingOutcomes` and `Recalled` go to the snapshot: the first until Received, the second once for each Recall.
`ClaimCreated` is for metrics.
"""
