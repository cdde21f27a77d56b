"""Searches for pods that could make way: one at a time, beside the rounds, for those that no node has room for.

A search begins once what the same round has decided is committed, so that it is seen. Of the pods of a class the first
gets the best that is found, and the next ones what is left, as far as each is a matter of one node; all others, with
room kept and pods going, are to be decided anew.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from flotilla.results import Status, error
from services.cycle.committing import Found
from services.cycle.events import Ask, Effect, Unschedulable
from services.cycle.narrowing import AskAboutVictims, Narrowing, VictimQuestion, VictimsAnswered
from services.cycle.preempting import Case, Preemption, Search
from services.cycle.walk import QueuedPod, Unfit
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.messages.preemption import Candidates
from shared.model.objects import encode_msgpack

SEARCH_DEADLINE = 1.0
"""Seconds until a worker that has not answered is asked again."""
MOST_CASES = 8
"""Classes in one search."""
MOST_AT_ONCE = 128
"""Pods of one class that get what one search has found."""
MOST_ASK_BYTES = 4 << 20
"""Of what is said of classes in one search, half of what a message may hold: what is known of them may grow."""
SILENCE = error("the extenders have not been heard of")

Workers = Mapping[str, frozenset[int]]


@dataclass(slots=True)
class Progress:
    """What to do, whose outcome is told by that, who is to be decided anew, and what is to be committed.

    `denominated`: who loses the nomination it has.
    """

    effects: list[Effect] = field(default_factory=list)
    told: list[QueuedPod] = field(default_factory=list)
    again: list[QueuedPod] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    denominated: list[QueuedPod] = field(default_factory=list)


class Searching:
    def __init__(
        self,
        epoch: int,
        frameworks: Mapping[str, Framework],
        ties: Ties,
        narrowing: Narrowing,
        *,
        at_once: int = MOST_AT_ONCE,
        stands_alone: Callable[[str], bool] = lambda class_id: False,
    ) -> None:
        """`at_once`: so many pods of a class, at most, get what one search has found; 1 is kube-scheduler's way.

        `stands_alone`: whether pods of a class matter to each other by the places they take, and by nothing else.
        """
        self._at_once = min(at_once, MOST_AT_ONCE)
        self._stands_alone = stands_alone
        self._epoch = epoch
        self._frameworks = frameworks
        self._ties = ties
        self._narrowing = narrowing
        self._questions: tuple[VictimQuestion, ...] = ()
        self._waiting: deque[tuple[Case, Unfit]] = deque()
        self._reasons: dict[str, Unfit] = {}
        self._search: Search | None = None
        self._searches = 0
        self._min_seq = 0
        self.deadline: float | None = None

    def concerns(self, queued: QueuedPod, unfit: Unfit) -> bool:
        """Whether there is something to be asked for a pod that no node is feasible for; of a gang, never."""
        return bool(self._frameworks[queued.profile].post_filter) and unfit.nodes > 0 and queued.gang is None

    @property
    def is_busy(self) -> bool:
        return self._search is not None or bool(self._waiting)

    def held(self) -> Iterator[QueuedPod]:
        """The pods that wait for a search's outcome."""
        for case, _ in self._waiting:
            yield from case.pods
        if self._search is not None:
            for case in self._search.cases.values():
                yield from case.pods

    def add(self, hopeless: list[tuple[QueuedPod, Unfit]]) -> None:
        by_class: dict[str, tuple[list[QueuedPod], Unfit]] = {}
        for queued, unfit in hopeless:
            by_class.setdefault(queued.class_id, ([], unfit))[0].append(queued)
        for class_id, (pods, unfit) in by_class.items():
            self._waiting.append((Case(class_id, pods, unfit.summaries, unfit.potential, unfit.refused), unfit))

    def begin(self, workers: Workers, min_seq: int, now: float) -> list[Effect]:
        """If there is something to search for, and no search under way. `min_seq`: what is to be seen of the state."""
        if self._search is not None or not self._waiting or not workers:
            return []
        taken: dict[str, tuple[Case, Unfit]] = {}
        room = MOST_ASK_BYTES
        while self._waiting and len(taken) < MOST_CASES and room > 0 and self._waiting[0][0].class_id not in taken:
            case, unfit = self._waiting[0]
            room -= len(encode_msgpack((case.pods[0].pod, case.summaries, case.refused)))
            if room < 0 and taken:
                break
            taken[case.class_id] = case, unfit
            self._waiting.popleft()
        self._reasons = {class_id: unfit for class_id, (_, unfit) in taken.items()}
        self._searches += 1
        self._min_seq = min_seq
        self._search = Search(self._searches, [case for case, _ in taken.values()])
        return self._ask(self._search, workers, now)

    def on_workers(self, workers: Workers, now: float) -> list[Effect]:
        """Others hold the shards now."""
        if self._search is None:
            return []
        self._search.start_over()
        self._questions = ()
        return self._ask(self._search, workers, now)

    def on_tick(self, workers: Workers, now: float) -> Progress:
        """Workers are asked again; extenders that have not been heard of by now are not waited for."""
        search = self._search
        if search is None or self.deadline is None or now < self.deadline:
            return Progress()
        if not self._questions:
            return Progress(self._ask(search, workers, now))
        for question in self._questions:
            search.fail(question.class_id, SILENCE)
        return self._conclude(search)

    def awaits(self, candidates: Candidates) -> bool:
        """Whether this answers what is asked now, for the first time."""
        search = self._search
        if search is None or candidates.epoch != self._epoch or candidates.worker in search.answered:
            return False
        return (candidates.search, candidates.ask) == (search.number, search.ask)

    @property
    def asked(self) -> tuple[int, set[str]]:
        """The state that is to be seen, and the classes, of what is asked now."""
        return self._min_seq, set() if self._search is None else self._search.open

    def ask_again(self, worker: str) -> list[Effect]:
        return [] if self._search is None else [Ask(worker, self._search.message(self._epoch, self._min_seq))]

    def on_candidates(self, candidates: Candidates, workers: Workers, now: float) -> Progress:
        search = self._search
        if search is None or candidates.epoch != self._epoch or not search.take(candidates):
            return Progress()
        if len(search.answered) < len(workers):
            return Progress()
        if not search.gather(self._frameworks):
            return Progress(self._ask(search, workers, now))
        self._questions = self._questions_of(search)
        if self._questions:
            return Progress(self._ask_extenders(now))
        return self._conclude(search)

    def on_victims(self, answered: VictimsAnswered) -> Progress:
        """What extenders have left of the candidates."""
        search = self._search
        if search is None or not self._questions or answered.search != search.number:
            return Progress()
        for class_id, left in answered.left.items():
            if isinstance(left, Status):
                search.fail(class_id, left)
            else:
                search.narrow(class_id, left)
        return self._conclude(search)

    def _questions_of(self, search: Search) -> tuple[VictimQuestion, ...]:
        """What there is to ask of extenders."""
        questions: list[VictimQuestion] = []
        for class_id, case in search.cases.items():
            pod, candidates = case.pods[0].pod, search.candidates(class_id)
            if candidates and self._narrowing.concerns(pod):
                questions.append(VictimQuestion(class_id, pod, tuple(candidates)))
        return tuple(questions)

    def _ask_extenders(self, now: float) -> list[Effect]:
        self.deadline = now + self._narrowing.patience(self._questions)
        return [AskAboutVictims(self._searches, self._questions)]

    def _conclude(self, search: Search) -> Progress:
        self._search, self.deadline, self._questions = None, None, ()
        progress = Progress()
        for class_id, case in search.cases.items():
            found = search.outcome(class_id, self._frameworks[case.pods[0].profile], self._ties)
            if found.again:
                progress.again.extend(case.pods)
                continue
            unfit = self._reasons[class_id].also(found.message)
            if found.nominated:
                self._share_out(search, case, unfit, found, progress)
                continue
            progress.effects += [Unschedulable(queued.pod.uid, unfit, found) for queued in case.pods]
            progress.told.extend(case.pods)
            if found.nominated is not None:
                progress.denominated.extend(case.pods)
        return progress

    def _share_out(self, search: Search, case: Case, unfit: Unfit, first: Preemption, progress: Progress) -> None:
        """Who gets nothing is decided anew, once what the others get is known to everybody."""
        alone = self._stands_alone(case.class_id) and not search.is_narrowed(case.class_id)
        taken = {found.preemption.nominated or "" for found in progress.found}
        if not alone and first.nominated in taken:
            progress.again.extend(case.pods)
            return
        pods = case.pods[: self._at_once] if alone else case.pods[:1]
        shares = search.shared_out(first, pods, taken, self._ties)
        if not shares:
            progress.again.extend(case.pods)
            return
        seen = search.seen(case.class_id)
        narrowed = search.is_narrowed(case.class_id)
        shared = zip(pods, shares, strict=False)
        *found, last = [Found(queued, (), unfit, share, seen, narrowed=narrowed) for queued, share in shared]
        progress.found += [*found, replace(last, others=case.pods[len(shares) :])]

    def _ask(self, search: Search, workers: Workers, now: float) -> list[Effect]:
        self.deadline = now + SEARCH_DEADLINE
        message = search.message(self._epoch, self._min_seq)
        return [Ask(worker, message) for worker in workers if worker not in search.answered]
