"""The cycle's core: runs rounds. It asks the workers, merges their answers, decides, and has the snapshot commit.

    idle --pods--> asking --all answered, guesses right--> committing --committed--> idle
                     |  ^                                      |
                     +--+ a guess was wrong, or a worker late  +--> sent again after its deadline

While one round is committed the next one is asked about, if there are enough pods for it: smaller rounds cost more per
pod, and more pods will have come by the time of the answer. It is decided once that commit is answered, and only by
answers that have seen it. After a conflict the whole round waits, so that the pod that lost goes first. What a
preemption search has found is committed between two rounds.

The cycle holds a pod from the batch that brought it until its outcome: decided, unschedulable, failed, or superseded
(it was placed already). Stale pods and lost conflicts wait at the head of the backlog for the next round.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from services.cycle.answer_checks import AnswerChecks
from services.cycle.batches import admit
from services.cycle.commits import Commits, ConflictCounts, PlannedNomination, faults_of, without_gone
from services.cycle.events import (
    ConfirmTerm,
    Decided,
    Effect,
    EndTerm,
    Event,
    ExplanationAsked,
    Failed,
    Superseded,
    TermConfirmed,
    Tick,
    Unschedulable,
    WorkerFault,
    Workers,
    failed,
    unschedulable,
)
from services.cycle.explanation.explanations import Explanations
from services.cycle.extenders import Extenders, ExtendersAnswered, ExtendersExplained, VictimsAnswered
from services.cycle.preemption.search_queue import SearchProgress, SearchQueue
from services.cycle.recording import Decider, Recording
from services.cycle.round.admission import Admission, PodInfo
from services.cycle.round.assign import RoundResult, Unfit
from services.cycle.round.gang_memory import GangMemory
from services.cycle.round.gangs import is_tree, take_gang, where_they_are
from services.cycle.round.next_pods import ENOUGH, MAX_POD_BYTES
from services.cycle.round.round import Round
from services.cycle.round.runner import UNMERGEABLE, RoundProgress, RoundRunner
from services.cycle.round.views import NO_VIEW
from shared.errors import MAX_REMEMBERED, FlotillaError, InvalidConfig, InvariantBroken, ProtocolError
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.messages.explaining import ShardExplained
from shared.messages.preemption import Candidates
from shared.messages.queue import Batch
from shared.messages.recording import RecordDecisions
from shared.messages.rounds import Proposals
from shared.messages.state import EPOCH_SHIFT, Committed, Conflict, Heartbeat, OthersChanged
from shared.pace import Pace

PAUSE_PER_RATE = 0.00012
"""Seconds of pause before a round of few pods for each pod in a second."""


class CycleCore:
    def __init__(
        self,
        epoch: int,
        frameworks: Mapping[str, Framework],
        *,
        round_size: int = 1024,
        ties: Ties | None = None,
        longest_pause: float = 0.0,
        extenders: Extenders | None = None,
        incarnation: str = "",
        decider: Decider | None = None,
        hints: bool = False,
    ) -> None:
        """`longest_pause`: seconds between two rounds of fewer than ENOUGH pods, at most, where many pods come.

        `incarnation` distinguishes this cycle from another one of the same epoch. `decider`: what recorders hear of it.
        `hints`: whether pods that fit nowhere get Events with what would help.
        """
        if round_size < 1:
            raise InvalidConfig("roundSize", f"must be at least 1, not {round_size}")
        self.epoch = epoch
        self.incarnation = incarnation
        self.frameworks = frameworks
        self.round_size = round_size
        self.ties = ties or Ties()
        self.refused: deque[ProtocolError] = deque(maxlen=MAX_REMEMBERED)
        self._extenders = extenders or Extenders()
        self._backlog: deque[PodInfo] = deque()
        self._held: set[str] = set()
        self._workers: Mapping[str, frozenset[int]] = {}
        self._admission = Admission(frameworks, self._extenders)
        self._checks = AnswerChecks()
        self._recording = Recording(epoch, incarnation, round_size, self.ties, decider or Decider())
        self._commits = Commits(epoch, incarnation, self._checks)
        common = epoch, frameworks, self.ties, self._extenders
        self.rounds = RoundRunner(
            *common, self._checks, self._commits, round_size=round_size, record=self._record_round
        )
        self._conflicts = ConflictCounts()
        self._gang_memory = GangMemory()
        self._searches = SearchQueue(*common, at_once=round_size, stands_alone=self.rounds.cache.stands_alone)
        self.explanations = Explanations(epoch, frameworks, self._extenders, hints=hints)
        self._pace = Pace(longest_pause, PAUSE_PER_RATE)
        self._begin_at: float | None = None

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        """InvariantBroken: the core can no longer account for its pods, and must not be used further."""
        self.explanations.begin(now)
        try:
            effects = self._handle(event, now)
            for effect in effects:
                if isinstance(effect, Unschedulable | Failed):
                    self.explanations.journal.unplaced(effect, self.rounds.begun, self.rounds.min_seq, now)
            return self._commits.with_deltas(self._with_hints(effects, now))
        except FlotillaError:
            raise
        except Exception as cause:
            raise InvariantBroken(f"cycle broke down over {type(event).__name__}: {cause!r}") from cause

    def _with_hints(self, effects: list[Effect], now: float) -> list[Effect]:
        is_idle = not (self._held or self.is_committing or self._searches.is_busy)
        effects, problems = self.explanations.with_hints(effects, self._workers, self._newest_needed, now, idle=is_idle)
        self.refused.extend(problems)
        return effects

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
            case ExplanationAsked():
                return self.explanations.on_asked(event, self._workers, self._newest_needed, now)
            case ShardExplained():
                return self._on_explained(event, now)
            case Committed():
                return self._on_committed(event, now)
            case Heartbeat():
                return self._on_heartbeat(event, now)
            case OthersChanged(seq=seq):
                self.rounds.known.on_published(seq)
                return []
            case ConfirmTerm():
                self._commits.confirm_term()
                return self._send_planned(now)
            case ExtendersAnswered():
                return self._on_round(self.rounds.on_extenders(event, now), now)
            case RecordDecisions():
                return [*self._recording.ask(event, now)]
            case ExtendersExplained():
                return self.explanations.on_extenders(event, self._workers, self._newest_needed, now)
            case VictimsAnswered():
                return self._on_search(self._searches.on_victims(event), now)
            case Tick():
                return self._on_tick(now)

    def next_deadline(self) -> float | None:
        deadlines = (
            self._begin_at,
            self.rounds.next_deadline(),
            self._commits.unanswered.next_deadline(),
            self._searches.next_deadline(),
            self.explanations.next_deadline(),
        )
        return min((by for by in deadlines if by is not None), default=None)

    @property
    def preemption_attempts(self) -> int:
        """Pods for which victims were searched."""
        return self._searches.attempts

    @property
    def pods_held(self) -> int:
        """Pods without an outcome. What the queue may still send is its credit less this."""
        return len(self._held)

    @property
    def rounds_under_way(self) -> set[int]:
        """The rounds that are asked about or committed."""
        asked = set() if self.rounds.current is None else {self.rounds.current.number}
        return asked if self._commits.pending is None else asked | {self._commits.pending.round}

    @property
    def round_awaited(self) -> int:
        """The round of the commit that is not answered yet; -1 if there is none."""
        return -1 if self._commits.pending is None else self._commits.pending.commit.number

    @property
    def is_committing(self) -> bool:
        return self._commits.pending is not None

    def _on_batch(self, batch: Batch, now: float) -> list[Effect]:
        self._checks.on_claim(batch.seq)
        came = admit(batch, self._admission, self._held, now)
        self.refused += came.refused
        for each in came.failed:
            if each.pod is not None:
                self._commits.denominate(each.pod)
        self._held.update(info.uid for info in came.pods)
        self._backlog += came.pods
        return [*came.failed, *self._go_ahead(now)]

    def _on_workers(self, event: Workers, now: float) -> list[Effect]:
        """Lost workers are not waited for, and the round in flight is asked again of the present ones."""
        self._workers = dict(event.shards) if event.complete else {}
        self._checks.on_workers(event)
        self.rounds.on_workers(self._workers)
        effects = self._searches.on_workers(self._workers, now)
        effects += self.explanations.on_workers(self._workers, self._newest_needed, now)
        if self.rounds.current is None:
            return effects + self._search(now) + self._begin(now)
        return effects + self._send_planned(now) + self.rounds.ask_again(now)

    def _on_heartbeat(self, heartbeat: Heartbeat, now: float) -> list[Effect]:
        """A snapshot that has just begun its term has not heard the pending commit."""
        before = self._checks.known_seq
        if self._checks.is_refuted_by(heartbeat.seq, now):
            return [EndTerm(f"the snapshot named sequence number {before}, and its newest is {heartbeat.seq}")]
        is_new = heartbeat.seq >> EPOCH_SHIFT > before >> EPOCH_SHIFT
        if self._checks.on_heartbeat(heartbeat.seq):
            newest = f"and the snapshot's newest is {heartbeat.seq}"
            self.refused.append(ProtocolError(f"the queue named a later sequence number, {newest}"))
            self._searches.wait_for(max(self.rounds.min_seq, heartbeat.seq))
            self.explanations.wait_for(max(self.rounds.min_seq, heartbeat.seq))
        self.rounds.known.on_published(heartbeat.seq)
        return [*self._commits.resend(now)] if is_new else []

    def _on_tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = [*self._commits.unanswered.due(now), *self.rounds.repeat_asks(now)]
        effects += self._on_search(self._searches.on_tick(self._workers, now), now)
        effects += self.explanations.on_tick(self._workers, self._newest_needed, now)
        effects += self._on_round(self.rounds.late_extenders(now), now)
        if self._begin_at is not None and now >= self._begin_at:
            self._begin_at = None
            effects += self._begin(now)
        return effects

    # A round

    def _begin(self, now: float) -> list[Effect]:
        if self.rounds.current is not None or not self._workers:
            return []
        rehearsal = self._searches.next_rehearsal()
        if rehearsal is not None:
            return self._on_round(self.rounds.begin(self._backlog, rehearsal, now), now)
        if not self._backlog:
            return []
        self._admission.judge_by_labels(self._backlog)
        if self._awaits_nomination or (self.is_committing and self.rounds.is_better_alone(self._backlog)):
            return []
        if len(self._backlog) < min(self.round_size, ENOUGH) and not self.rounds.passed_over:
            if self.is_committing:
                return []
            if now < self._pace.not_before:
                self._begin_at = self._pace.not_before
                return []
        effects: list[Effect] = []
        while self._backlog:
            if is_tree(self._backlog) and self.is_committing:
                return effects
            gang = take_gang(self._backlog, self._gang_memory)
            refused = None if gang is None else gang.refused(MAX_POD_BYTES)
            if refused is None:
                self._begin_at = None
                progress = self.rounds.begin(self._backlog, gang, now)
                self._pace.began(self.rounds.size, now)
                return effects + self._on_round(progress, now)
            effects += self._end(refused)
        return effects

    @property
    def _awaits_nomination(self) -> bool:
        """Whether, in strict mode, the next pod must see the nomination of one before it."""
        return self.round_size == 1 and (self._searches.is_busy or self._commits.has_nominations)

    def _may_share_commit(self, now: float) -> bool:
        """Decisions of strict mode do, but for recorded ones: a replay needs a state with all decisions before it."""
        sees_nominations = not (self._awaits_nomination or self._commits.ends_nominations)
        return self.round_size == 1 and sees_nominations and not self._recording.is_on(now)

    def _on_proposals(self, proposals: Proposals, now: float) -> list[Effect]:
        if not self.rounds.awaits(proposals) or self._is_refused(proposals):
            return []
        if self.rounds.leaves_out(self._admission.learn(proposals.individual_labels)):
            self._give_back_round()
            return self._begin(now)
        return self._on_round(self.rounds.on_proposals(proposals, now), now)

    def _on_explained(self, explained: ShardExplained, now: float) -> list[Effect]:
        """A wrong answer is no fault that counts, because nothing rests on it; its worker is asked again."""
        if not self.explanations.awaits(explained) or self._is_refused(explained):
            return []
        return self.explanations.on_explained(explained, self._workers, self._newest_needed, now)

    def _is_refused(self, answer: Proposals | Candidates | ShardExplained) -> bool:
        if why := self._checks.refusal(answer):
            self.refused.append(ProtocolError(why))
        return bool(why)

    def _on_round(self, progress: RoundProgress, now: float) -> list[Effect]:
        effects, result = progress.effects, progress.result
        if result is None:
            return effects
        gang = progress.gang
        if gang is not None and gang.is_rehearsed:
            others_decided = self.is_committing or self._newest_needed > self._searches.asked[0]
            rehearsed = self._searches.on_rehearsed(gang, result, others_decided=others_decided)
            return effects + self._on_search(rehearsed, now)
        if gang is not None and result.decided:
            result = self._commits.refuse_large(gang.key, result)
        if gang is None and self._may_share_commit(now):
            self._admission.judge_by_labels(self._backlog)
            self.rounds.decide_following(result, self._backlog)
        effects += self._end(result if gang is None else self._searches.take_gang(gang, result))
        self._admission.judge_by_name(info for info in result.deferred if info.class_id in result.by_name)
        self._backlog.extendleft(reversed(result.deferred))
        if result.decided:
            effects.append(self._commits.send_round(progress.number, result, now, quiet=progress.unasked))
        return effects + self._go_ahead(now)

    def _end(self, result: RoundResult) -> list[Effect]:
        """Ends the attempts of failed and unfit pods, or has preemption candidates searched for them."""
        effects: list[Effect] = []
        searched: list[tuple[PodInfo, Unfit]] = []
        for info, why in result.unfit:
            ended = self._searches.without_search(info, why)
            if ended is None and self._searches.applies_to(info, why):
                searched.append((info, why))
                continue
            self._held.discard(info.uid)
            if ended is None:
                self._commits.denominate(info)
            effects.append(ended or unschedulable(info, why))
        self._searches.add(searched)
        for info, status in result.failed:
            self._held.discard(info.uid)
            self._commits.denominate(info)
            effects.append(failed(info, status))
        return effects

    def _go_ahead(self, now: float) -> list[Effect]:
        """Commits nominations, begins a search and a round, as far as each is possible now."""
        return [*self._send_planned(now), *self._search(now), *self._begin(now)]

    def _send_planned(self, now: float) -> list[Effect]:
        """Not while a round keeps answers, be it while extenders are asked: they would not know of the commit."""
        if self.rounds.current is not None and self.rounds.current.keeps_answers:
            return []
        return [*self._commits.send_planned(now)]

    def _record_round(self, round_: Round, result: RoundResult, now: float) -> Iterable[Effect]:
        return self._recording.round(round_, result, self._workers) if self._recording.is_on(now) else ()

    # Preemption

    def _search(self, now: float) -> list[Effect]:
        """Once the last decisions are committed, so that workers see them."""
        if self.is_committing:
            return []
        return self._searches.begin(self._workers, self._newest_needed, now)

    @property
    def _newest_needed(self) -> int:
        """The sequence number that workers must have seen to know of every decision and what the queue knows."""
        return max(self.rounds.min_seq, self._checks.claimed_seq)

    def _on_candidates(self, candidates: Candidates, now: float) -> list[Effect]:
        if not self._searches.awaits(candidates) or self._is_refused(candidates):
            return []
        fault = self._checks.candidates(candidates, *self._searches.asked, of_gang=self._searches.is_of_gang)
        if fault is None and not self._searches.is_usable(candidates):
            fault = WorkerFault(candidates.worker, "answer", UNMERGEABLE)
        if fault is not None:
            return [fault, *self._searches.ask_again(candidates.worker)]
        progress = self._searches.on_candidates(candidates, self._workers, now)
        self.rounds.saw(candidates.seq)
        return self._on_search(progress, now)

    def _on_search(self, progress: SearchProgress, now: float) -> list[Effect]:
        if progress.concluded is not None and self._recording.is_on(now):
            stands_alone = self.rounds.cache.stands_alone
            progress.effects += self._recording.search(progress.concluded, progress, stands_alone, self._workers)
        for info in progress.denominated:
            self._commits.denominate(info)
        self._held.difference_update(info.uid for info in progress.ended)
        self._backlog.extendleft(reversed(progress.again))
        too_large = self._commits.plan(progress.nominations)
        return progress.effects + self._end(too_large) + self._go_ahead(now)

    # The answer to a commit

    def _on_committed(self, committed: Committed, now: float) -> list[Effect]:
        if committed.seq >> EPOCH_SHIFT < self._checks.known_seq >> EPOCH_SHIFT:
            self.refused.append(
                ProtocolError(f"commit {committed.number} is answered by a snapshot of an earlier term")
            )
            return []
        answered = self._commits.take(committed)
        if answered is None:
            return []
        faults = [*self._checks.on_committed(committed.seq, now), *faults_of(answered.commit, committed)]
        self.rounds.on_committed(committed.seq, is_at_fault=bool(faults))
        is_whole = not (faults or committed.conflicts)
        self.rounds.known.on_committed(committed.seq, committed.others, committed.relabelled, is_whole=is_whole)
        effects: list[Effect] = [*faults]
        if self._recording.is_on(now) and (answered.round or answered.nominations):
            effects.append(self._recording.committed(answered.round, committed))
        if answered.confirms:
            effects.append(TermConfirmed())
        conflicts = {conflict.uid: conflict for conflict in committed.conflicts}
        effects += self._end_nominations(answered.nominations, conflicts, committed.seq)
        if answered.result is not None:
            effects += self._end_round(answered.result, answered.round, conflicts, now)
        effects += [*self._send_planned(now), *self._search(now)]
        if self.rounds.current is None:
            return effects + self._begin(now)
        return effects if self.is_committing else effects + self._on_round(self.rounds.resume(now), now)

    def _end_round(
        self, result: RoundResult, number: int, conflicts: Mapping[str, Conflict], now: float
    ) -> list[Effect]:
        effects: list[Effect] = []
        result, gone = without_gone(result, conflicts)
        lost: dict[str, PodInfo] = {}
        result.decided = where_they_are(result.decided, conflicts)
        for info, placement in result.decided:
            conflict = conflicts.get(info.uid)
            if conflict is not None and not conflict.placed:
                self._admission.judge_by_name([info])  # its claims may have changed
                lost[info.uid] = info
                continue
            self._held.discard(info.uid)
            self._conflicts.won(info)
            self._gang_memory.placed(info, placement.node, now)
            if conflict is None:
                self.explanations.journal.placed(info, placement, number, result.views.get(info.class_id, NO_VIEW), now)
            decided = Decided(info.uid, placement.node, pod=info)
            effects.append(decided if conflict is None else Superseded(info.uid, conflict.node, pod=info))
        if not (lost or gone):
            return effects + self._end(RoundResult(result.order, unfit=result.withheld))
        again, tired = self._conflicts.after_round(result, lost, self._held)
        self._put_back(result, again)
        return effects + self._end(RoundResult(result.order, failed=[*gone, *tired]))

    def _end_nominations(
        self, nominations: Iterable[PlannedNomination], conflicts: Mapping[str, Conflict], number: int
    ) -> list[Effect]:
        """Nominated pods wait in the queue for the evictions; the others of the class are decided again."""
        effects: list[Effect] = []
        again: list[PodInfo] = []
        lost = self._conflicts.after_nominations(nominations, conflicts, self._held)
        for planned in nominations:
            info, uid = planned.info, planned.info.uid
            if uid in lost:
                why = lost[uid]
                effects += [] if why is None else self._end(RoundResult([uid], failed=[(info, why)]))
                again += planned.pods if why is None else planned.others
                continue
            self._held.discard(uid)
            self._conflicts.won(info)
            again += planned.others
            if uid not in conflicts:
                evicting = number if planned.evicts else 0
                effects.append(unschedulable(info, planned.unfit, planned.preemption, evicting))
            else:
                effects.append(Superseded(uid, conflicts[uid].node, pod=info))
        self._backlog.extendleft(reversed(again))
        return effects

    def _put_back(self, result: RoundResult, lost: dict[str, PodInfo]) -> None:
        """Pods that lost a conflict, and those deferred in the same round, go before all others, in their order."""
        self._give_back_round()
        waiting = lost | {info.uid: self._backlog.popleft() for info in result.deferred}
        self._backlog.extendleft(waiting[uid] for uid in reversed(result.order) if uid in waiting)

    def _give_back_round(self) -> None:
        self._backlog.extendleft(reversed(self.rounds.abandon()))
        self._searches.drop_rehearsal()

    def validate(self) -> None:
        """Raises InvariantBroken unless every held pod is in the backlog, a round, a search or a commit, and once."""
        where = [info.uid for info in self._backlog]
        if self.rounds.current is not None:
            where += [info.uid for info in self.rounds.current.held]
        where += [info.uid for info in (*self._searches.held(), *self._commits.held())]
        if len(where) != len(set(where)) or set(where) != self._held:
            raise InvariantBroken(f"cycle holds {len(self._held)} pods and can account for {len(where)}")
