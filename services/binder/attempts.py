"""Attempts to bind pods: the state of each, which attempt a pod has now, and when an attempt has something to do."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import lru_cache
from typing import NamedTuple

import msgspec

from flotilla.plugin import BindingState
from services.binder.events import ExtenderBinding
from services.binder.extension_points import Failure, PermitWait, Steps
from shared.bounded import BoundedDict
from shared.errors import InvariantBroken
from shared.framework.profile import Framework
from shared.messages.binding import BindingOutcome, PermitAnswer, Withdraw
from shared.messages.state import Assignment, BindingOrder
from shared.model.base import ObjectMeta
from shared.model.objects import Pod, PodSpec, PodStatus
from shared.plugins.volumes.podvolumes import DECISION

MAX_FINISHED = 8192
"""Finished attempts whose outcome is remembered, in case their order is repeated."""
MAX_WITHDRAWN = 8192
"""Withdrawn attempts that are not here: their order may be on its way."""
MAX_EARLY_PERMITS = 16
"""Answers of permits that one attempt keeps before it begins to wait for them."""


class AttemptState(StrEnum):
    NEW = "new"
    QUEUED = "queued"
    """An earlier attempt may still bind the pod; this one waits for it."""
    WAITING = "waiting"
    """For permits."""
    PREPARING = "preparing"
    """A call of PreBind is out."""
    PAUSED = "paused"
    """PreBind continues after a pause."""
    BINDING = "binding"
    """The call that binds is out."""
    LOOKING_UP = "looking-up"
    """Whether the pod is bound is unknown; the API server has been asked."""
    BACKING_OFF = "backing-off"
    """Whether the pod is bound is unknown; the API server will be asked again."""
    STALE = "stale"
    """The pod has another version than its order names, and is not bound; the snapshot is asked for a new order."""
    BOUND = "bound"
    FAILED = "failed"
    """The pod is not bound, and this attempt will not bind it."""
    EXPIRED = "expired"
    """The deadline has passed: the snapshot looks the pod up."""
    SUPERSEDED = "superseded"
    """There is a newer attempt for the pod."""


class NominationState(Enum):
    """Of the node that is written into the status of a pod that waits for permits or PreBind."""

    NONE = auto()
    UNDER_WAY = auto()
    DONE = auto()
    """It was written, or cannot be."""


S = AttemptState
_CONTINUES = frozenset({S.PREPARING, S.PAUSED, S.BINDING, S.BOUND, S.FAILED, S.LOOKING_UP, S.STALE})
"""LOOKING_UP at once where the order names no version; STALE before PreBind where the nomination changed it."""
_ROLLED_BACK = frozenset({S.FAILED, S.EXPIRED, S.SUPERSEDED})
TRANSITIONS: Mapping[AttemptState, frozenset[AttemptState]] = {
    S.NEW: _CONTINUES | {S.QUEUED, S.WAITING},
    S.QUEUED: _CONTINUES | _ROLLED_BACK | {S.WAITING},
    S.WAITING: _CONTINUES | _ROLLED_BACK,
    S.PREPARING: _CONTINUES | _ROLLED_BACK,
    S.PAUSED: _CONTINUES | _ROLLED_BACK,
    S.BINDING: frozenset({S.BINDING, S.BOUND, S.FAILED, S.EXPIRED, S.LOOKING_UP}),
    S.LOOKING_UP: _ROLLED_BACK | {S.BOUND, S.LOOKING_UP, S.BACKING_OFF, S.STALE, S.BINDING},
    S.BACKING_OFF: frozenset({S.EXPIRED, S.LOOKING_UP}),
    S.STALE: _ROLLED_BACK | {S.PREPARING, S.PAUSED, S.BINDING, S.BOUND, S.LOOKING_UP},
    S.BOUND: frozenset(),
    S.FAILED: frozenset(),
    S.EXPIRED: frozenset(),
    S.SUPERSEDED: frozenset(),
}
FINAL = frozenset(state for state, following in TRANSITIONS.items() if not following)
MAYBE_BOUND = frozenset({S.BINDING, S.LOOKING_UP, S.BACKING_OFF})
LOOKED_UP_AGAIN = frozenset({S.BACKING_OFF, S.STALE})
"""Looked up after a pause; a stale attempt because the snapshot may not answer."""
IDLE = frozenset({S.QUEUED, S.WAITING, S.PAUSED, S.STALE})
"""No call to the API server is out."""


class Identity(NamedTuple):
    """Attempts of a later epoch are newer; within an epoch, those of a higher number."""

    epoch: int
    attempt: int


@dataclass(slots=True)
class LookUpReason:
    """Why the pod is looked up: whether it is bound is unknown.

    `failure`: the outcome if it turns out not to be bound; `response`: the server's own words. `fences`: the version
    that calls have named; no such call may land any more before the failure is reported. `renews`: if the pod has
    another version, the attempt continues with that. `endless`: an extender was asked to bind; it names no version, and
    may bind any time. `before_pre_bind`: PreBind has not begun.
    """

    failure: Failure
    response: str
    pause: float
    fences: str = ""
    renews: bool = False
    endless: bool = False
    before_pre_bind: bool = False
    look_at: float = math.inf


class Attempt(msgspec.Struct, eq=False):
    order: BindingOrder
    uid: str
    framework: Framework
    cycle: BindingState
    began: float
    deadline: float
    """From then on the snapshot decides what becomes of the pod."""
    window: float
    state: AttemptState = S.NEW
    waits_until: float = -math.inf
    """Until when it waits for permits or in PreBind, as reported to the snapshot."""
    step: int = 0
    """Of the call that is out; rises with each call."""
    plugin: str = ""
    """Whose call is out."""
    point_began: float = 0.0
    extender: ExtenderBinding | None = None
    """Set while an extender is to bind the pod."""
    reserved: bool = False
    permit: PermitWait | None = None
    early_permits: list[PermitAnswer] = []
    """That came before it began to wait, in their order."""
    pre_bind: Steps | None = None
    prepared_from: float = 0.0
    """When PreBind began."""
    prepare_until: float = 0.0
    """The time for PreBind that the snapshot has been asked for."""
    nomination: NominationState = NominationState.NONE
    nominated_version: str = ""
    """The version that the pod got with its nomination; the snapshot is asked for an order that names it."""
    resume_at: float = math.inf
    devices_awaited_from: float = 0.0
    """When the wait for binding conditions of its devices began."""
    look_up: LookUpReason | None = None
    transitions: list[tuple[float, AttemptState]] = []

    @staticmethod
    def of(order: BindingOrder, framework: Framework, now: float) -> "Attempt":
        assignment = order.assignment
        cycle = BindingState(assignment.pod or _outline(assignment))
        if assignment.volumes is not None:
            cycle[DECISION] = assignment.volumes
        return Attempt(order, assignment.uid, framework, cycle, now, now + order.window, order.window)

    @property
    def identity(self) -> Identity:
        return Identity(self.order.epoch, self.order.attempt)

    @property
    def alarm(self) -> float:
        """When it has something to do without an event."""
        if self.state is S.WAITING and self.permit is not None:
            return min(self.deadline, self.permit.deadline)
        if self.state is S.PAUSED:
            return min(self.deadline, self.resume_at)
        if self.state in LOOKED_UP_AGAIN and self.look_up is not None:
            return min(self.deadline, self.look_up.look_at)
        return self.deadline

    def keep_permit(self, answer: PermitAnswer) -> bool:
        """Until it begins to wait; False if too many are kept."""
        if len(self.early_permits) == MAX_EARLY_PERMITS:
            return False
        self.early_permits.append(answer)
        return True

    def move(self, state: AttemptState, now: float) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantBroken(f"from {self.state} to {state} at {now:.3f}. {self.history()}")
        self.state = state
        self.transitions.append((now, state))

    def renew(self, order: BindingOrder) -> None:
        """The attempt was ordered again. Another version may be later than that of the nomination, so it counts."""
        if order.version != self.order.version:
            self.nominated_version = ""
        self.order = order

    def history(self) -> str:
        order = self.order
        steps = ", ".join(f"{state} after {when - self.began:.3f} s" for when, state in self.transitions)
        return (
            f"Pod {order.key} ({order.uid}), epoch {order.epoch}, attempt {order.attempt}, node {order.node}, "
            f"ordered at {self.began:.3f}, deadline {self.deadline:.3f}: {steps or 'new'}"
        )


class Finished(NamedTuple):
    """The outcome is None if none was reported. `transitions`: for those who ask what happened."""

    identity: Identity
    outcome: BindingOutcome | None
    transitions: Sequence[tuple[float, AttemptState]] = ()


class Attempts:
    """The attempts that are under way, at most two for a pod, and the outcomes of finished ones."""

    def __init__(self) -> None:
        self._current: dict[str, Attempt] = {}
        self._queued: dict[str, Attempt] = {}
        self._finished: BoundedDict[str, Finished] = BoundedDict(MAX_FINISHED)
        """By uid, the oldest first."""
        self._withdrawn: BoundedDict[tuple[str, int], Withdraw] = BoundedDict(MAX_WITHDRAWN)
        self.alarm = math.inf
        """No attempt has anything to do before this without an event; may be early, never late."""

    def __len__(self) -> int:
        return len(self._current) + len(self._queued)

    def get(self, uid: str) -> Attempt | None:
        """The pod's current attempt."""
        return self._current.get(uid)

    def find(self, uid: str, number: int) -> Attempt | None:
        """The pod's current attempt if it has this number."""
        attempt = self._current.get(uid)
        return attempt if attempt is not None and attempt.order.attempt == number else None

    def find_any(self, uid: str, number: int) -> Attempt | None:
        """The attempt of this number, current or queued."""
        queued = self._queued.get(uid)
        return queued if queued is not None and queued.order.attempt == number else self.find(uid, number)

    def queued(self, uid: str) -> Attempt | None:
        return self._queued.get(uid)

    def all(self) -> list[Attempt]:
        """Queued attempts last."""
        return [*self._current.values(), *self._queued.values()]

    def knows(self, order: BindingOrder) -> bool:
        """Whether this attempt or a newer one for the pod is or was here."""
        uid = order.uid
        known = (self._current.get(uid), self._queued.get(uid), self._finished.get(uid))
        identity = Identity(order.epoch, order.attempt)
        return any(_repeats(identity, attempt.identity) for attempt in known if attempt is not None)

    def outcome(self, order: BindingOrder) -> BindingOutcome | None:
        """The reported outcome of this attempt, if it is remembered."""
        finished = self._finished.get(order.uid)
        return finished.outcome if finished is not None and finished.identity.attempt == order.attempt else None

    def last(self, uid: str) -> Finished | None:
        """The pod's attempt that is under way, without an outcome, or else the last one that ended."""
        attempt = self._current.get(uid)
        return self._finished.get(uid) if attempt is None else Finished(attempt.identity, None, attempt.transitions)

    def make_current(self, attempt: Attempt) -> None:
        self._current[attempt.uid] = attempt

    def queue(self, attempt: Attempt) -> None:
        self._queued[attempt.uid] = attempt

    def remove(self, attempt: Attempt, outcome: BindingOutcome | None) -> Attempt | None:
        """Removes a finished attempt. Returns the attempt that was queued after it, which is not current yet."""
        uid = attempt.uid
        self.remember(uid, Finished(attempt.identity, outcome, attempt.transitions))
        if self._queued.get(uid) is attempt:
            del self._queued[uid]
            return None
        del self._current[uid]
        return self._queued.pop(uid, None)

    def remember(self, uid: str, finished: Finished) -> None:
        """Remembers the pod's newest attempt, which may not be the last to end."""
        before = self._finished.pop(uid, None)
        self._finished[uid] = before if before is not None and finished.identity < before.identity else finished

    def withdraw(self, withdraw: Withdraw) -> None:
        """Remembers the withdrawal of an attempt that is not here."""
        self._withdrawn[withdraw.uid, withdraw.attempt] = withdraw

    def withdrawn(self, order: BindingOrder) -> Withdraw | None:
        return self._withdrawn.get((order.uid, order.attempt)) if self._withdrawn else None

    def ring(self, when: float) -> None:
        self.alarm = min(self.alarm, when)

    def reset_alarm(self) -> None:
        self.alarm = min((attempt.alarm for attempt in self.all()), default=math.inf)

    def validate(self) -> None:
        for uid, attempt in self._queued.items():
            before = self._current.get(uid)
            if before is None or before.state not in MAYBE_BOUND:
                raise InvariantBroken(f"queued after no attempt. {attempt.history()}")
            if attempt.state is not S.QUEUED or not before.identity < attempt.identity:
                raise InvariantBroken(f"must not be queued. {attempt.history()}")
        for uid, attempt in self._current.items():
            if attempt.state in FINAL or attempt.state in (S.NEW, S.QUEUED):
                raise InvariantBroken(f"must not be current. {attempt.history()}")
            if attempt.uid != uid or attempt.reserved != bool(attempt.framework.reserve):
                raise InvariantBroken(f"current under another uid, or nothing is reserved. {attempt.history()}")
            if (attempt.state is S.WAITING) != bool(attempt.permit and attempt.permit.pending):
                raise InvariantBroken(f"waiting without a permit to wait for, or the reverse. {attempt.history()}")
        for attempt in self.all():
            if attempt.alarm < self.alarm:
                raise InvariantBroken(f"the alarm is later than the attempt's. {attempt.history()}")
        if len(self._finished) > MAX_FINISHED:
            raise InvariantBroken(f"{len(self._finished)} finished attempts are remembered")


def _repeats(identity: Identity, known: Identity) -> bool:
    """The same attempt may come from a later snapshot; any other of an earlier epoch or number is old."""
    return identity.attempt == known.attempt or identity < known


def _outline(assignment: Assignment) -> Pod:
    """The pod as far as the assignment tells it: for plugins that read more, the whole pod is sent."""
    meta = ObjectMeta(
        name=assignment.name,
        namespace=assignment.namespace,
        uid=assignment.uid,
        resource_version=assignment.version,
    )
    return Pod(metadata=meta, spec=_spec(assignment.profile), status=_STATUS)


@lru_cache(maxsize=64)
def _spec(profile: str) -> PodSpec:
    return PodSpec(scheduler_name=profile)


_STATUS = PodStatus()
