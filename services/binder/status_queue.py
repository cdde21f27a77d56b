"""What waits to be written into pods' statuses: of each pod one write at a time, in order, joined where possible."""

from collections import deque
from enum import Enum

import msgspec

from shared.errors import InvariantBroken
from shared.kube.events_and_conditions import PodRef, PodScheduled

MAX_PODS = 1 << 16
"""Pods whose status waits to be written."""


class StatusWrite(msgspec.Struct, frozen=True, gc=False):
    """`nominated`: empty clears the nomination, None leaves it. `version`: of the pod; empty if unknown. `after`: it is
    written only if the pod still shows this, or this could not be written; then `version` is empty.
    """

    pod: PodRef
    condition: PodScheduled | None
    nominated: str | None = None
    version: str = ""
    after: PodScheduled | None = None


class NominationCleared(msgspec.Struct, frozen=True, gc=False):
    """Clears the pod's nomination if it names this node."""

    pod: PodRef
    node: str


Write = StatusWrite | NominationCleared


class Queued(Enum):
    NEW = "new"
    JOINED = "joined"
    """It is written together with one that waited."""
    DROPPED = "dropped"
    """Too many pods wait."""


class StatusQueue:
    """The writes that wait, in a line for each pod."""

    def __init__(self, max_pods: int) -> None:
        self._max_pods = max_pods
        self._lines: dict[str, list[Write]] = {}
        """By uid: of pods that wait for their turn, and of pods that are being written to."""
        self._turns: deque[str] = deque()
        self._bound: set[str] = set()
        """Pods in a line that have been bound since."""

    @property
    def idle(self) -> bool:
        return not self._lines

    @property
    def has_turns(self) -> bool:
        """A pod may have a write to take."""
        return bool(self._turns)

    def put(self, write: Write) -> Queued:
        uid = write.pod.uid
        line = self._lines.get(uid)
        if line is not None:
            self._bound.discard(uid)
            return _join(line, write)
        if len(self._lines) >= self._max_pods:
            return Queued.DROPPED
        self._lines[uid] = [write]
        self._turns.append(uid)
        return Queued.NEW

    def take(self) -> Write | None:
        """Returns the next write; `done` or `retry` must follow."""
        while self._turns:
            uid = self._turns.popleft()
            if line := self._lines[uid]:
                return line.pop(0)
            self._remove(uid)
        return None

    def done(self, write: Write) -> None:
        uid = write.pod.uid
        if self._lines[uid]:
            self._turns.append(uid)
        else:
            self._remove(uid)

    def retry(self, write: Write) -> None:
        """Puts a failed write before later ones, joined with them."""
        uid = write.pod.uid
        if uid not in self._bound:
            line = self._lines[uid]
            later, line[:] = list(line), [write]
            for newer in later:
                _join(line, newer)
        self.done(write)

    def forget(self, uid: str) -> None:
        """The pod is bound: drops its writes."""
        line = self._lines.get(uid)
        if line is not None:
            line.clear()
            self._bound.add(uid)

    def validate(self) -> None:
        if len(self._turns) != len(set(self._turns)):
            raise InvariantBroken("a pod has two turns")
        if not self._lines.keys() >= set(self._turns):
            raise InvariantBroken("a pod has a turn and no line")
        if not self._lines.keys() >= self._bound:
            raise InvariantBroken("a bound pod without a line is remembered")
        if len(self._lines) > self._max_pods:
            raise InvariantBroken(f"{len(self._lines)} pods wait")

    def _remove(self, uid: str) -> None:
        del self._lines[uid]
        self._bound.discard(uid)


def _join(line: list[Write], write: Write) -> Queued:
    """Two status writes become one, in which the later counts, unless a cleared nomination is between them."""
    last = line[-1] if line else None
    if isinstance(write, StatusWrite) and isinstance(last, StatusWrite) and last.after == write.after:
        is_outdated = bool(last.nominated) and last.version != write.version
        nominated = last.nominated if write.nominated is None and not is_outdated else write.nominated
        line[-1] = StatusWrite(write.pod, write.condition or last.condition, nominated, write.version, write.after)
        return Queued.JOINED
    if write == last:
        return Queued.JOINED
    line.append(write)
    return Queued.NEW
