"""Evictions: their events and effects, and the state of each eviction and victim."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from shared.errors import InvariantBroken
from shared.kube.events_and_conditions import DisruptionTarget, ObservedPod
from shared.messages.binding import Displaced, Evict, EvictedPod

Key = tuple[str, int]
"""The preemptor's uid, and the number of its nomination."""


class Step(StrEnum):
    """The calls to the API server for a victim, in order; after a failure the first is made again.

    CANCEL: for a marked victim of a failed eviction, instead of the others.
    """

    LOOK_UP = "look-up"
    MARK = "mark"
    DELETE = "delete"
    CANCEL = "cancel"


class Found(msgspec.Struct, frozen=True, gc=False):
    """Reply to a look-up: the pod that has the victim's name."""

    pod: ObservedPod


class Done(msgspec.Struct, frozen=True, gc=False):
    """Reply to a mark, a deletion or a cancellation. `version`: the pod's resourceVersion, if it was marked."""

    version: str = ""


class Gone(msgspec.Struct, frozen=True, gc=False):
    """Reply: there is no such pod."""


class Failed(msgspec.Struct, frozen=True, gc=False):
    """Reply. `final`: a retry would not help. `maybe_done`: the call may have been carried out."""

    message: str
    final: bool = False
    maybe_done: bool = False


Reply = Found | Done | Gone | Failed


class EvictionCall(msgspec.Struct, frozen=True):
    """Effect: make this call, within the deadline; Answered answers it.

    `priority`: the victim's, as it was looked up; 0 before. `version`: the only one that may be deleted.
    """

    evict: Evict
    victim: Displaced
    number: int
    step: Step
    deadline: float
    condition: DisruptionTarget | None = None
    priority: int = 0
    version: str = ""

    @property
    def key(self) -> Key:
        return self.evict.uid, self.evict.attempt


class Answered(msgspec.Struct, frozen=True):
    """Event: the reply to a call."""

    call: EvictionCall
    reply: Reply


class EvictedAcknowledged(msgspec.Struct, frozen=True, gc=False):
    """Event: the queue knows how this eviction has ended."""

    uid: str
    attempt: int


class ClearNomination(msgspec.Struct, frozen=True, gc=False):
    """Effect: clear the pod's nomination to this node from its status. Best effort."""

    pod: Displaced
    node: str


class RecordPreempted(msgspec.Struct, frozen=True):
    """Effect: an Event on the victim, which was evicted, or (`in_memory`) rejected before it was bound. `node`: its
    own, if that is not the preemptor's.
    """

    evict: Evict
    victim: Displaced
    in_memory: bool = False
    node: str = ""


class RecordPreemption(msgspec.Struct, frozen=True):
    """Effect: an Event on the preemptor that names its victims."""

    evict: Evict
    victims: list[EvictedPod]


class EvictionBegan(msgspec.Struct, frozen=True, gc=False):
    """Effect: for metrics."""

    victims: int


class EvictionEnded(msgspec.Struct, frozen=True, gc=False):
    """Effect: for metrics."""

    seconds: float
    failed: bool


class VictimState(StrEnum):
    IDLE = "idle"
    """Its eviction has not begun."""
    READY = "ready"
    """Its next call is made once there is room for it."""
    CALLING = "calling"
    PAUSED = "paused"
    """Looked up again after a pause."""
    OVER = "over"


V = VictimState
VICTIM_TRANSITIONS: Mapping[VictimState, frozenset[VictimState]] = {
    V.IDLE: frozenset({V.READY, V.PAUSED}),
    V.READY: frozenset({V.CALLING, V.OVER}),
    V.CALLING: frozenset({V.READY, V.PAUSED, V.OVER}),
    V.PAUSED: frozenset({V.READY, V.OVER}),
    V.OVER: frozenset(),
}
"""An assumed victim begins PAUSED: it is withdrawn from the binders, and looked up after that."""


@dataclass(slots=True, eq=False)
class VictimEviction:
    pod: Displaced
    pause: float
    """Seconds until the next retry."""
    state: VictimState = V.IDLE
    step: Step = Step.LOOK_UP
    condition: DisruptionTarget | None = None
    """Written with the next mark or cancellation."""
    version: str = ""
    """At which it was marked."""
    marked: bool = False
    """A deletion of it may be under way, by this binder or an earlier one."""
    cancelling: bool = False
    priority: int = 0
    """By the API server, at the last look-up."""
    owner: str = ""
    """Its controller, by the same."""
    group: str = ""
    """Its pod group, by the same."""
    node: str = ""
    """Its node, by the same, if that is not the preemptor's."""
    number: int = 0
    """Of the last call."""
    looks: int = 0
    """Look-ups since the withdrawal that did not find it on a node."""
    deleting: bool = False
    """A deletion was sent, and may have been carried out."""
    resume_at: float = 0.0

    @property
    def assumed(self) -> bool:
        """It was not known to be bound."""
        return self.pod.attempt != 0

    def evicted(self, *, in_memory: bool) -> EvictedPod:
        pod = self.pod
        return EvictedPod(
            pod.uid,
            pod.namespace,
            pod.name,
            self.owner,
            self.priority,
            in_memory,
            self.group,
            self.node,
            pod.violates,
        )

    def move(self, state: VictimState) -> None:
        if state not in VICTIM_TRANSITIONS[self.state]:
            raise InvariantBroken(f"victim {self.pod.namespace}/{self.pod.name}: from {self.state} to {state}")
        self.state = state


@dataclass(slots=True, eq=False)
class Eviction:
    evict: Evict
    deadline: float
    began: float
    victims: dict[str, VictimEviction]
    failure: str = ""
    timed_out: bool = False
    evicted: list[EvictedPod] = field(default_factory=list)
    """In the order in which they were told to go."""

    @property
    def key(self) -> Key:
        return self.evict.uid, self.evict.attempt

    @property
    def message(self) -> str:
        """Of the victims' condition."""
        preemptor = "podgroup" if self.evict.gang else "pod"
        return f"{self.evict.profile}: preempting to accommodate a higher priority {preemptor}"

    @property
    def under_way(self) -> bool:
        return any(victim.state not in (V.IDLE, V.OVER) for victim in self.victims.values())

    def idle(self) -> list[VictimEviction]:
        return [victim for victim in self.victims.values() if victim.state is V.IDLE]
