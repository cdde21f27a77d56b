"""Commits: decisions and nominations sent to the snapshot, one commit at a time, and the conflicts in its answers.

    planned --no commit under way--> under way --answered--> done
                                      |  ^
                                      +--+ sent again after its deadline

A commit has the decisions of a round, or the nominations of a preemption search. Commits have numbers of their own,
because a search may end while a round is asked about. Lost nominations go with the next commit of either kind. An empty
commit asks the snapshot whether it still accepts this cycle.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flotilla.results import Status, error
from services.cycle.answer_checks import AnswerChecks
from services.cycle.events import Ask, Effect, SendCommit, SendDeltas, WorkerFault
from services.cycle.preemption.candidate_search import Preemption
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import RoundResult, Unfit, device_decision
from services.cycle.round.gangs import undecided
from shared.messages.limits import MAX_BODY
from shared.messages.queue import POD_GONE
from shared.messages.state import Assignment, Commit, Committed, Conflict, Decision, Loads, Nominate
from shared.model.objects import encode_msgpack
from shared.runtime.unanswered import Unanswered

COMMIT_DEADLINE = 1.0
"""Seconds until an unanswered commit is sent again."""
MAX_CONFLICTS = 16
"""Consecutive conflicts after which a pod goes back to the queue and backs off, so that no pod waits for it forever."""
MAX_COUNTED = 1 << 12
"""Pods whose conflicts are counted; beyond it, those that the cycle no longer holds are forgotten."""
MAX_COMMIT_BYTES = MAX_BODY - (1 << 20)
"""Of nominations and victims in one commit, or of a gang's decisions; the rest is for pods that lose nominations."""
CONFLICTS = error(f"the decision was refused {MAX_CONFLICTS} times in a row")
GONE = error(POD_GONE)
"""Of a pod that is decided; its gang is decided again without it."""


@dataclass(frozen=True, slots=True)
class PlannedNomination:
    """A pod to nominate; `others` of its class are decided again once every worker knows of the nomination.

    `seen`: the oldest state that an answer was judged on. `narrowed`: extenders chose among the victims. `worker`: the
    holder of the node when it was found. `gang`: members of one gang are nominated together or not at all; some of them
    may have no node. `priority`: the gang's.
    """

    info: PodInfo
    others: Sequence[PodInfo]
    unfit: Unfit
    preemption: Preemption
    seen: int
    narrowed: bool = False
    worker: str = ""
    gang: str = ""
    priority: int | None = None

    @property
    def pods(self) -> list[PodInfo]:
        return [self.info, *self.others]

    @property
    def evicts(self) -> bool:
        """Whether a victim must still be evicted."""
        return any(not victim.terminating for victim in self.preemption.victims)


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """`round`: the round whose decisions it has, or 0. `confirms`: its answer confirms the cycle's term."""

    commit: Commit
    round: int = 0
    result: RoundResult | None = None
    nominations: tuple[PlannedNomination, ...] = ()
    confirms: bool = False

    def held(self) -> Iterator[PodInfo]:
        if self.result is not None:
            yield from (info for info, _ in (*self.result.decided, *self.result.withheld))
        for planned in self.nominations:
            yield from planned.pods


