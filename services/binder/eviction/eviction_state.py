"""Evictions: what the machine that carries them out is told and wants done, and how far each victim is."""

from enum import StrEnum

import msgspec

from shared.kube.notes import DisruptionTarget, PodStanding
from shared.messages.binding import Displaced, Evict

Key = tuple[str, int]
"""The uid of the pod that others make way for, and the number of its nomination."""


class Step(StrEnum):
    """What is asked of the API server for a victim, in this order; what goes wrong begins again with a look."""

    LOOK = "look"
    MARK = "mark"
    DELETE = "delete"


class Found(msgspec.Struct, frozen=True, gc=False):
    """To a look: what stands there under the victim's name."""

    pod: PodStanding


class Done(msgspec.Struct, frozen=True, gc=False):
    """To a mark or a deletion."""


class Gone(msgspec.Struct, frozen=True, gc=False):
    """There is no such pod."""


class Failed(msgspec.Struct, frozen=True, gc=False):
    """`final`: asking again would not help. `maybe_done`: it may have been done all the same."""

    message: str
    final: bool = False
    maybe_done: bool = False


Reply = Found | Done | Gone | Failed


class Ask(msgspec.Struct, frozen=True):
    """Effect: ask this of the API server; each is answered by one Answered. It may not outlast the deadline.

    `priority`: the victim's, as it was looked at; 0 before.
    """

    evict: Evict
    victim: Displaced
    number: int
    step: Step
    deadline: float
    condition: DisruptionTarget | None = None
    priority: int = 0

    @property
    def key(self) -> Key:
        return self.evict.uid, self.evict.attempt


class Answered(msgspec.Struct, frozen=True):
    """Event: what became of this."""

    ask: Ask
    reply: Reply


class Heard(msgspec.Struct, frozen=True, gc=False):
    """Event: the queue knows how the eviction of this number for that pod has ended."""

    uid: str
    attempt: int


class Unnominate(msgspec.Struct, frozen=True, gc=False):
    """Effect: this pod's status is not to say any more that it is nominated to that node. Best effort."""

    pod: Displaced
    node: str


class Preempted(msgspec.Struct, frozen=True):
    """Effect: an Event on the victim: it has been told to go, or (`in_memory`) was kept from being bound."""

    evict: Evict
    victim: Displaced
    in_memory: bool = False


class Began(msgspec.Struct, frozen=True, gc=False):
    """Effect: for metrics: so many pods are to make way for one."""

    victims: int


class Over(msgspec.Struct, frozen=True, gc=False):
    """Effect: for metrics: an eviction has ended."""

    seconds: float
    failed: bool


class Stage(StrEnum):
    IDLE = "idle"
    """It has not begun."""
    READY = "ready"
    """Its next step is made once there is room for another call."""
    ASKED = "asked"
    PAUSED = "paused"
    """It is looked at again after a while."""
    OVER = "over"


class Victim:
    __slots__ = ("condition", "deleting", "looks", "number", "pause", "pod", "priority", "resume_at", "stage", "step")

    def __init__(self, pod: Displaced, pause: float) -> None:
        self.pod = pod
        self.stage = Stage.IDLE
        self.step = Step.LOOK
        self.condition: DisruptionTarget | None = None
        """To be written with the next mark."""
        self.priority = 0
        """As the API server said at the last look."""
        self.number = 0
        """Of the last step that was asked for."""
        self.looks = 0
        """How often it was found not bound after it was withdrawn."""
        self.deleting = False
        """Its deletion has been asked for, and may have been carried out."""
        self.pause = pause
        """Seconds until the next try, should something go wrong."""
        self.resume_at = 0.0

    @property
    def assumed(self) -> bool:
        """It was not known to be bound."""
        return self.pod.attempt != 0


class Eviction:
    __slots__ = ("began", "deadline", "evict", "failure", "victims")

    def __init__(self, evict: Evict, deadline: float, pause: float) -> None:
        self.evict = evict
        self.deadline = deadline
        self.began = 0.0
        self.failure = ""
        self.victims = {victim.uid: Victim(victim, pause) for victim in evict.victims}

    @property
    def key(self) -> Key:
        return self.evict.uid, self.evict.attempt

    @property
    def message(self) -> str:
        """Of the victims' condition."""
        return f"{self.evict.profile}: preempting to accommodate a higher priority pod"

    def under_way(self) -> bool:
        return any(victim.stage not in (Stage.IDLE, Stage.OVER) for victim in self.victims.values())

    def idle(self) -> list[Victim]:
        return [victim for victim in self.victims.values() if victim.stage is Stage.IDLE]
