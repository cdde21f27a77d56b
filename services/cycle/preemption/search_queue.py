"""Preemption searches for pods that no node has room for: one at a time, beside the rounds.

A search begins once the decisions of its pods' round are committed, so that workers see them. The first pod of a class
is nominated to the best node, the next ones to what is left if pods of the class matter to each other only by the nodes
they take. All others are decided again, with the nominations in place.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from flotilla.results import Status, error
from services.cycle.commits import PlannedNomination
from services.cycle.events import Ask, Effect, unschedulable
from services.cycle.extenders import AskAboutVictims, Extenders, VictimQuestion, VictimsAnswered
from services.cycle.preemption.candidate_search import CandidateSearch, Preemption, SearchCase
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import Unfit
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.messages.limits import HALF_A_MESSAGE
from shared.messages.preemption import Candidates
from shared.model.objects import encode_msgpack
from shared.runtime.unanswered import Unanswered

SEARCH_DEADLINE = 1.0
"""Seconds until a worker that has not answered is asked again."""
MAX_CASES = 8
"""Classes in one search."""
MAX_AT_ONCE = 128
"""Pods of one class that one search nominates."""
MAX_ASK_BYTES = HALF_A_MESSAGE
"""What one search says of its classes: half of what a message may hold, as summaries may grow."""
SILENCE = error("the extenders have not answered")

Shards = Mapping[str, frozenset[int]]


@dataclass(slots=True)
class SearchProgress:
    """Effects, and the pods that they end, the pods to decide again, those to nominate and to denominate.

    `concluded`: the search, if it is over.
    """

    effects: list[Effect] = field(default_factory=list)
    ended: list[PodInfo] = field(default_factory=list)
    again: list[PodInfo] = field(default_factory=list)
    nominations: list[PlannedNomination] = field(default_factory=list)
    denominated: list[PodInfo] = field(default_factory=list)
    concluded: CandidateSearch | None = None


class SearchQueue:
    def __init__(
        self,
        epoch: int,
        frameworks: Mapping[str, Framework],
        ties: Ties,
        extenders: Extenders,
        *,
        at_once: int = MAX_AT_ONCE,
        stands_alone: Callable[[str], bool] = lambda class_id: False,
    ) -> None:
        """`at_once`: pods of a class that one search nominates, at most; 1 is kube-scheduler's way.

        `stands_alone`: whether pods of a class matter to each other only by the nodes they take.
        """
        self._asks = Unanswered[int, CandidateSearch]((SEARCH_DEADLINE,))
        self._extend_by: float | None = None
        self._at_once = min(at_once, MAX_AT_ONCE)
        self._stands_alone = stands_alone
        self._epoch = epoch
        self._frameworks = frameworks
        self._ties = ties
        self._extenders = extenders
        self._questions: tuple[VictimQuestion, ...] = ()
        self._waiting: deque[SearchCase] = deque()
        self._search: CandidateSearch | None = None
        self.attempts = 0
        """Pods for which victims were searched."""
        self._searches = 0
        self._min_seq = 0

    def applies_to(self, info: PodInfo, unfit: Unfit) -> bool:
        """Whether the pod's profile has PostFilter plugins to run; never for members of a gang."""
        return bool(self._frameworks[info.template.profile].post_filter) and unfit.nodes > 0 and info.gang is None

    @property
    def is_busy(self) -> bool:
        return self._search is not None or bool(self._waiting)

    def held(self) -> Iterator[PodInfo]:
        """The pods that wait for a search's outcome."""
        for case in (*self._waiting, *(() if self._search is None else self._search.cases.values())):
            yield from case.pods

    def add(self, unfit_pods: Iterable[tuple[PodInfo, Unfit]]) -> None:
        by_class: dict[str, tuple[list[PodInfo], Unfit]] = {}
        for info, unfit in unfit_pods:
            self.attempts += 1
            by_class.setdefault(info.class_id, ([], unfit))[0].append(info)
        self._waiting.extend(SearchCase(class_id, pods, unfit) for class_id, (pods, unfit) in by_class.items())

    def begin(self, workers: Shards, min_seq: int, now: float) -> list[Effect]:
        """Begins the next search unless one is under way. `min_seq`: what workers must have seen."""
        if self._search is not None or not self._waiting or not workers:
            return []
        taken: dict[str, SearchCase] = {}
        room = MAX_ASK_BYTES
        while self._waiting and len(taken) < MAX_CASES and room > 0 and self._waiting[0].class_id not in taken:
            case = self._waiting[0]
            room -= len(case.pods[0].body) + len(encode_msgpack((case.unfit.summaries, case.unfit.refused)))
            if room < 0 and taken:
                break
            taken[case.class_id] = self._waiting.popleft()
        self._searches += 1
        self._min_seq = min_seq
        self._search = CandidateSearch(self._searches, list(taken.values()))
        return self._ask(self._search, workers, now)

    def on_workers(self, workers: Shards, now: float) -> list[Effect]:
        """The shards have moved: asks again."""
        if self._search is None:
            return []
        self._search.start_over()
        self._questions, self._extend_by = (), None
        return self._ask(self._search, workers, now)

    def next_deadline(self) -> float | None:
        return self._asks.next_deadline() if self._extend_by is None else self._extend_by

    def on_tick(self, workers: Shards, now: float) -> SearchProgress:
        """Asks late workers again; late extenders have failed."""
        for search in self._asks.due(now):
            return SearchProgress(self._ask(search, workers, now))
        if self._search is None or self._extend_by is None or now < self._extend_by:
            return SearchProgress()
        for question in self._questions:
            self._search.fail(question.class_id, SILENCE)
        return self.conclude(self._search)

    def awaits(self, candidates: Candidates) -> bool:
        """Whether this is a worker's first answer to the present ask."""
        search = self._search
        if search is None or candidates.epoch != self._epoch or candidates.worker in search.answered:
            return False
        return (candidates.search, candidates.ask) == (search.number, search.ask)

    @property
    def asked(self) -> tuple[int, set[str]]:
        """The sequence number and the classes of the present ask."""
        return self._min_seq, set() if self._search is None else self._search.open

    def is_usable(self, candidates: Candidates) -> bool:
        """Whether the summaries of an answer can be merged."""
        return self._search is not None and self._search.is_usable(candidates, self._frameworks)

    def wait_for(self, min_seq: int) -> None:
        """Wait for this sequence number instead of a higher one that does not exist."""
        self._min_seq = min(self._min_seq, min_seq)

    def ask_again(self, worker: str) -> list[Effect]:
        return [] if self._search is None else [Ask(worker, self._search.message(self._epoch, self._min_seq))]

    def on_candidates(self, candidates: Candidates, workers: Shards, now: float) -> SearchProgress:
        search = self._search
        if search is None or not search.take(candidates) or len(search.answered) < len(workers):
            return SearchProgress()
        if not search.gather(self._frameworks):
            return SearchProgress(self._ask(search, workers, now))
        self._questions = self._questions_of(search)
        if not self._questions:
            return self.conclude(search)
        self._asks.answered(search.number)
        self._extend_by = now + self._extenders.victim_patience(self._questions)
        return SearchProgress([AskAboutVictims(self._searches, self._questions)])

    def on_victims(self, answered: VictimsAnswered) -> SearchProgress:
        search = self._search
        if search is None or not self._questions or answered.search != search.number:
            return SearchProgress()
        for class_id, left in answered.left.items():
            if isinstance(left, Status):
                search.fail(class_id, left)
            else:
                search.narrow(class_id, left)
        return self.conclude(search)

    def _questions_of(self, search: CandidateSearch) -> tuple[VictimQuestion, ...]:
        questions: list[VictimQuestion] = []
        for class_id, case in search.cases.items() if self._extenders else ():
            candidates = search.candidates(class_id)
            if candidates and self._extenders.judge_victims(case.pods[0].pod):
                questions.append(VictimQuestion(class_id, case.pods[0].pod, tuple(candidates)))
        return tuple(questions)

    def conclude(self, search: CandidateSearch) -> SearchProgress:
        """Everything is gathered: nominates pods, or ends their attempts."""
        self._asks.answered(search.number)
        self._search, self._extend_by, self._questions = None, None, ()
        progress = SearchProgress()
        for class_id, case in search.cases.items():
            found = search.outcome(class_id, self._frameworks[case.pods[0].template.profile], self._ties)
            if found.again:
                progress.again.extend(case.pods)
                continue
            unfit = case.unfit.also(found.message)
            if found.nominated:
                self._nominate(search, case, unfit, found, progress)
                continue
            progress.effects += [unschedulable(info, unfit, found) for info in case.pods]
            progress.ended.extend(case.pods)
            if found.nominated is not None:
                progress.denominated.extend(case.pods)
        progress.concluded = search
        return progress

    def _nominate(
        self, search: CandidateSearch, case: SearchCase, unfit: Unfit, first: Preemption, progress: SearchProgress
    ) -> None:
        """Pods that get no node are decided again, once every worker knows of the nominations."""
        narrowed = search.is_narrowed(case.class_id)
        alone = self._stands_alone(case.class_id) and not narrowed
        taken = {planned.preemption.nominated or "" for planned in progress.nominations}
        pods = case.pods[: self._at_once] if alone else case.pods[:1]
        shares = search.share_out(first, pods, taken, self._ties) if alone or first.nominated not in taken else []
        if not shares:
            progress.again.extend(case.pods)
            return
        seen = search.seen(case.class_id)
        *planned, last = [
            PlannedNomination(info, (), unfit, share, seen, narrowed) for info, share in zip(pods, shares, strict=False)
        ]
        progress.nominations += [*planned, replace(last, others=case.pods[len(shares) :])]

    def _ask(self, search: CandidateSearch, workers: Shards, now: float) -> list[Effect]:
        self._asks.sent(search.number, search, now)
        message = search.message(self._epoch, self._min_seq)
        return [Ask(worker, message) for worker in workers if worker not in search.answered]