class Commits:
    def __init__(self, epoch: int, incarnation: str, checks: AnswerChecks) -> None:
        self.pending: PendingCommit | None = None
        self.unanswered = Unanswered[int, SendCommit]((COMMIT_DEADLINE,))
        """The pending commit, by its number."""
        self._epoch = epoch
        self._incarnation = incarnation
        self._checks = checks
        self._number = 0
        self._planned: deque[tuple[Sequence[PlannedNomination], int]] = deque()
        """Nominations that stand or fall together, and the bytes that they take in a commit."""
        self._denominated: dict[str, None] = {}
        self._confirm = False
        self._has_quiet = False
        """Whether workers may not have seen every decision, as none waited for it."""

    @property
    def has_nominations(self) -> bool:
        """Whether a nomination is planned, or sent and not answered."""
        return bool(self._planned) or (self.pending is not None and bool(self.pending.nominations))

    @property
    def ends_nominations(self) -> bool:
        """Whether the next commit ends some, whose room is then free."""
        return bool(self._denominated)

    def held(self) -> Iterator[PodInfo]:
        """The pods that wait for the answer to a commit."""
        for unit, _ in self._planned:
            for planned in unit:
                yield from planned.pods
        if self.pending is not None:
            yield from self.pending.held()

    def plan(self, nominations: Sequence[PlannedNomination]) -> RoundResult:
        """Returns members of gangs whose nominations and victims fit in no commit, as failed."""
        planned = [
            replace(each, worker=self._checks.worker_of(each.preemption.nominated or "")) for each in nominations
        ]
        failed: list[tuple[PodInfo, Status]] = []
        for unit in _units(planned):
            size = _size(unit)
            if size <= MAX_COMMIT_BYTES:
                self._planned.append((unit, size))
                continue
            victims = sum(len(each.preemption.victims) for each in unit)
            what = f"the nominations of {len(unit):,} pods with {victims:,} victims take {size:,} bytes in a message"
            why = error(f"preemption: {what}, and at most {MAX_COMMIT_BYTES:,} fit")
            failed += [(info, why) for each in unit for info in each.pods]
        return RoundResult([], failed=failed)

    def denominate(self, info: PodInfo) -> None:
        """Ends the pod's nomination, if it has one."""
        if info.nominated_node:
            self._denominated[info.uid] = None

    def confirm_term(self) -> None:
        """A commit that is sent from now on must be answered, be it an empty one."""
        self._confirm = True

    def send_round(self, number: int, result: RoundResult, now: float, *, quiet: bool) -> SendCommit:
        """`quiet`: no worker waits for these decisions."""
        decisions, loads = self._decisions(result)
        self._has_quiet |= quiet
        commit = self._commit(loads, decisions, [], quiet=quiet)
        return self._send(commit, now, round=number, result=result)

    def refuse_large(self, gang: str, result: RoundResult) -> RoundResult:
        """The result, or all members of the gang as failed if what is decided of them fits in no commit."""
        decisions, loads = self._decisions(result)
        size = len(encode_msgpack((decisions, loads.items)))
        if size <= MAX_COMMIT_BYTES:
            return result
        what = f"the decisions of {len(decisions):,} pods take {size:,} bytes in a message"
        why = error(f'pod group "{gang}": {what}, and at most {MAX_COMMIT_BYTES:,} fit')
        return RoundResult(result.order, failed=[(info, why) for info, _ in (*result.decided, *result.withheld)])

    def _decisions(self, result: RoundResult) -> tuple[list[Decision], Loads]:
        loads = Loads()
        decisions = [
            Decision(
                Assignment(
                    uid=info.uid,
                    namespace=info.namespace,
                    name=info.name,
                    profile=info.template.profile,
                    node=placement.node,
                    version=info.version,
                    pod=info.sent,
                    volumes=placement.volumes,
                    devices=device_decision(info, placement),
                ),
                load=loads.number(info.load),
                seen=placement.seen,
                gang="" if info.gang is None else info.gang.key,
                worker=self._checks.worker_of(placement.node),
                asks=info.template.asks,
                own_volumes=info.own_volumes,
            )
            for info, placement in result.decided
        ]
        return decisions, loads

    def send_planned(self, now: float) -> list[SendCommit]:
        """Sends nominations, lost nominations and the question about the term, unless a commit is under way."""
        if self.pending is not None or not (self._planned or self._denominated or self._confirm):
            return []
        planned: list[PlannedNomination] = []
        room = MAX_COMMIT_BYTES
        while self._planned and (not planned or self._planned[0][1] <= room):
            unit, size = self._planned.popleft()
            planned += unit
            room -= size
        loads = Loads()
        nominations = [_nominate(each, loads) for each in planned if each.preemption.nominated]
        return [self._send(self._commit(loads, [], nominations), now, nominations=tuple(planned))]

    def resend(self, now: float) -> list[SendCommit]:
        """The pending commit, for a snapshot that has not received it."""
        return [] if self.pending is None else [self._sent(SendCommit(self.pending.commit, self.pending.round), now)]

    def take(self, committed: Committed) -> PendingCommit | None:
        """The commit that this answers; None if it was answered before, or is another cycle's."""
        pending = self.pending
        if pending is None or committed.cycle not in ("", self._incarnation):
            return None
        if (committed.epoch, committed.number) != (self._epoch, pending.commit.number):
            return None
        self.pending = None
        self.unanswered.answered(committed.number)
        # Its delta did not go with what was asked before it was applied.
        self._has_quiet |= pending.commit.quiet
        return pending

    def with_deltas(self, effects: list[Effect]) -> list[Effect]:
        """Workers that are asked must see the decisions of quiet commits."""
        ask = next((i for i, effect in enumerate(effects) if isinstance(effect, Ask)), None)
        if ask is None or not self._has_quiet:
            return effects
        self._has_quiet = False
        return [*effects[:ask], SendDeltas(), *effects[ask:]]

    def _commit(
        self, loads: Loads, decisions: list[Decision], nominations: list[Nominate], *, quiet: bool = False
    ) -> Commit:
        self._number += 1
        denominated, self._denominated = list(self._denominated), {}
        cycle = self._incarnation
        return Commit(self._epoch, self._number, loads.items, decisions, nominations, denominated, cycle, quiet)

    def _send(
        self,
        commit: Commit,
        now: float,
        *,
        round: int = 0,
        result: RoundResult | None = None,
        nominations: tuple[PlannedNomination, ...] = (),
    ) -> SendCommit:
        self._checks.on_commit_sent()
        self.pending = PendingCommit(commit, round, result, nominations, self._confirm)
        self._confirm = False
        return self._sent(SendCommit(commit, round), now)

    def _sent(self, send: SendCommit, now: float) -> SendCommit:
        self.unanswered.sent(send.message.number, send, now)
        return send


