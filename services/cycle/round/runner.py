"""RoundRunner: asks workers, and then extenders, about one round at a time, until it can be decided.

Asks are repeated after a deadline, and to workers whose answers cannot be used. A gang takes several rounds, each of
which asks about the members that are still open. What the decisions mean for pods and commits is up to the core.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile

from services.cycle.answer_checks import AnswerChecks
from services.cycle.commits import Commits
from services.cycle.events import Ask, Effect, WorkerFault
from services.cycle.extenders import AskExtenders, Extenders, ExtendersAnswered
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import RoundResult
from services.cycle.round.class_cache import ClassCache
from services.cycle.round.gang_reasons import with_possible_limits
from services.cycle.round.gangs import AnyGang
from services.cycle.round.known_answers import MAX_AHEAD_OF, KnownAnswers
from services.cycle.round.next_pods import ENOUGH, MAX_POD_BYTES, bytes_in_commit, next_pods
from services.cycle.round.round import Round
from shared.deadlines import earliest
from shared.framework.failures import Failures
from shared.framework.profile import MAX_ASKS, Framework
from shared.messages.evaluation import Ties
from shared.messages.rounds import Proposals
from shared.runtime.unanswered import Unanswered

ASK_DEADLINE = 1.0
"""Seconds until a worker that has not answered is asked again."""
UNMERGEABLE = "its summaries cannot be merged"


@dataclass(slots=True)
class RoundProgress:
    """Effects, and the result of the round with this number, once it is decided. `gang`: the one that was decided.

    `unasked`: no worker was asked.
    """

    effects: list[Effect] = field(default_factory=list)
    result: RoundResult | None = None
    number: int = 0
    gang: AnyGang | None = None
    unasked: bool = False


class RoundRunner:
    def __init__(
        self,
        epoch: int,
        frameworks: Mapping[str, Framework],
        ties: Ties,
        extenders: Extenders,
        checks: AnswerChecks,
        commits: Commits,
        *,
        round_size: int,
        record: Callable[[Round, RoundResult, float], Iterable[Effect]] = lambda round_, result, now: (),
    ) -> None:
        """`record`: tells recorders of what was decided."""
        self.begun = 0
        """The number of the last round that began."""
        self.size = 0
        """Its pods."""
        self.current: Round | None = None
        self.cache = ClassCache()
        self.known = KnownAnswers(frameworks)
        self.failures = Failures()
        """What plugins raised in rounds, for the log."""
        self.min_seq = 0
        """The sequence number of the last commit's answer."""
        self._newest_seq = 0
        """The newest sequence number that a worker has seen."""
        self.limit = min(round_size, ENOUGH)
        """Maximum pods of the next round."""
        self.passed_over = 0
        """Pods that the last round left for others, because their classes are decided apart."""
        self._packing = frozenset(name for name, framework in frameworks.items() if framework.packs)
        self._epoch = epoch
        self._frameworks = frameworks
        self._ties = ties
        self._extenders = extenders
        self._checks = checks
        self._commits = commits
        self._round_size = round_size
        self._is_cut = False
        """Whether the limit of questions left pods out of the current round."""
        self._record = record
        self._keeps = False
        """Whether answers of the current round are kept."""
        self._workers: Mapping[str, frozenset[int]] = {}
        self._asks = Unanswered[int, Round]((ASK_DEADLINE,))
        self._extend_by: float | None = None

    def begin(self, backlog: deque[PodInfo], gang: AnyGang | None, now: float) -> RoundProgress:
        """Takes the pods at the head of the backlog; or of a gang, the open members for its next step."""
        self.begun += 1
        pods, self.passed_over = ([] if gang is None else gang.asked()), 0
        if not pods:
            waiting = backlog if gang is None else gang.open
            pods, self.passed_over, self._is_cut = next_pods(waiting, self.limit, self.cache, self._packing)
        round_ = self.current = Round(self.begun, pods, self.cache, gang)
        self.size = len(pods)
        round_.next_ask()
        is_plain = gang is None and not round_.nominated
        self._keeps = is_plain and len(pods) <= MAX_AHEAD_OF and self._commits.pending is None
        if self._keeps and self._is_known(round_):
            progress = self._try_to_decide(round_, now)
            progress.unasked = progress.result is not None
            return progress
        if self._keeps and self._round_size == 1:
            self._ask_in_advance(round_, backlog)
        return RoundProgress(self._send(round_, now))

    def decide_following(self, result: RoundResult, backlog: deque[PodInfo]) -> None:
        """After the last round, for its commit: decides the pods that follow, as long as answers about them are known.

        Each is decided in a round of its own, by the answers as they are after the decisions before it. None is if the
        snapshot or a worker has told of a later state than those answers are known for.
        """
        if not self._keeps or self.known.is_outdated or self._newest_seq > self.known.seq:
            return
        room = MAX_POD_BYTES - sum(bytes_in_commit(info) for info, _ in result.decided)
        while backlog and backlog[0].gang is None and len(result.decided) == len(result.order) < MAX_AHEAD_OF:
            pods = next_pods(backlog, self.limit, self.cache, self._packing).pods
            room -= sum(map(bytes_in_commit, pods))
            following = None if room < 0 else self._decide_unasked(Round(self.begun, pods, self.cache))
            if following is None:
                backlog.extendleft(reversed(pods))
                return
            result.append(following)

    def is_better_alone(self, backlog: deque[PodInfo]) -> bool:
        """Whether the next round, in strict mode, is not to overlap with a commit: its answers are known once that is
        answered, most likely, or can be kept for rounds that follow.
        """
        first = backlog[0]
        is_plain = first.gang is None and first.nominated is None and first.template.profile not in self._packing
        if self._round_size > 1 or not is_plain or not self.cache.lasts(first.class_id):
            return False
        alike = takewhile(lambda info: info.class_id == first.class_id, backlog)
        return sum(1 for _ in islice(alike, MAX_AHEAD_OF + 1)) <= MAX_AHEAD_OF

    def on_workers(self, workers: Mapping[str, frozenset[int]]) -> None:
        """The workers that answer from now on. The current round must be asked again."""
        self._workers = workers
        self.cache.keep_workers(workers)
        self.known.clear()
        self._extend_by = None
        if self.current is not None:
            self.current.start_over()

    def ask_again(self, now: float) -> list[Effect]:
        return [] if self.current is None else self._ask(self.current, now)

    def saw(self, seq: int) -> None:
        """A worker has seen this sequence number."""
        self._newest_seq = max(self._newest_seq, seq)

    def on_committed(self, seq: int, *, is_at_fault: bool) -> None:
        """`is_at_fault`: a worker's fault came to light, so what workers claim to have seen does not count."""
        self.min_seq = seq
        self._newest_seq = seq if is_at_fault else max(self._newest_seq, seq)

    @property
    def asked_pods(self) -> list[str]:
        """The uids of the pods that are asked about."""
        return [] if self.current is None else [info.uid for info in self.current.pods]

    def next_deadline(self) -> float | None:
        return earliest(self._asks.next_deadline(), self._extend_by)

    def repeat_asks(self, now: float) -> list[Effect]:
        """Asks late workers again."""
        effects: list[Effect] = []
        for round_ in self._asks.due(now):
            effects += self._send(round_, now)
        return effects

    def late_extenders(self, now: float) -> RoundProgress:
        """Extenders that have not answered in time have failed."""
        if self.current is None or self._extend_by is None or now < self._extend_by:
            return RoundProgress()
        silence = ExtendersAnswered(self.current.number, self.current.ask, self.current.silence())
        return self.on_extenders(silence, now)

    def leaves_out(self, labels: Collection[str]) -> bool:
        """Whether the class of any pod of the current round leaves out any of these."""
        held = () if self.current is None else self.current.held
        return bool(labels) and any(not info.left_out.isdisjoint(labels) for info in held)

    def awaits(self, proposals: Proposals) -> bool:
        """Whether this is a worker's first answer to the present ask."""
        round_ = self.current
        if round_ is None or proposals.epoch != self._epoch or proposals.worker in round_.answered:
            return False
        return (proposals.round, proposals.ask) == (round_.number, round_.ask)

    def on_proposals(self, proposals: Proposals, now: float) -> RoundProgress:
        round_, worker = self.current, proposals.worker
        if round_ is None:
            return RoundProgress()
        labels = 0 if round_.scope is None else len(round_.scope.count_by or ())
        fault = self._checks.proposals(
            proposals, round_.least_seq or 0, round_.open, round_.asked_keys, labels, round_.nominated.node_of
        )
        if fault is not None:
            self.known.clear()
            return RoundProgress([fault, self._ask_worker(round_, worker)])
        self.cache.remember_known(proposals)
        self.saw(proposals.seq)
        if self._commits.pending is None and proposals.seq < self.min_seq:
            # Judged before the commit, but arrived after its answer.
            return RoundProgress([self._ask_worker(round_, worker)])
        if self._keeps:
            proposals = self.known.heard(proposals, round_.asked, round_.wanted(len(self._workers)))
        round_.answered[worker] = proposals
        return self._try_to_decide(round_, now)

    def on_extenders(self, answered: ExtendersAnswered, now: float) -> RoundProgress:
        round_ = self.current
        if round_ is None or self._extend_by is None or (answered.round, answered.ask) != (round_.number, round_.ask):
            return RoundProgress()
        self._extend_by = None
        if round_.take_judgements(answered.judgements):
            return RoundProgress(self._ask(round_, now))
        return self._decide(round_, now)

    def resume(self, now: float) -> RoundProgress:
        """The commit before this round is answered: asks workers again that judged without it, or that wait in vain."""
        round_ = self.current
        if round_ is None:
            return RoundProgress()
        in_vain = max(self.min_seq, self._checks.claimed_seq) < round_.min_seq
        early = {worker for worker, proposals in round_.answered.items() if proposals.seq < self.min_seq}
        for worker in early:
            del round_.answered[worker]
        again = [w for w in self._workers if w in early or (in_vain and w not in round_.answered)]
        if again:
            self._asks.sent(round_.number, round_, now)
            return RoundProgress([self._ask_worker(round_, worker) for worker in again])
        return self._try_to_decide(round_, now)

    def abandon(self) -> list[PodInfo]:
        """Ends the current round undecided, and returns its pods."""
        if self.current is None:
            return []
        held = self.current.held
        self.known.clear()
        self._asks.answered(self.current.number)
        self.current = self._extend_by = None
        return held

    # Inside

    def _is_known(self, round_: Round) -> bool:
        """Answers in place of the workers whose answers are known. Returns whether that is all of them."""
        if self._checks.claimed_seq > self.known.seq:
            return False
        wanted, seq = round_.wanted(len(self._workers)), self.known.seq
        known = self.known.answers(self._workers, wanted, round_.asked, round_.keys)
        round_.expect(known.merged)
        for worker, answers in known.answers.items():
            shards = sorted(self._workers[worker])
            proposals = Proposals(worker, self._epoch, round_.number, round_.ask, seq, shards, answers)
            round_.answered[worker] = proposals
        return len(round_.answered) == len(self._workers)

    def _ask_in_advance(self, round_: Round, backlog: Iterable[PodInfo]) -> None:
        """Also about classes of pods that follow, so that these can be decided for the same commit."""
        alone, lately = self.cache.stands_alone, self.known.lately
        if not all(map(alone, round_.classes)):
            return
        classes = {info.class_id: info for info in islice(backlog, MAX_AHEAD_OF)}
        coming = [info for each, info in classes.items() if each in lately and alone(each)]
        unknown = [info for info in coming if not self.known.offers(info.class_id, self._workers)]
        if unknown:
            round_.ask_in_advance(unknown)
            round_.answered.clear()
            self._is_known(round_)

    def _decide_unasked(self, round_: Round) -> RoundResult | None:
        """None unless all of its pods are placed by known answers."""
        round_.next_ask()
        if round_.nominated or len(round_.pods) > MAX_AHEAD_OF or not self._is_known(round_):
            return None
        try:
            round_.settle(self._frameworks, len(self._workers))
            result = None if round_.open else round_.decide(self._frameworks)
        except Exception:
            return None  # it is decided again, and then finds out which worker is wrong
        if result is None or len(result.decided) < len(round_.pods):
            for class_id in round_.classes:
                self.known.forget(class_id)  # it was judged by another summary than that of now
            return None
        self._conclude(round_, result)
        return result

    def _ask(self, round_: Round, now: float) -> list[Effect]:
        round_.next_ask()
        return self._send(round_, now)

    def _send(self, round_: Round, now: float) -> list[Effect]:
        """Asks every worker that has not answered yet."""
        self._asks.sent(round_.number, round_, now)
        return [self._ask_worker(round_, worker) for worker in self._workers if worker not in round_.answered]

    def _ask_worker(self, round_: Round, worker: str) -> Ask:
        # The pending commit will most likely be the next change that workers see.
        seq = self.min_seq if self._commits.pending is None else max(self.min_seq, self._newest_seq + 1)
        seq = max(seq, self._checks.claimed_seq)
        lately = self.known.lately if self._keeps else ()
        return Ask(worker, round_.propose(self._epoch, self._ties, seq, worker, len(self._workers), lately))

    def _try_to_decide(self, round_: Round, now: float) -> RoundProgress:
        """Waits for every worker and for the pending commit; then asks again what is open, or decides."""
        if not self._workers or len(round_.answered) < len(self._workers):
            return RoundProgress()
        if self._commits.pending is not None:
            self._asks.answered(round_.number)
            return RoundProgress()
        try:
            round_.settle(self._frameworks, len(self._workers))
        except Exception as cause:
            return self._blame(round_, cause, now)
        if round_.open and round_.ask < MAX_ASKS:
            return RoundProgress(self._ask(round_, now))
        questions = round_.questions()
        if questions:
            self._asks.answered(round_.number)
            self._extend_by = now + self._extenders.patience(questions)
            return RoundProgress([AskExtenders(round_.number, round_.ask, questions)])
        return self._decide(round_, now)

    def _blame(self, round_: Round, cause: Exception, now: float) -> RoundProgress:
        """Asks workers with unusable answers again; re-raises if every answer is usable."""
        unusable = round_.unusable(self._frameworks)
        if not unusable:
            raise cause
        for worker in unusable:
            del round_.answered[worker]
        faults = [WorkerFault(worker, "answer", UNMERGEABLE) for worker in unusable]
        return RoundProgress([*faults, *self._send(round_, now)])

    def _decide(self, round_: Round, now: float) -> RoundProgress:
        try:
            result = round_.decide(self._frameworks)
        except Exception as cause:
            return self._blame(round_, cause, now)
        self.current = None
        self._asks.answered(round_.number)
        self._conclude(round_, result)
        if round_.gang is not None:
            round_.gang.take(result)
        else:
            self._set_limit(len(round_.pods), len(result.deferred))
        effects = [*self._record(round_, result, now)]
        for info in round_.nominated.apart:
            info.judge_apart()
        if round_.gang is not None:
            if not round_.gang.is_over:
                return RoundProgress(effects + self.begin(round_.gang.open, round_.gang, now).effects)
            result = round_.gang.outcome()
            if not round_.gang.names_all_limits and result.unfit:
                framework = self._frameworks[result.unfit[0][0].template.profile]
                result = with_possible_limits(result, framework.registrations)
        return RoundProgress(effects, result, round_.number, round_.gang)

    def _set_limit(self, pods: int, deferred: int) -> None:
        """Doubles the size of the last round; resets it if most pods were deferred, or questions left some out."""
        is_too_large = self._is_cut or 2 * deferred > pods
        self.limit = min(self._round_size, ENOUGH if is_too_large else max(ENOUGH, 2 * pods))

    def _conclude(self, round_: Round, result: RoundResult) -> None:
        """Keeps the answers that still hold after these decisions."""
        for raised in round_.broken:
            self.failures.note(raised)
        if not self._keeps:
            self.known.clear()
            for class_id in round_.classes:
                if self.cache.lasts(class_id):
                    self.known.note_lasting(class_id)
            return
        for class_id in round_.unsettled | round_.open:
            self.known.forget(class_id)
        self.known.decided(round_.asked, result.decided, self._workers, self._checks.worker_of)
