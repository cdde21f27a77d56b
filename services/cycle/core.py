"""Cycle: runs rounds. It asks the workers for proposals, merges them, decides, and has the snapshot commit.

    idle --pods--> asking --all answered, guesses right--> committing --committed--> idle
                     |  ^                                      |
                     +--+ a guess was wrong, or a worker late  +--> asked again after its deadline

While one round is committed the next one is asked about, if it is a full one: smaller ones cost more a pod, and more
pods will have come by the time the commit is answered. It is decided once that commit is answered, and only on what
was judged after it: a worker that answered too early is asked again, and after a conflict the whole round waits, so
that the pod that lost goes first. What a search has found is committed between two rounds.

A pod is with the cycle from the batch that brought it until an outcome is told: decided, unfit, failed, or superseded
(it turned out to hold a place already). Stale pods and lost conflicts wait at the head for the next round: that is the
scheduler's affair, not the pod's.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from services.cycle.committing import Committing, Found
from services.cycle.conflicts import CONFLICTS, Conflicts, faults_of
from services.cycle.events import (
    Ask,
    Batch,
    Decided,
    Effect,
    Event,
    Failed,
    Superseded,
    Tick,
    Unschedulable,
    WorkerFault,
    Workers,
)
from services.cycle.extending import AskExtenders, ExtendersAnswered, Extending, plain_class
from services.cycle.filling import MOST_POD_BYTES, classes_asked, next_pods
from services.cycle.gang import GangRound, take_gang
from services.cycle.intake import Intake
from services.cycle.knowledge import Knowledge
from services.cycle.narrowing import VictimsAnswered
from services.cycle.round import Round
from services.cycle.searching import Progress, Searching
from services.cycle.settling import MOST_ASKS, Settling
from services.cycle.verifying import Verifying
from services.cycle.walk import QueuedPod, Walk, walk
from shared.errors import MOST_REMEMBERED, FlotillaError, InvalidConfig, InvariantBroken, ProtocolError
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.messages.preemption import Candidates
from shared.messages.rounds import Proposals, Propose
from shared.messages.state import EPOCH_SHIFT, Commit, Committed, Conflict, Heartbeat

ASK_DEADLINE = 1.0
"""Seconds until a worker that has not answered is asked again."""


class CycleCore:
    def __init__(
        self,
        epoch: int,
        frameworks: Mapping[str, Framework],
        *,
        round_size: int = 256,
        ties: Ties | None = None,
        pace: float = 0.0,
        extending: Extending | None = None,
        incarnation: str = "",
    ) -> None:
        """`pace`: seconds between two rounds that are not full; pods that come meanwhile share the second one.

        `incarnation`: by which the snapshot tells this cycle from another one of the same epoch.
        """
        if round_size < 1:
            raise InvalidConfig("roundSize", f"must be at least 1, not {round_size}")
        self.epoch = epoch
        self.incarnation = incarnation
        self.frameworks = frameworks
        self.round_size = round_size
        self.ties = ties or Ties()
        self.pace = pace
        self.refused: deque[ProtocolError] = deque(maxlen=MOST_REMEMBERED)
        self.rounds = 0
        self._backlog: deque[QueuedPod] = deque()
        self._held: set[str] = set()
        self._workers: Mapping[str, frozenset[int]] = {}
        self._knowledge = Knowledge()
        self._extending = extending or Extending()
        self._settling = Settling(self._knowledge, frameworks)
        self._intake = Intake(frameworks, self._extending)
        self._searching = Searching(
            epoch,
            frameworks,
            self.ties,
            self._extending.narrowing,
            at_once=round_size,
            stands_alone=self._knowledge.stands_alone,
        )
        self._verifying = Verifying()
        self._conflicts = Conflicts()
        self._committing = Committing(epoch, incarnation, self._intake.goes_along, self._verifying)
        self._min_seq = 0
        self._batch_seq = 0
        self._newest_seq = 0
        self._not_before = 0.0
        self._begin_at: float | None = None
        self._ask_by: float | None = None
        self._extend_by: float | None = None
        self._round: Round | None = None

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        """InvariantBroken if it can no longer account for the pods it holds: whoever runs it is to begin anew."""
        try:
            return self._handle(event, now)
        except FlotillaError:
            raise
        except Exception as cause:
            raise InvariantBroken(f"cycle broke down over {type(event).__name__}: {cause!r}") from cause

    def _handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Batch():
                return self._on_batch(event, now)
            case Workers():
                return self._on_workers(event, now)
            case Proposals():
                return self._on_proposals(event, now)
            case Candidates():
                return self._on_candidates(event, now)
            case Committed():
                return self._on_committed(event, now)
            case Heartbeat(seq=seq):
                self._verifying.on_heartbeat(seq)
                return []
            case ExtendersAnswered():
                return self._on_extenders(event, now)
            case VictimsAnswered():
                return self._searched(self._searching.on_victims(event), now)
            case Tick():
                return self._on_tick(now)

    def next_deadline(self) -> float | None:
        own = (self._ask_by, self._extend_by, self._begin_at)
        deadlines = (*own, self._committing.deadline, self._searching.deadline)
        return min((by for by in deadlines if by is not None), default=None)

    @property
    def pods_held(self) -> int:
        """How many pods wait here for an outcome; what the queue may still send is its credit less this."""
        return len(self._held)

    @property
    def under_way(self) -> set[int]:
        """The rounds that are being asked about or committed."""
        asked = set() if self._round is None else {self._round.number}
        committing = self._committing.under_way
        return asked if committing is None else asked | {committing.round}

    @property
    def _commit(self) -> Commit | None:
        """What is being committed."""
        return None if self._committing.under_way is None else self._committing.under_way.commit

    @property
    def asked_pods(self) -> list[str]:
        """The uids of the pods that are being asked about."""
        return [] if self._round is None else [queued.pod.uid for queued in self._round.pods]

    def _on_batch(self, batch: Batch, now: float) -> list[Effect]:
        self._batch_seq = max(self._batch_seq, batch.seq)
        self._verifying.hear(batch.seq)
        effects: list[Effect] = []
        for pod in batch.pods:
            if pod.uid in self._held:
                continue
            taken = self._intake.take(pod, batch.gangs.get(pod.uid))
            if isinstance(taken, Failed):
                effects.append(taken)
                self._committing.denominate(pod)
                continue
            self._held.add(pod.uid)
            self._backlog.append(taken)
        return effects + self._go_ahead(now)

    def _on_workers(self, event: Workers, now: float) -> list[Effect]:
        """Whoever is new is asked; who is gone is not waited for. The round in flight is asked again."""
        self._workers = dict(event.shards) if event.complete else {}
        self._knowledge.keep_workers(self._workers)
        self._verifying.on_workers(event)
        effects = self._searching.on_workers(self._workers, now)
        if self._round is None:
            return effects + self._search(now) + self._begin(now)
        self._round.start_over()
        self._extend_by = None
        return effects + self._ask(self._round, now)

    def _on_tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = [*self._committing.tick(now)]
        if self._round is not None and self._ask_by is not None and now >= self._ask_by:
            effects += self._send(self._round, now)
        effects += self._searched(self._searching.on_tick(self._workers, now), now)
        if self._round is not None and self._extend_by is not None and now >= self._extend_by:
            silence = ExtendersAnswered(self._round.number, self._round.ask, self._round.silence())
            effects += self._on_extenders(silence, now)
        if self._begin_at is not None and now >= self._begin_at:
            self._begin_at = None
            effects += self._begin(now)
        return effects

    # A round

    def _begin(self, now: float) -> list[Effect]:
        if self._round is not None or not self._backlog or not self._workers:
            return []
        if self.round_size == 1 and (self._searching.is_busy or self._committing.awaits_search):
            return []  # one after another: the next is to meet the room that this one gets
        if len(self._backlog) < self.round_size:
            if self._commit is not None:
                return []
            if now < self._not_before:
                self._begin_at = self._not_before
                return []
        effects: list[Effect] = []
        while self._backlog:
            gang = take_gang(self._backlog)
            refused = None if gang is None else gang.refused(MOST_POD_BYTES)
            if refused is None:
                self._begin_at, self._not_before = None, now + self.pace
                return effects + self._begin_round(gang, now)
            effects += self._end(refused)
        return effects

    def _begin_round(self, gang: GangRound | None, now: float) -> list[Effect]:
        """One of a gang is another step with what is left open of it."""
        self.rounds += 1
        waiting = self._backlog if gang is None else gang.open
        pods = next_pods(waiting, self.round_size, self._knowledge, self._settling.nodes)
        self._round = Round(self.rounds, pods, gang)
        self._round.topologies = self._knowledge.topologies(self._round.classes)
        return self._ask(self._round, now)

    def _ask(self, round_: Round, now: float) -> list[Effect]:
        round_.next_ask()
        for class_id in round_.open:
            guess = self._knowledge.guess(round_.remembered_as(class_id))
            round_.guesses[class_id] = guess or self._knowledge.borrowed(round_.classes[class_id].profile)
            round_.borrowed[class_id] = guess is None
        return self._send(round_, now)

    def _send(self, round_: Round, now: float) -> list[Effect]:
        """Asks every worker that has not answered yet about the classes that are open."""
        self._ask_by = now + ASK_DEADLINE
        return [Ask(worker, self._propose(round_, worker)) for worker in self._workers if worker not in round_.answered]

    def _propose(self, round_: Round, worker: str) -> Propose:
        asks = classes_asked(round_, worker, len(self._workers), self._knowledge)
        # What is being committed will most likely be the next that the workers see.
        wanted = self._min_seq if self._commit is None else max(self._min_seq, self._newest_seq + 1)
        round_.is_to_see(max(wanted, self._batch_seq))
        round_.asked_keys = round_.keys
        keys = list(round_.asked_keys)
        given, loads = ([], []) if round_.gang is None else round_.gang.given()
        return Propose(
            self.epoch, round_.number, round_.ask, round_.min_seq, self.ties, asks, keys, given=given, loads=loads
        )

    def _on_proposals(self, proposals: Proposals, now: float) -> list[Effect]:
        round_, worker = self._round, proposals.worker
        if (
            round_ is None
            or proposals.epoch != self.epoch
            or (proposals.round, proposals.ask) != (round_.number, round_.ask)
            or worker in round_.answered
        ):
            return []  # late or doubled
        if self._is_refused(proposals):
            return []
        fault = self._verifying.proposals(proposals, round_.least_seq or 0, round_.open, round_.asked_keys)
        if fault is not None:
            return [fault, Ask(worker, self._propose(round_, worker))]
        self._knowledge.remember_known(proposals)
        self._newest_seq = max(self._newest_seq, proposals.seq)
        if self._commit is None and proposals.seq < self._min_seq:
            return [Ask(worker, self._propose(round_, worker))]  # judged before the commit, and overtaken by its answer
        round_.answered[worker] = proposals
        return self._look(round_, now)

    def _is_refused(self, answer: Proposals | Candidates) -> bool:
        why = self._verifying.refusal(answer)
        if why:
            self.refused.append(ProtocolError(why))
        return bool(why)

    def _look(self, round_: Round, now: float) -> list[Effect]:
        """Has everybody answered, and is the round before decided?"""
        if not self._workers:
            return []
        if len(round_.answered) < len(self._workers) or self._commit is not None:
            if len(round_.answered) == len(self._workers):
                self._ask_by = None
            return []
        try:
            self._settling.gather(round_, len(self._workers))
        except Exception as cause:
            return self._blame(round_, cause, now)
        if not set(round_.keys) <= set(round_.asked_keys):
            round_.open = set(round_.classes)  # whatever was proposed, its domains are to be told as well
        if round_.open and round_.ask < MOST_ASKS:
            return self._ask(round_, now)
        questions = round_.questions()
        if questions:
            self._ask_by, self._extend_by = None, now + self._extending.patience(questions)
            return [AskExtenders(round_.number, round_.ask, questions)]
        return self._decide(round_, now)

    def _blame(self, round_: Round, cause: Exception, now: float) -> list[Effect]:
        """Ask workers with unusable answers again; re-raise if every answer is usable."""
        effects: list[Effect] = []
        for worker in (unusable := round_.unusable(self.frameworks)):
            del round_.answered[worker]
            effects.append(WorkerFault(worker, "answer", "what it tells of its nodes cannot be read"))
        if not unusable:
            raise cause
        return effects + self._send(round_, now)

    def _on_extenders(self, answered: ExtendersAnswered, now: float) -> list[Effect]:
        round_ = self._round
        if round_ is None or self._extend_by is None or (answered.round, answered.ask) != (round_.number, round_.ask):
            return []
        self._extend_by = None
        again = round_.take_judgements(answered.judgements)
        if not again:
            return self._decide(round_, now)
        for class_id in again:
            expected = self._knowledge.guess(plain_class(class_id))
            if expected is not None:
                self._knowledge.expect(class_id, round_.classes[class_id].profile, expected)
        return self._ask(round_, now)

    # Its end

    def _decide(self, round_: Round, now: float) -> list[Effect]:
        try:
            round_.follow(self.frameworks)
            verdicts = {class_id: round_.verdict(class_id) for class_id in round_.classes}
            result = walk(round_.pods, verdicts, round_.trackers, round_.promised)
        except Exception as cause:
            return self._blame(round_, cause, now)
        self._round = self._ask_by = None
        if result.decided:
            for class_id in round_.trackers:
                profile = round_.classes[class_id].profile
                self._knowledge.expect(round_.remembered_as(class_id), profile, round_.prediction(class_id))
        if round_.gang is not None:
            round_.gang.take(result)
            if not round_.gang.is_over:
                return self._begin_round(round_.gang, now)
            result = round_.gang.outcome()
        effects = self._end(result)
        self._backlog.extendleft(reversed(result.deferred))
        if result.decided:
            effects.append(self._committing.write_round(round_.number, result, now))
        return effects + self._go_ahead(now)

    def _end(self, result: Walk) -> list[Effect]:
        """Tells who has got no place, or has it searched for."""
        hopeless = [(queued, unfit) for queued, unfit in result.unfit if self._searching.concerns(queued, unfit)]
        unfit = [(queued, unfit) for queued, unfit in result.unfit if not self._searching.concerns(queued, unfit)]
        self._searching.add(hopeless)
        effects: list[Effect] = [Unschedulable(queued.pod.uid, why) for queued, why in unfit]
        effects += [Failed(queued.pod.uid, status) for queued, status in result.failed]
        for queued, _ in (*unfit, *result.failed):
            self._held.discard(queued.pod.uid)
            self._committing.denominate(queued.pod)
        return effects

    def _go_ahead(self, now: float) -> list[Effect]:
        """What was found is committed, something is searched for, and a round begun: as far as each may be now."""
        return [*self._committing.write_found(now), *self._search(now), *self._begin(now)]

    def _search(self, now: float) -> list[Effect]:
        """Once what was decided last is committed, so that it is seen."""
        if self._commit is not None:
            return []
        return self._searching.begin(self._workers, max(self._min_seq, self._batch_seq), now)

    def _on_candidates(self, candidates: Candidates, now: float) -> list[Effect]:
        if not self._searching.awaits(candidates) or self._is_refused(candidates):
            return []
        fault = self._verifying.candidates(candidates, *self._searching.asked)
        if fault is not None:
            return [fault, *self._searching.ask_again(candidates.worker)]
        progress = self._searching.on_candidates(candidates, self._workers, now)
        self._newest_seq = max(self._newest_seq, candidates.seq)
        return self._searched(progress, now)

    def _searched(self, progress: Progress, now: float) -> list[Effect]:
        for queued in progress.denominated:
            self._committing.denominate(queued.pod)
        self._held.difference_update(queued.pod.uid for queued in progress.told)
        self._backlog.extendleft(reversed(progress.again))
        self._committing.add(progress.found)
        return progress.effects + self._go_ahead(now)

    def _on_committed(self, committed: Committed, now: float) -> list[Effect]:
        if committed.seq >> EPOCH_SHIFT < self._verifying.known >> EPOCH_SHIFT:
            self.refused.append(ProtocolError(f"commit {committed.round} is answered by a snapshot of an earlier term"))
            return []
        ended = self._committing.take(committed)
        if ended is None:
            return []
        effects: list[Effect] = [*self._verifying.committed(committed.seq), *faults_of(ended.commit, committed)]
        self._min_seq = committed.seq
        self._newest_seq = committed.seq if effects else max(self._newest_seq, committed.seq)
        conflicts = {conflict.uid: conflict for conflict in committed.conflicts}
        effects += self._end_search(ended.found, conflicts, committed.seq)
        if ended.walked is not None:
            effects += self._end_round(ended.walked, conflicts)
        effects += [*self._committing.write_found(now), *self._search(now)]
        if self._round is None:
            return effects + self._begin(now)
        return effects if self._commit is not None else effects + self._go_on(self._round, now)

    def _end_round(self, result: Walk, conflicts: Mapping[str, Conflict]) -> list[Effect]:
        effects: list[Effect] = []
        lost: dict[str, QueuedPod] = {}
        for queued, rung in result.decided:
            uid = queued.pod.uid
            conflict = conflicts.get(uid)
            if conflict is not None and not conflict.placed:
                lost[uid] = queued
            else:
                self._held.discard(uid)
                self._conflicts.won(queued)
                effects.append(Decided(uid, rung.node) if conflict is None else Superseded(uid))
        if lost:
            again, tired = self._conflicts.again(result, lost, self._held)
            self._put_back(result, again)
            return effects + self._end(Walk(result.order, failed=tired))
        return effects + self._end(Walk(result.order, unfit=result.withheld))

    def _end_search(self, found: Iterable[Found], conflicts: Mapping[str, Conflict], number: int) -> list[Effect]:
        """Who has got room by now rests, until pods have left; the others of the class are decided anew."""
        effects: list[Effect] = []
        again: list[QueuedPod] = []
        for each in found:
            uid = each.queued.pod.uid
            conflict = conflicts.get(uid)
            if conflict is not None and not conflict.placed:
                if self._conflicts.lost(each.queued, self._held):
                    effects += self._end(Walk([uid], failed=[(each.queued, CONFLICTS)]))
                    again += each.others
                else:
                    again += each.pods
                continue
            self._held.discard(uid)
            self._conflicts.won(each.queued)
            again += each.others
            if conflict is None:
                effects.append(Unschedulable(uid, each.unfit, each.preemption, number if each.evicts else 0))
            else:
                effects.append(Superseded(uid))
        self._backlog.extendleft(reversed(again))
        return effects

    def _put_back(self, result: Walk, lost: dict[str, QueuedPod]) -> None:
        """The pods that lost a conflict, and those deferred in the same round, before all others and in their order."""
        if self._round is not None:
            self._backlog.extendleft(reversed(self._round.held))
            self._round = self._ask_by = self._extend_by = None
        waiting = lost | {queued.pod.uid: self._backlog.popleft() for queued in result.deferred}
        self._backlog.extendleft(waiting[uid] for uid in reversed(result.order) if uid in waiting)

    def _go_on(self, round_: Round, now: float) -> list[Effect]:
        """The commit before this round is done: asks again whoever judged without it, or waits for what never was."""
        in_vain = max(self._min_seq, self._batch_seq) < round_.min_seq
        early = {worker for worker, proposals in round_.answered.items() if proposals.seq < self._min_seq}
        for worker in early:
            del round_.answered[worker]
        again = [w for w in self._workers if w in early or (in_vain and w not in round_.answered)]
        if again:
            self._ask_by = now + ASK_DEADLINE
            return [Ask(worker, self._propose(round_, worker)) for worker in again]
        return self._look(round_, now)

    def validate(self) -> None:
        """Every pod held is in the backlog, or in the round or commit in flight, and once."""
        where = [queued.pod.uid for queued in self._backlog]
        if self._round is not None:
            where += [queued.pod.uid for queued in self._round.held]
        where += [queued.pod.uid for queued in (*self._searching.held(), *self._committing.held())]
        if len(where) != len(set(where)) or set(where) != self._held:
            raise InvariantBroken(f"cycle holds {len(self._held)} pods and can account for {len(where)}")