def _nominate(planned: PlannedNomination, loads: Loads) -> Nominate:
    info, node = planned.info, planned.preemption.nominated or ""
    return Nominate(
        Assignment(info.uid, info.namespace, info.name, info.template.profile, node),
        load=loads.number(info.load),
        seen=planned.seen,
        victims=list(planned.preemption.victims),
        worker=planned.worker,
        asks=info.template.asks,
        narrowed=planned.narrowed,
        never=info.template.never_preempts,
        gang=planned.gang,
        priority=planned.priority,
    )


def _units(planned: Sequence[PlannedNomination]) -> Iterable[list[PlannedNomination]]:
    """Members of one gang go together."""
    units: dict[str, list[PlannedNomination]] = {}
    for each in planned:
        units.setdefault(each.gang or each.info.uid, []).append(each)
    return units.values()


def _size(unit: Sequence[PlannedNomination]) -> int:
    loads = Loads()
    nominations = [_nominate(each, loads) for each in unit if each.preemption.nominated]
    return len(encode_msgpack((nominations, loads.items)))


def faults_of(commit: Commit, committed: Committed) -> Iterator[WorkerFault]:
    """At most one fault per worker and commit."""
    at_fault = {conflict.uid: conflict for conflict in committed.conflicts if conflict.fault}
    blamed: set[str] = set()
    asked: tuple[Decision | Nominate, ...] = (*commit.decisions, *commit.nominations) if at_fault else ()
    for each in asked:
        conflict = at_fault.get(each.uid)
        if conflict is not None and each.worker and each.worker not in blamed:
            blamed.add(each.worker)
            yield WorkerFault(each.worker, conflict.fault, conflict.reason, counted=True)


def without_gone(
    result: RoundResult, conflicts: Mapping[str, Conflict]
) -> tuple[RoundResult, list[tuple[PodInfo, Status]]]:
    """The round without the pods that are gone, and these."""
    gone = {conflict.uid for conflict in conflicts.values() if conflict.gone}
    if not gone:
        return result, []
    decided = [each for each in result.decided if each[0].uid not in gone]
    return replace(result, decided=decided), [(info, GONE) for info, _ in result.decided if info.uid in gone]


class ConflictCounts:
    """Consecutive conflicts of each pod or gang."""

    def __init__(self) -> None:
        self._lost: dict[str, int] = {}

    def after_round(
        self, result: RoundResult, lost: Mapping[str, PodInfo], held: Collection[str]
    ) -> tuple[dict[str, PodInfo], list[tuple[PodInfo, Status]]]:
        """After these pods lost a conflict: the pods to decide again at once, and those that fail."""
        one_of_each = {_key(info): info for info in lost.values()}
        tired = {key for key, info in one_of_each.items() if self.lost(info, held)}
        failing = {uid for uid, info in lost.items() if _key(info) in tired}
        failing |= {info.uid for info, _ in result.withheld if _key(info) in tired}
        again = undecided(result, lost)
        failed = [(info, CONFLICTS) for uid, info in again.items() if uid in failing]
        return {uid: info for uid, info in again.items() if uid not in failing}, failed

    def after_nominations(
        self, nominations: Iterable[PlannedNomination], conflicts: Mapping[str, Conflict], held: Collection[str]
    ) -> dict[str, Status | None]:
        """The nominated pods that lost a conflict, and why they fail, unless they are decided again.

        A gang loses as a whole, without its members that are gone.
        """
        nominations = list(nominations)
        if not (nominations and conflicts):
            return {}
        of_gangs = {each.gang: each.info for each in nominations if each.gang and each.info.uid in conflicts}
        tired = {gang: self._status(info, held) for gang, info in of_gangs.items()}
        found: dict[str, Status | None] = {}
        for each in nominations:
            conflict = conflicts.get(each.info.uid)
            if conflict is not None and conflict.placed:
                continue
            if conflict is not None and conflict.gone:
                found[each.info.uid] = GONE
            elif each.gang in tired:
                found[each.info.uid] = tired[each.gang]
            elif conflict is not None:
                found[each.info.uid] = self._status(each.info, held)
        return found

    def _status(self, info: PodInfo, held: Collection[str]) -> Status | None:
        return CONFLICTS if self.lost(info, held) else None

    def lost(self, info: PodInfo, held: Collection[str]) -> bool:
        """Counts a conflict; True if it was one too many. `held`: the uids of the pods with the cycle."""
        key = _key(info)
        self._lost[key] = self._lost.get(key, 0) + 1
        if len(self._lost) > MAX_COUNTED:
            self._lost = {of: count for of, count in self._lost.items() if of in held or of == key}
        if self._lost[key] < MAX_CONFLICTS:
            return False
        del self._lost[key]
        return True

    def won(self, info: PodInfo) -> None:
        self._lost.pop(_key(info), None)


def _key(info: PodInfo) -> str:
    return info.uid if info.gang is None else info.gang.key
