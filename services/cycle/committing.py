"""What the cycle has the snapshot write: one commit at a time, of a round's decisions or of what a search has found.

    found --no commit under way--> under way --answered--> over
                                    |  ^
                                    +--+ sent again after its deadline

Commits are numbered by themselves, as a search may end while a round is being asked about. Who is to lose a nomination
goes along with the next one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from services.cycle.events import Write
from services.cycle.preempting import Preemption
from services.cycle.verifying import Verifying
from services.cycle.walk import QueuedPod, Unfit, Walk
from shared.messages.loads import Loads
from shared.messages.state import Assignment, Commit, Committed, Decision, Nominate
from shared.model.objects import Pod

COMMIT_DEADLINE = 1.0
"""Seconds until a commit that has not been answered is sent again."""


@dataclass(frozen=True, slots=True)
class Found:
    """A pod is to have room on a node; `others` of its class are decided anew once that is known to everybody.

    `seen`: the oldest state that one of the answers was judged on. `worker`: whose node it is.
    `narrowed`: extenders chose among the victims.
    """

    queued: QueuedPod
    others: Sequence[QueuedPod]
    unfit: Unfit
    preemption: Preemption
    seen: int
    worker: str = ""
    narrowed: bool = False

    @property
    def pods(self) -> list[QueuedPod]:
        return [self.queued, *self.others]

    @property
    def evicts(self) -> bool:
        """Whether somebody has still to be told to go."""
        return any(not victim.terminating for victim in self.preemption.victims)


@dataclass(frozen=True, slots=True)
class UnderWay:
    """`round`: the one whose decisions are committed; 0 where it is what a search has found."""

    commit: Commit
    round: int = 0
    walked: Walk | None = None
    found: tuple[Found, ...] = ()

    def held(self) -> Iterator[QueuedPod]:
        if self.walked is not None:
            yield from (queued for queued, _ in (*self.walked.decided, *self.walked.withheld))
        for found in self.found:
            yield from found.pods


class Committing:
    def __init__(self, epoch: int, incarnation: str, goes_along: Callable[[Pod], bool], verifying: Verifying) -> None:
        """`goes_along`: whether a binder reads the whole pod."""
        self._epoch = epoch
        self._incarnation = incarnation
        self._goes_along = goes_along
        self._verifying = verifying
        self._worker_of = verifying.holders.of
        self._number = 0
        self._found: list[Found] = []
        self._denominated: dict[str, None] = {}
        self.under_way: UnderWay | None = None
        self.deadline: float | None = None

    @property
    def awaits_search(self) -> bool:
        """Whether what a search has found is still to be answered, or sent."""
        return bool(self._found) or (self.under_way is not None and bool(self.under_way.found))

    def held(self) -> Iterator[QueuedPod]:
        """The pods that wait for the answer to a commit."""
        for found in self._found:
            yield from found.pods
        if self.under_way is not None:
            yield from self.under_way.held()

    def add(self, found: Sequence[Found]) -> None:
        self._found.extend(replace(each, worker=self._worker_of(each.preemption.nominated or "")) for each in found)

    def denominate(self, pod: Pod) -> None:
        """It loses the nomination that it has, if it has any."""
        if pod.status.nominated_node_name:
            self._denominated[pod.uid] = None

    def write_round(self, number: int, walked: Walk, now: float) -> Write:
        loads = Loads()
        decisions: list[Decision] = []
        for queued, rung in walked.decided:
            meta, profile, load = queued.pod.metadata, queued.profile, loads.number(queued.load)
            pod = queued.pod if self._goes_along(queued.pod) else None
            gang, worker = "" if queued.gang is None else queued.gang.key, self._worker_of(rung.node)
            of = (meta.uid, meta.namespace, meta.name, profile, rung.node, meta.resource_version)
            decisions.append(Decision(Assignment(*of, pod, rung.volumes), load, rung.seen, gang, worker, queued.asks))
        commit = Commit(
            self._epoch,
            self._next(),
            loads.items,
            decisions,
            denominated=self._losers(),
            cycle=self._incarnation,
        )
        self._verifying.commit_sent()
        return self._send(UnderWay(commit, number, walked=walked), now)

    def write_found(self, now: float) -> list[Write]:
        """Unless something is under way, or there is nothing to be told."""
        if self.under_way is not None or not (self._found or self._denominated):
            return []
        found, self._found = self._found, []
        loads = Loads()
        nominations = [_nomination(each, loads) for each in found]
        commit = Commit(self._epoch, self._next(), loads.items, [], nominations, self._losers(), self._incarnation)
        self._verifying.commit_sent()
        return [self._send(UnderWay(commit, found=tuple(found)), now)]

    def tick(self, now: float) -> list[Write]:
        if self.under_way is None or self.deadline is None or now < self.deadline:
            return []
        return [self._send(self.under_way, now)]

    def take(self, committed: Committed) -> UnderWay | None:
        """What this answers; None if that was answered before, or another cycle is."""
        under_way = self.under_way
        if committed.cycle not in ("", self._incarnation):
            return None
        if under_way is None or (committed.epoch, committed.round) != (self._epoch, under_way.commit.round):
            return None
        self.under_way = self.deadline = None
        return under_way

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _losers(self) -> list[str]:
        losers, self._denominated = list(self._denominated), {}
        return losers

    def _send(self, under_way: UnderWay, now: float) -> Write:
        self.under_way, self.deadline = under_way, now + COMMIT_DEADLINE
        return Write(under_way.commit, under_way.round)


def _nomination(found: Found, loads: Loads) -> Nominate:
    meta, profile, node = found.queued.pod.metadata, found.queued.profile, found.preemption.nominated or ""
    load, victims = loads.number(found.queued.load), list(found.preemption.victims)
    assignment = Assignment(meta.uid, meta.namespace, meta.name, profile, node)
    never = found.queued.pod.spec.preemption_policy == "Never"
    more = (victims, found.worker, found.queued.asks, found.narrowed, never)
    return Nominate(assignment, load, found.seen, *more)
