"""One attempt to bind a pod: where it is, and what may come next."""

import math
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from services.binder.binding.extension_points import Failure, Steps
from services.binder.events import ExtenderBinding
from services.binder.permits import PermitWait
from shared.errors import InvariantBroken
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import DECISION
from shared.framework.profile import Framework
from shared.messages.state import BindingOrder
from shared.model.metadata import ObjectMeta
from shared.model.objects import Pod, PodSpec, PodStatus


class State(StrEnum):
    NEW = "new"
    BEHIND = "behind"
    """An earlier attempt for the pod may be bound any moment; this one comes after it."""
    WAITING = "waiting"
    """For permits."""
    PREPARING = "preparing"
    """A call of PreBind is out."""
    PAUSED = "paused"
    """PreBind goes on after a while."""
    BINDING = "binding"
    """The call that binds is out."""
    LOOKING = "looking"
    """It is not known whether the pod is bound, and the API server has been asked."""
    DOUBTING = "doubting"
    """It is not known whether the pod is bound, and the API server will be asked again."""
    STALE = "stale"
    """The pod has another version than its order names, and is not bound; the snapshot is asked to order it anew."""
    BOUND = "bound"
    FAILED = "failed"
    """It is not bound, and will not be."""
    LEFT = "left"
    """Its deadline has passed: the snapshot looks it up."""
    SUPERSEDED = "superseded"
    """There is a newer attempt for the pod."""


S = State
RUNNING = frozenset({S.PREPARING, S.PAUSED, S.BINDING, S.BOUND, S.FAILED, S.LOOKING})
"""LOOKING at once where the order names no version."""
GIVEN_UP = frozenset({S.FAILED, S.LEFT, S.SUPERSEDED})
TRANSITIONS: dict[State, frozenset[State]] = {
    S.NEW: RUNNING | {S.BEHIND, S.WAITING},
    S.BEHIND: RUNNING | GIVEN_UP | {S.WAITING},
    S.WAITING: RUNNING | GIVEN_UP,
    S.PREPARING: RUNNING | GIVEN_UP,
    S.PAUSED: RUNNING | GIVEN_UP,
    S.BINDING: frozenset({S.BINDING, S.BOUND, S.FAILED, S.LEFT, S.LOOKING}),
    S.LOOKING: GIVEN_UP | {S.BOUND, S.LOOKING, S.DOUBTING, S.STALE, S.BINDING},
    S.DOUBTING: frozenset({S.LEFT, S.LOOKING}),
    S.STALE: GIVEN_UP | {S.BINDING, S.BOUND, S.LOOKING},
    S.BOUND: frozenset(),
    S.FAILED: frozenset(),
    S.LEFT: frozenset(),
    S.SUPERSEDED: frozenset(),
}
ENDS = frozenset(state for state, following in TRANSITIONS.items() if not following)
MAYBE_BOUND = frozenset({S.BINDING, S.LOOKING, S.DOUBTING})
LOOKS_AGAIN = frozenset({S.DOUBTING, S.STALE})
"""The API server is asked again after a pause; of a stale one because the snapshot may have nothing to say about it."""
IDLE = frozenset({S.BEHIND, S.WAITING, S.PAUSED, S.STALE})
"""Nothing has been asked of the API server that is not answered yet."""


class Identity(NamedTuple):
    """Attempts of a later epoch are newer, and within one those of a higher number."""

    epoch: int
    attempt: int


class Doubt:
    """Why it is not known whether a pod is bound.

    `answer` is what there is to say should it turn out not to be, and `said` the server's own words. `fences`: the
    version that calls have named, which must not land any more before that is said. `renews`: if the pod has another
    version, the attempt goes on with that. `endless`: who was asked to bind names no version, and may do so any time.
    """

    __slots__ = ("answer", "endless", "fences", "look_at", "pause", "renews", "said")

    def __init__(
        self, answer: Failure, said: str, pause: float, *, fences: str = "", renews: bool = False, endless: bool = False
    ) -> None:
        self.answer = answer
        self.said = said
        self.pause = pause
        self.fences = fences
        self.renews = renews
        self.endless = endless
        self.look_at = math.inf


class Attempt:
    __slots__ = (
        "began",
        "cycle",
        "deadline",
        "doubt",
        "extender",
        "framework",
        "order",
        "permit",
        "plugin",
        "point_began",
        "pre_bind",
        "prepared_from",
        "prepared_until",
        "reserved",
        "resume_at",
        "state",
        "step",
        "story",
        "waits_until",
        "window",
    )

    def __init__(self, order: BindingOrder, framework: Framework, now: float, window: float) -> None:
        """`window`: seconds from now on that the snapshot leaves the pod to this binder."""
        self.order = order
        self.framework = framework
        self.cycle = CycleState(order.assignment.pod or _pod(order))
        for plugin in framework.volumes if order.assignment.volumes is not None else ():
            self.cycle.write(plugin.name, DECISION, order.assignment.volumes)
        self.state = State.NEW
        self.window = window
        self.deadline = now + window
        """From then on the pod is the snapshot's."""
        self.waits_until = -math.inf
        """Until when it waits for permits or in PreBind, as the snapshot was told."""
        self.began = now
        self.step = 0
        """Of the call that is out; rises with each call."""
        self.plugin = ""
        """Whose call is out."""
        self.point_began = 0.0
        self.extender: ExtenderBinding | None = None
        """Set while an extender is to bind the pod."""
        self.reserved = False
        self.permit: PermitWait | None = None
        self.pre_bind: Steps | None = None
        self.prepared_from = 0.0
        """When PreBind began."""
        self.prepared_until = 0.0
        """The time for it that the snapshot has been asked for."""
        self.resume_at = math.inf
        self.doubt: Doubt | None = None
        self.story: list[tuple[float, State]] = []

    @property
    def identity(self) -> Identity:
        return Identity(self.order.epoch, self.order.attempt)

    @property
    def alarm(self) -> float:
        """When something is to be done about it, whatever happens."""
        if self.state is State.WAITING and self.permit is not None:
            return min(self.deadline, self.permit.deadline)
        if self.state is State.PAUSED:
            return min(self.deadline, self.resume_at)
        if self.state in LOOKS_AGAIN and self.doubt is not None:
            return min(self.deadline, self.doubt.look_at)
        return self.deadline

    def move(self, state: State, now: float) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantBroken(f"from {self.state} to {state} at {now:.3f}. {self.tell()}")
        self.state = state
        self.story.append((now, state))

    def tell(self) -> str:
        """What has become of it so far, for whoever has to find out why."""
        order = self.order
        steps = ", ".join(f"{state} after {when - self.began:.3f} s" for when, state in self.story)
        return (
            f"Pod {order.key} ({order.uid}), epoch {order.epoch}, attempt {order.attempt}, "
            f"node {order.node}, ordered at {self.began:.3f}, deadline {self.deadline:.3f}: {steps or 'new'}"
        )


def _pod(order: BindingOrder) -> Pod:
    """As much of the pod as the order tells: plugins that read more have the pod sent along."""
    return Pod(
        metadata=ObjectMeta(
            name=order.assignment.name,
            namespace=order.assignment.namespace,
            uid=order.uid,
            resource_version=order.version,
        ),
        spec=_spec(order.profile),
        status=_STATUS,
    )


@lru_cache(maxsize=64)
def _spec(profile: str) -> PodSpec:
    """Nobody changes a pod, so that all may share this."""
    return PodSpec(scheduler_name=profile)


_STATUS = PodStatus()
