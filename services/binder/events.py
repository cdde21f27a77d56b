"""What the binder is told, and what it wants done. Effects are to be carried out in order.

Structs rather than dataclasses: each pod costs several of these, and they are made three times as fast.
"""

from enum import Enum, StrEnum

import msgspec

from flotilla.results import ApiCall, Code
from shared.config.structs import ExtenderConfig
from shared.errors import FlotillaError
from shared.extenders.talk import name_of
from shared.messages.binding import BindingOrders, BindingOutcomes, PermitAnswer, Recall, Recalled, Withdraw
from shared.messages.identity import NameTaken
from shared.messages.state import BindingOrder


class Done(msgspec.Struct, frozen=True, gc=False):
    """The API server did it. `body`: what it answered to a call that does not bind."""

    body: bytes = b""


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The API server answered that it will not (4xx), or has certainly not got the call (status 0)."""

    status: int
    message: str


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """No answer, or one that leaves open whether it was done (5xx)."""

    message: str


Result = Done | Refused | Unknown


class Where(Enum):
    """What the API server says of a pod's place."""

    ON_NODE = "on a node"
    UNBOUND = "not bound"
    GONE = "gone"
    UNKNOWN = "no answer"


class Orders(msgspec.Struct, frozen=True, gc=False):
    """Event: the snapshot wants pods bound."""

    message: BindingOrders


class Called(msgspec.Struct, frozen=True, gc=False):
    """Event: what became of a Call of the same attempt and step."""

    uid: str
    attempt: int
    step: int
    result: Result


class LookedUp(msgspec.Struct, frozen=True, gc=False):
    """Event: the answer to a LookUp. A pod of this name with another uid counts as gone.

    `version`: the pod's, where it is not bound; where the LookUp `fences` one, it is another than that. `terminating`:
    the pod is being deleted, so it will not be bound.
    """

    uid: str
    attempt: int
    where: Where
    node: str = ""
    version: str = ""
    terminating: bool = False


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """Event: the snapshot has the report of this number."""

    number: int


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Event: time has passed."""


class Leave(msgspec.Struct, frozen=True, gc=False):
    """Event: begin nothing more, and hand back what only waits."""


class ExtenderBinding(msgspec.Struct, frozen=True, gc=False):
    """A call to an extender: to bind a pod."""

    extender: ExtenderConfig
    body: bytes

    @property
    def method(self) -> str:
        return "POST"


class Call(msgspec.Struct, frozen=True, gc=False):
    """Effect: make this call, if `BinderCore.awaits` it still; the answer is a Called.

    Calls are made in the order of their effects. None may outlast the deadline: from then on the pod is the snapshot's.
    """

    uid: str
    attempt: int
    step: int
    api: ApiCall | ExtenderBinding
    deadline: float
    binds: bool

    @property
    def asked(self) -> str:
        """For traces."""
        if isinstance(self.api, ExtenderBinding):
            return f"extender {name_of(self.api.extender)}"
        return f"{self.api.method} {self.api.path}"


class LookUp(msgspec.Struct, frozen=True, gc=False):
    """Effect: ask the API server where this pod is; the answer is a LookedUp of the same attempt.

    `fences`: should the pod still be at this version, give it another one, so that no call can bind it any more.
    """

    uid: str
    attempt: int
    namespace: str
    name: str
    fences: str = ""


class Report(msgspec.Struct, frozen=True, gc=False):
    """Effect: tell the snapshot; its answer is an Acknowledged. Comes again until then."""

    message: BindingOutcomes


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Effect: answer the snapshot's Recall. Should it be lost, the snapshot asks again."""

    message: Recalled


class Said(StrEnum):
    """What an Event on a pod is about: its reason, as kube-scheduler words it."""

    SCHEDULED = "Scheduled"
    FAILED = "FailedScheduling"


class Record(msgspec.Struct, frozen=True, gc=False):
    """Effect: an Event on the pod. Best effort."""

    said: Said
    uid: str
    namespace: str
    name: str
    scheduler: str
    message: str


class SetCondition(msgspec.Struct, frozen=True, gc=False):
    """Effect: the pod's condition PodScheduled is False, for this reason, and it is nominated nowhere. Best effort."""

    uid: str
    namespace: str
    name: str
    reason: str
    message: str


class Beat(msgspec.Struct, frozen=True, gc=False):
    """Effect: tell the snapshot that the binder lives, and how many orders it holds at most."""

    room: int


class Ended(msgspec.Struct, frozen=True, gc=False):
    """Effect: for traces: an attempt that began then is over. `reason` is empty if the pod is bound."""

    order: BindingOrder
    began: float
    reason: str


class Took(msgspec.Struct, frozen=True, gc=False):
    """Effect: for metrics: an extension point with at least one plugin has run, API calls included."""

    point: str
    code: Code
    profile: str
    seconds: float


class Activated(msgspec.Struct, frozen=True, gc=False):
    """Effect: plugins want these pods (uids) to be tried again."""

    uids: list[str]


class Waited(msgspec.Struct, frozen=True, gc=False):
    """Effect: for metrics: a wait for permits is over."""

    code: Code
    seconds: float


class Problem(msgspec.Struct, frozen=True, gc=False):
    """Effect: somebody should know of this; nothing else was touched."""

    error: FlotillaError


class Unnamed(msgspec.Struct, frozen=True, gc=False):
    """Effect: end this process. Another one has its name."""

    taken: NameTaken


Event = NameTaken | Orders | Recall | Called | LookedUp | PermitAnswer | Withdraw | Acknowledged | Tick | Leave
Told = Report | Answer | Record | SetCondition | Beat
Effect = Call | LookUp | Told | Ended | Took | Waited | Activated | Unnamed | Problem
