"""What is to be written into pods' statuses: one thing at a time of each pod, in order, and the last of several.

Autoscalers go by the condition that a pod cannot be scheduled, and so does who looks for the reason. These are no
Events: their only limit is how many pods wait, and nothing of one pod overtakes another.
"""

from collections import deque
from enum import Enum

import msgspec

from shared.errors import InvariantBroken
from shared.kube.notes import PodRef, PodScheduled


class Status(msgspec.Struct, frozen=True, gc=False):
    """What a pod's status is to say. `nominated`: empty for nobody, None where nothing is said about it.

    `version`: of the pod that it is said of; empty if unknown.
    """

    pod: PodRef
    condition: PodScheduled | None
    nominated: str | None = None
    version: str = ""


class Unnominated(msgspec.Struct, frozen=True, gc=False):
    """The pod is not nominated to this node any more."""

    pod: PodRef
    node: str


Told = Status | Unnominated


class Place(Enum):
    OWN = "own"
    JOINED = "joined"
    """It is written as one with what waited."""
    NONE = "none"
    """Dropped: too many pods wait."""


class Statuses:
    def __init__(self, most_pods: int) -> None:
        self._most_pods = most_pods
        self._lines: dict[str, list[Told]] = {}
        """By pod (uid): of those that have a turn to come, and of those that are just written of."""
        self._turns: deque[str] = deque()
        self._bound: set[str] = set()
        """Of them, those that nothing is to be said of any more."""

    @property
    def idle(self) -> bool:
        return not self._lines

    def put(self, told: Told) -> Place:
        uid = told.pod.uid
        line = self._lines.get(uid)
        if line is not None:
            self._bound.discard(uid)
            return _join(line, told)
        if len(self._lines) >= self._most_pods:
            return Place.NONE
        self._lines[uid] = [told]
        self._turns.append(uid)
        return Place.OWN

    def take(self) -> Told | None:
        """What is to be written now; `done` or `again` must follow."""
        while self._turns:
            uid = self._turns.popleft()
            line = self._lines[uid]
            if line:
                return line.pop(0)
            self._leave(uid)
        return None

    def done(self, told: Told) -> None:
        uid = told.pod.uid
        if self._lines[uid]:
            self._turns.append(uid)
        else:
            self._leave(uid)

    def again(self, told: Told) -> None:
        """It was not written: it is to be taken again, as one with what came meanwhile."""
        uid = told.pod.uid
        if uid not in self._bound:
            line = self._lines[uid]
            later, line[:] = list(line), [told]
            for newer in later:
                _join(line, newer)
        self.done(told)

    def forget(self, uid: str) -> None:
        """The pod is bound: what waits is not so any more."""
        line = self._lines.get(uid)
        if line is not None:
            line.clear()
            self._bound.add(uid)

    def validate(self) -> None:
        """Raises InvariantBroken."""
        if len(self._turns) != len(set(self._turns)):
            raise InvariantBroken("a pod has two turns")
        if not self._lines.keys() >= set(self._turns):
            raise InvariantBroken("a pod has a turn and no line")
        if not self._lines.keys() >= self._bound:
            raise InvariantBroken("a pod that is bound is remembered for nothing")
        if len(self._lines) > self._most_pods:
            raise InvariantBroken(f"{len(self._lines)} pods wait")

    def _leave(self, uid: str) -> None:
        del self._lines[uid]
        self._bound.discard(uid)


def _join(line: list[Told], told: Told) -> Place:
    """Two statuses are one: the later word counts. A nomination that is taken back in between parts them."""
    last = line[-1] if line else None
    if isinstance(told, Status) and isinstance(last, Status):
        nominated = last.nominated if told.nominated is None else told.nominated
        line[-1] = Status(told.pod, told.condition or last.condition, nominated, told.version)
        return Place.JOINED
    if told == last:
        return Place.JOINED
    line.append(told)
    return Place.OWN
