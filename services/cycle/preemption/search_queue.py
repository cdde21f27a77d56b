"""Preemption searches for pods that no node has room for: one at a time, beside the rounds.

A search begins once the decisions of its pods' round are committed, so that workers see them. The first pod of a class
is nominated to the best node, the next ones to what is left if pods of the class matter to each other only by the nodes
they take. All others are decided again, with the nominations in place.

A gang has a search of its own, and what it finds is rehearsed in a round before its members are nominated together.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from flotilla.results import Status, error
from services.cycle.commits import PlannedNomination
from services.cycle.events import Ask, Effect, unschedulable
from services.cycle.extenders import AskAboutVictims, Extenders, VictimQuestion, VictimsAnswered, is_judged
from services.cycle.preemption.candidate_search import CandidateSearch, Preemption, SearchCase
from services.cycle.preemption.gang_case import GangCase, case_of
from services.cycle.preemption.gang_search import GangSearch
from services.cycle.preemption.rehearsal import Rehearsal
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import RoundResult, Unfit
from services.cycle.round.gangs import AnyGang
from services.cycle.round.tree_round import TreeRound
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.messages.limits import HALF_A_MESSAGE
from shared.messages.preemption import Candidates
from shared.model.objects import encode_msgpack
from shared.plugins.preemption import NEVER, DefaultPreemption
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

CUT = "; the search for a placement without them ended, so there may be one"
IN_VAIN = "its members do not fit together even without the victims that were found"

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
    concluded: CandidateSearch | GangSearch | None = None


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
        self._asks = Unanswered[int, CandidateSearch | GangSearch]((SEARCH_DEADLINE,))
        self._extend_by: float | None = None
        self._at_once = min(at_once, MAX_AT_ONCE)
        self._stands_alone = stands_alone
        self._epoch = epoch
        self._frameworks = frameworks
        self._ties = ties
        self._extenders = extenders
        self._questions: tuple[VictimQuestion, ...] = ()
        self._waiting: deque[SearchCase | GangCase] = deque()
        self._search: CandidateSearch | GangSearch | None = None
        self._rehearsal: Rehearsal | None = None
        self.attempts = 0
        """Pods for which victims were searched."""
        self._searches = 0
        self._min_seq = 0

    def applies_to(self, info: PodInfo, unfit: Unfit) -> bool:
        """Whether the pod's profile has PostFilter plugins to run; never for members of a gang."""
        return bool(self._frameworks[info.template.profile].post_filter) and unfit.nodes > 0 and info.gang is None

    def _applies_to_gang(self, gang: AnyGang) -> bool:
        """Whether victims may be searched for; extenders cannot be asked about victims of several pods.

        A gang that lacks members, since some were deleted, waits for further ones.
        """
        first = gang.members[0]
        if not isinstance(gang, TreeRound) and len(gang.members) < gang.least:
            return False
        plugins = self._frameworks[first.template.profile].post_filter
        is_extended = any(is_judged(info.class_id) for info in gang.members)
        return any(isinstance(each, DefaultPreemption) for each in plugins) and not is_extended

    def without_search(self, info: PodInfo, unfit: Unfit) -> Effect | None:
        """Ends the attempt of a pod that no PostFilter plugin can help, as a search would."""
        if not unfit.in_vain or not self.applies_to(info, unfit):
            return None
        self.attempts += 1
        return unschedulable(info, unfit.also(unfit.in_vain), Preemption(unfit.in_vain))

    @property
    def is_busy(self) -> bool:
        return self._search is not None or self._rehearsal is not None or bool(self._waiting)

    def held(self) -> Iterator[PodInfo]:
        """The pods that wait for a search's outcome; not those of a rehearsal that is asked about."""
        cases: list[SearchCase | GangCase] = [*self._waiting]
        match self._search:
            case CandidateSearch(cases=asked):
                cases += asked.values()
            case GangSearch(case=gang):
                cases.append(gang)
        if self._rehearsal is not None and not self._rehearsal.is_asked:
            cases.append(self._rehearsal.case)
        for case in cases:
            yield from case.pods

    def add(self, unfit_pods: Iterable[tuple[PodInfo, Unfit]]) -> None:
        """Nominated pods are searched for one by one, because their own nominations reserve nothing from them."""
        by_class: dict[str, tuple[list[PodInfo], Unfit]] = {}
        for info, unfit in unfit_pods:
            self.attempts += 1
            info.judge_apart()
            by_class.setdefault(info.class_id, ([], unfit))[0].append(info)
        self._waiting.extend(SearchCase(class_id, pods, unfit) for class_id, (pods, unfit) in by_class.items())

    def take_gang(self, gang: AnyGang, result: RoundResult) -> RoundResult:
        """The members whose attempts end now: of a gang that does not fit none, if victims are searched for."""
        if gang.verdict != "unfit" or not self._applies_to_gang(gang):
            return result
        case = case_of(gang, result.unfit)
        if case.groups and case.tree.least(0) is None:
            return result
        if case.never_preempts and not any(info.claims for info in case.pods):
            return replace(result, unfit=[(info, why.also(f"preemption: {NEVER}")) for info, why in result.unfit])
        self.attempts += len(case.members)
        self._waiting.append(case)
        return RoundResult(result.order)

    def begin(self, workers: Shards, min_seq: int, now: float) -> list[Effect]:
        """Begins the next search unless one is under way. `min_seq`: what workers must have seen."""
        if self._search is not None or self._rehearsal is not None or not self._waiting or not workers:
            return []
        self._searches += 1
        self._min_seq = min_seq
        first = self._waiting[0]
        if isinstance(first, GangCase):
            self._waiting.popleft()
            self._search = GangSearch(self._searches, first, self._frameworks, self._stands_alone)
        else:
            self._search = CandidateSearch(self._searches, self._next_cases())
        return self._ask(self._search, workers, now)

    def _next_cases(self) -> list[SearchCase]:
        taken: dict[str, SearchCase] = {}
        room = MAX_ASK_BYTES
        while self._waiting and len(taken) < MAX_CASES and room > 0:
            case = self._waiting[0]
            if isinstance(case, GangCase) or case.class_id in taken:
                break
            also = encode_msgpack((case.unfit.summaries, case.unfit.refused, case.groups))
            room -= len(case.pods[0].body) + len(also)
            if room < 0 and taken:
                break
            taken[case.class_id] = case
            self._waiting.popleft()
        return list(taken.values())

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
        if not isinstance(self._search, CandidateSearch) or self._extend_by is None or now < self._extend_by:
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

    @property
    def is_of_gang(self) -> bool:
        """Whether the search under way is for a gang."""
        return isinstance(self._search, GangSearch)

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
        if isinstance(search, GangSearch):
            return self.conclude_gang(search)
        self._questions = self._questions_of(search)
        if not self._questions:
            return self.conclude(search)
        self._asks.answered(search.number)
        self._extend_by = now + self._extenders.victim_patience(self._questions)
        return SearchProgress([AskAboutVictims(self._searches, self._questions)])

    def on_victims(self, answered: VictimsAnswered) -> SearchProgress:
        search = self._search
        if not isinstance(search, CandidateSearch) or not self._questions or answered.search != search.number:
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
            parts = search.parts(class_id)
            if len(parts) > 1:
                self._waiting.extend(parts)
                continue
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

    # Gangs

    def conclude_gang(self, search: GangSearch) -> SearchProgress:
        """Ends the gang's attempt, or rehearses what would come of it if the victims had gone."""
        self._asks.answered(search.number)
        self._search = None
        progress = SearchProgress(concluded=search)
        if search.victims:
            self._rehearsal = Rehearsal(
                search.case, search.victims, put_back=search.puts_back, is_last=not search.may_have_missed
            )
        elif search.may_have_missed:
            self._waiting.appendleft(search.case.next_stage(search.why))
        else:
            claims = Preemption(deallocate=tuple(search.deallocate), delete=tuple(search.delete))
            _end_gang(search.case, search.case.why or search.why, progress, claims, is_final=search.is_final)
        return progress

    def next_rehearsal(self) -> AnyGang | None:
        """The gang to decide next as if its victims had gone."""
        if self._rehearsal is None or self._rehearsal.is_asked:
            return None
        return self._rehearsal.next_round()

    def on_rehearsed(self, gang: AnyGang, result: RoundResult, *, others_decided: bool) -> SearchProgress:
        """`others_decided`: since the search began, so that they may have taken room which was counted on.

        Then the gang is searched for again: nothing else would tell it that it is these pods that must go.
        """
        progress = SearchProgress()
        rehearsal = self._rehearsal
        if rehearsal is None:
            return progress
        rehearsal.take(gang, result)
        if not rehearsal.is_over:
            return progress
        self._rehearsal = None
        progress.nominations = rehearsal.nominations()
        progress.denominated = [each.info for each in progress.nominations if not each.preemption.nominated]
        if progress.nominations:
            return progress
        if others_decided and rehearsal.case.may_repeat:
            self._waiting.appendleft(rehearsal.case.again())
        elif rehearsal.is_last:
            why = f"{rehearsal.case.why or IN_VAIN}{CUT if rehearsal.is_cut else ''}"
            _end_gang(rehearsal.case, why, progress, Preemption(), is_final=True)
        else:
            self._waiting.appendleft(rehearsal.case.next_stage(IN_VAIN))
        return progress

    def drop_rehearsal(self) -> None:
        """Its round was given up, and its pods are decided again."""
        if self._rehearsal is not None and self._rehearsal.is_asked:
            self._rehearsal = None

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

    def _ask(self, search: CandidateSearch | GangSearch, workers: Shards, now: float) -> list[Effect]:
        self._asks.sent(search.number, search, now)
        message = search.message(self._epoch, self._min_seq)
        return [Ask(worker, message) for worker in workers if worker not in search.answered]


def _end_gang(case: GangCase, why: str, progress: SearchProgress, claims: Preemption, *, is_final: bool) -> None:
    """`claims`: what becomes of its claims. `is_final`: its nominations end, too."""
    found = replace(claims, nominated="" if is_final else None)
    progress.effects += [unschedulable(info, unfit.also(f"preemption: {why}"), found) for info, unfit in case.members]
    progress.ended.extend(case.pods)
    if is_final:
        progress.denominated.extend(case.pods)
