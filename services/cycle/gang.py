"""A gang: pods that are placed together or not at all, decided in one round that is asked in steps.

    open --a step's walk--> decided | unfit | failed
      ^          |
      +-deferred-+

Each step asks about members that are still open, with those decided so far as given, and walks them as any round is
walked. Nothing is committed before nobody is open; then all that are decided are, in one commit, if they are as many as
are needed. A gang that does not fit leaves the cycle, and keeps nothing from anybody meanwhile.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from flotilla.results import Status, error
from services.cycle.gangvolumes import Promised, bindings_of, with_bindings
from services.cycle.race import Rung
from services.cycle.walk import QueuedPod, Unfit, Walk
from shared.messages.queue import Gang
from shared.messages.rounds import Given
from shared.model.load import PodLoad

PLUGIN = "GangScheduling"
"""Rejects the members of a gang that does not fit, beside those plugins that reject some of them."""
MOST_GANG = 1024
"""Pods that are decided together at most: all of them are given in one ask, and decided in one commit."""
MOST_IDLE_STEPS = 8
"""Steps in a row in which nothing is found out about anybody."""
WAITING = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled"

T = TypeVar("T")


def bound_together(gang: Gang | None) -> Gang | None:
    """None where enough members have a place already, so that nobody depends on the others any more."""
    return gang if gang is not None and gang.least > 0 else None


def take_gang(backlog: deque[QueuedPod]) -> "GangRound | None":
    """Takes the gang at the head of the backlog, if there is one: all of its members that follow each other."""
    if not backlog or backlog[0].gang is None:
        return None
    key = backlog[0].gang.key
    members: list[QueuedPod] = []
    while backlog and backlog[0].gang is not None and backlog[0].gang.key == key:
        members.append(backlog.popleft())
    return GangRound(members)


class GangRound:
    """`members` are in queue order. `open`: those still to be decided, in the order in which that is to happen.

    `least`: so many of them must find a place.
    """

    def __init__(self, members: Sequence[QueuedPod]) -> None:
        gangs = [queued.gang for queued in members if queued.gang is not None]
        self.key = gangs[0].key
        self.least = max(gang.least for gang in gangs)
        self.members = list(members)
        self.open = deque(members)
        self._decided: dict[str, tuple[QueuedPod, Rung]] = {}
        self._unfit: dict[str, tuple[QueuedPod, Unfit]] = {}
        self._failed: dict[str, tuple[QueuedPod, Status]] = {}
        self._idle_steps = 0

    # Before

    def refused(self, most_bytes: int) -> Walk | None:
        """Everybody fails where it cannot be decided at all. `most_bytes`: of whole pods in one commit."""
        why = self._refusal(most_bytes)
        return None if why is None else Walk(self._order, failed=[(queued, why) for queued in self.members])

    def _refusal(self, most_bytes: int) -> Status | None:
        size = sum(queued.size for queued in self.members)
        if len(self.members) > MOST_GANG:
            return error(f"{self._name}: at most {MOST_GANG} pods are placed together, not {len(self.members)}")
        if size > most_bytes:
            return error(f"{self._name}: its pods take {size} bytes, and at most {most_bytes} are committed")
        profiles = list(dict.fromkeys(queued.profile for queued in self.members))
        if len(profiles) > 1:
            names = f'got: "{profiles[0]}" and "{profiles[1]}"'
            return error(f"all pods in a single pod group should have the same .spec.schedulerName set, {names}")
        return None

    # Step by step

    def given(self) -> tuple[list[Given], list[PodLoad]]:
        """What is decided so far, as the workers are to suppose it; with the loads that it refers to."""
        numbers: dict[int, int] = {}
        loads: list[PodLoad] = []
        given: list[Given] = []
        for queued, rung in self._decided.values():
            number = numbers.setdefault(id(queued.load), len(loads))
            if number == len(loads):
                loads.append(queued.load)
            given.append(Given(queued.pod.uid, rung.node, number, rung.volumes))
        return given, loads

    def promised(self) -> Promised:
        """For the walk of the next step."""
        return Promised(rung for _, rung in self._decided.values())

    def take(self, walked: Walk) -> None:
        """How a step went. Its pods were taken from `open`, and those that are deferred are there again."""
        self._decided |= {queued.pod.uid: (queued, rung) for queued, rung in walked.decided}
        self._unfit |= {queued.pod.uid: (queued, unfit) for queued, unfit in walked.unfit}
        self._failed |= {queued.pod.uid: (queued, status) for queued, status in walked.failed}
        self.open.extendleft(reversed(walked.deferred))
        self._idle_steps = self._idle_steps + 1 if len(walked.deferred) == len(walked.order) else 0
        if self._idle_steps == MOST_IDLE_STEPS:
            stuck = error(f"{self._name}: nothing was found out in {MOST_IDLE_STEPS} steps")
            self._failed |= {queued.pod.uid: (queued, stuck) for queued in walked.deferred}

    @property
    def is_over(self) -> bool:
        """One that failed is enough to end it."""
        return bool(self._failed) or not self.open

    # Its end

    def outcome(self) -> Walk:
        """What becomes of every member."""
        whole = Walk(self._order)
        if self._failed:
            whole.failed = [(queued, self._failure_of(queued)) for queued in self.members]
        elif len(self._decided) >= self.least:
            whole.decided = self._with_shared_volumes()
            whole.withheld = self._in_order(self._unfit)
        else:
            whole.unfit = [(queued, self._unfit_of(queued)) for queued in self.members]
        return whole

    @property
    def _order(self) -> list[str]:
        return [queued.pod.uid for queued in self.members]

    @property
    def _name(self) -> str:
        return f'pod group "{self.key}"'

    def _in_order(self, found: Mapping[str, T]) -> list[T]:
        return [found[queued.pod.uid] for queued in self.members if queued.pod.uid in found]

    def _with_shared_volumes(self) -> list[tuple[QueuedPod, Rung]]:
        """In the order of decision. Who shares a claim waits for its volume, as does the member that was given it."""
        given = bindings_of(rung for _, rung in self._decided.values())
        return [
            (queued, with_bindings(rung, (f"{queued.load.namespace}/{name}" for name in queued.load.claims), given))
            for queued, rung in self._decided.values()
        ]

    def _failure_of(self, queued: QueuedPod) -> Status:
        own = self._failed.get(queued.pod.uid)
        if own is not None:
            return own[1]
        _, first = self._in_order(self._failed)[0]
        return error(f"failed to schedule other pod from a pod group: {first.message}").by(first.plugin)

    def _unfit_of(self, queued: QueuedPod) -> Unfit:
        """What rejects one of them rejects all: when that changes, all are to be tried again."""
        unfit = [why for _, why in self._in_order(self._unfit)]
        plugins = tuple(sorted({PLUGIN, *(plugin for why in unfit for plugin in why.plugins)}))
        own = self._unfit.get(queued.pod.uid)
        if own is not None:
            return replace(own[1], plugins=plugins)
        found = f"only {len(self._decided)} of the {self.least} members of {self._name} that are needed fit"
        reason = f": {unfit[0].message}" if unfit else ""
        return Unfit(f"{WAITING}: {found}{reason}", plugins)


def decided_anew(walked: Walk, lost: Mapping[str, QueuedPod]) -> dict[str, QueuedPod]:
    """Who is to be decided again after `lost` have lost a conflict: of a gang, those withheld, too.

    Members that have a place by now are no longer needed.
    """
    again = dict(lost) | {queued.pod.uid: queued for queued, _ in walked.withheld}
    placed = len(walked.decided) - len(lost)
    return {uid: _needing_fewer(queued, placed) for uid, queued in again.items()} if placed else again


def _needing_fewer(queued: QueuedPod, placed: int) -> QueuedPod:
    if queued.gang is None:
        return queued
    gang = msgspec.structs.replace(queued.gang, least=queued.gang.least - placed)
    return replace(queued, gang=bound_together(gang))
