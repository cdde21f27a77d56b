"""A round: its pods, their classes, the asks to the workers and what they answer.

ask --all answered--> settle: every class judged by the merged summary? --yes--> verdicts
 ^                                 | no: it is the guess of the next ask
 +---------------------------------+
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from flotilla.results import Code, Status, error
from services.cycle.extenders import (
    ExtenderQuestion,
    is_judged,
    judged,
    left_out,
    plain_class,
    question_of,
)
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import ClassVerdict, RoundResult, Unfit, assign
from services.cycle.round.class_cache import ClassCache
from services.cycle.round.domain_merge import DomainMerge, Trackers
from services.cycle.round.gangs import AnyGang
from services.cycle.round.known_answers import AHEAD
from services.cycle.round.ladder_merge import LadderMerge
from services.cycle.round.next_pods import MAX_POD_BYTES
from services.cycle.round.nominated_pods import NominatedPods
from services.cycle.round.scopes import counted, failure_of, offered
from services.cycle.round.unfit import sorted_names, unfit_of
from services.cycle.round.views import NO_VIEW, ClassView, view_of
from shared.extenders.talk import Judgement
from shared.framework.profile import (
    MAX_ASKS,
    Framework,
    is_mergeable,
    is_of_plugin,
    joined,
    merge,
    merging_failed,
    plugin_failed,
    unfit_message,
)
from shared.framework.signatures import PluginFailed
from shared.messages.evaluation import Rejections, Summary, Ties
from shared.messages.rounds import ClassAnswer, ClassAsk, Ladder, Proposals, Propose
from shared.model.objects import Pod

NOT_OFFERED = error("extenders left none of the nodes that fit in a message, and other nodes are feasible")


class Round:
    def __init__(self, number: int, pods: list[PodInfo], cache: ClassCache, gang: AnyGang | None = None) -> None:
        """`gang`: the pods are members of it, and some members may have been decided in earlier steps."""
        self.number = number
        self.pods = pods
        self.gang = gang
        self.scope = None if gang is None else gang.scope
        """What the step asks, if it is one of a gang that is not like any round."""
        self.ask = 0
        self.min_seq = 0
        """The sequence number that workers were last asked to wait for."""
        self.least_seq: int | None = None
        """The lowest `min_seq` of the present ask."""
        self.classes: dict[str, PodInfo] = {}
        """A pod of each class."""
        self.nominated = NominatedPods(pods)
        self._counts: defaultdict[str, int] = defaultdict(int)
        for info in pods:
            self.classes.setdefault(info.class_id, info)
            self._counts[info.class_id] += 1
        self.asked = dict(self.classes)
        """Likewise, also of classes that workers are asked about in advance."""
        self.open = set(self.asked)
        """Classes to ask about."""
        self.answered: dict[str, Proposals] = {}
        """Answers to the present ask, by worker."""
        self.asked_keys: tuple[str, ...] = ()
        """The labels whose values workers were last asked for."""
        self._cache = cache
        self._guesses: dict[str, tuple[Summary | None, bool]] = {}
        """The guesses of the present ask, and whether each is borrowed from another class."""
        self._topologies = cache.topologies(self.classes)
        self._trackers: dict[str, Trackers] = {}
        self._among: dict[str, list[str]] = {}
        """The nodes that extenders left, of classes that are asked about again for that."""
        self._judgements: dict[str, Judgement] = {}
        self._questions: dict[str, ExtenderQuestion] = {}
        self._answers: dict[str, list[tuple[ClassAnswer, int]]] = {}
        """By class, each worker's answer and the sequence number it was evaluated at."""
        self.judged_on: dict[str, dict[str, int]] = {}
        """By class, the sequence number that each worker's answer was evaluated at."""
        self._by_name: set[str] = set()
        """Classes whose pods have other volume claims in a worker's state than the queue has seen."""
        self.unsettled: set[str] = set()
        """Classes that are decided although their summary has changed with the last ask."""
        self._merged: dict[str, Summary] = {}
        self.broken: list[Exception] = []
        """What plugins raised, for the log."""

    @property
    def held(self) -> list[PodInfo]:
        """The pods that wait for the round's result: of a gang, all members."""
        return self.pods if self.gang is None else self.gang.members

    @property
    def keeps_answers(self) -> bool:
        """Whether answers about some classes are final, including while extenders are asked about their nodes."""
        return len(self.open) < len(self.asked)

    # Asking

    def start_over(self) -> None:
        """The shards have moved: earlier answers are void."""
        self.open = set(self.asked)
        self._among, self._judgements, self._questions = {}, {}, {}

    def next_ask(self) -> None:
        self.ask += 1
        self.answered = {}
        self.least_seq = None
        for class_id in self.open:
            self._guess(class_id)

    def ask_in_advance(self, infos: Iterable[PodInfo]) -> None:
        """The present ask is also about the classes of these pods, of which none is decided in this round."""
        for info in infos:
            if self.asked.setdefault(info.class_id, info) is info:
                self.open.add(info.class_id)
                self._guess(info.class_id)

    def _guess(self, class_id: str) -> None:
        guess = self._cache.guess(self._guess_key(class_id))
        if guess is None and self._within:
            guess = self._cache.guess(plain_class(class_id))
        borrowed = self._cache.borrowed(self.asked[class_id].template.profile)
        self._guesses[class_id] = (borrowed, True) if guess is None else (guess, False)

    def expect(self, merged: Mapping[str, Summary]) -> None:
        """These are the merged summaries, in place of guesses; and answers need no asks for the present labels."""
        self._guesses |= {class_id: (summary, False) for class_id, summary in merged.items()}
        self.asked_keys = self.keys

    def wanted(self, workers: int) -> dict[str, int]:
        """How many placements each of the workers is to offer each open class, but for those in advance.

        Enough for all pods if the shards share them within a factor of two; else the rest waits a round.
        """
        counts = {class_id: self._counts[class_id] for class_id in self.asked if class_id in self.open}
        return {class_id: min(count, 2 * -(-count // workers) + 8) for class_id, count in counts.items()}

    def propose(
        self, epoch: int, ties: Ties, min_seq: int, worker: str, workers: int, lately: Collection[str] = ()
    ) -> Propose:
        """The present ask to this worker, which answers once it has seen `min_seq`.

        `lately`: classes that will come again. Of these, the next asks may not be needed if placements ahead are known.
        """
        self.min_seq = min_seq
        self.least_seq = min_seq if self.least_seq is None else min(self.least_seq, min_seq)
        self.asked_keys = self.keys
        classes, keys, gang = self._class_asks(worker, workers, lately), list(self.asked_keys), self.gang
        beside = [*lately] if any(each in lately for each in self.open) else []
        propose = Propose(epoch, self.number, self.ask, min_seq, ties, classes, keys, scope=self.scope, beside=beside)
        if gang is None:
            return propose
        given, loads = gang.given()
        return msgspec.structs.replace(propose, given=given, loads=loads, gone=gang.gone, unreserved=gang.unreserved)

    def _class_asks(self, worker: str, workers: int, lately: Collection[str]) -> list[ClassAsk]:
        """Includes a pod of each class that the worker does not know, while there is room; it asks for the others."""
        room = MAX_POD_BYTES if self.gang is None else MAX_POD_BYTES // 2  # beside members that are decided
        asks: list[ClassAsk] = []
        for class_id, count in self.wanted(workers).items():
            info = self.asked[class_id]
            pod: Pod | None = None
            if room > 0 and (info.own_volumes or not self._cache.is_known(class_id, worker)):
                pod = info.of_class
                room -= len(info.body)
            guess, borrowed = self._guesses[class_id]
            each, among = is_judged(class_id), self._among.get(class_id)
            profile, private_claims = info.template.profile, info.has_private_claims
            asks.append(
                ClassAsk(
                    class_id,
                    profile,
                    count,
                    pod,
                    guess,
                    each,
                    among,
                    borrowed,
                    private_claims,
                    AHEAD if class_id in lately else 0,
                    info.own_volumes,
                    [] if self._lists else self.nominated.asked(class_id),
                )
            )
        return asks

    def _guess_key(self, class_id: str) -> str:
        """The class whose merged summary is the guess for this one. Within a domain, scores have other ranges."""
        return (class_id if class_id in self._among else plain_class(class_id)) + self._within

    @property
    def _within(self) -> str:
        return "" if self.scope is None or not self.scope.within else f"|{sorted(self.scope.within.items())}"

    # Settling

    def settle(self, frameworks: Mapping[str, Framework], workers: int) -> None:
        """Every worker has answered the present ask: closes the classes that need no other one."""
        seqs = {worker: proposals.seq for worker, proposals in self.answered.items()}
        for class_id in self.open:
            self._answers[class_id], self.judged_on[class_id] = [], seqs
        for proposals in self.answered.values():
            for answer in proposals.answers:
                self._answers[answer.class_id].append((answer, proposals.seq))
        for class_id in self.open:
            self._topologies[class_id] = joined(answer.topology for answer, _ in self._answers[class_id])
        self._cache.learn_topologies(self._topologies)
        self.open = {class_id for class_id in self.open if not self._is_settled(class_id, frameworks, workers)}
        if not set(self.keys) <= set(self.asked_keys):
            self.open = set(self.asked)  # every ladder needs the values of the new labels

    def _is_settled(self, class_id: str, frameworks: Mapping[str, Framework], workers: int) -> bool:
        """Whether workers have judged the class by the merged summary. If not, it is the guess of the next ask."""
        answers = [answer for answer, _ in self._answers[class_id]]
        if any(answer.unknown for answer in answers):
            return False
        if self.asked[class_id].volumes is not None and not all(answer.own_volumes for answer in answers):
            self._by_name.add(class_id)
            return True
        is_failed, is_rejected = any(answer.failure is not None for answer in answers), _is_rejected(answers)
        if is_failed or is_rejected is not False:
            self._cache.drop_guess(self._guess_key(class_id))  # a plugin may fail because of it
            return is_failed or is_rejected is True or self.ask >= MAX_ASKS
        profile, is_first = self.asked[class_id].template.profile, class_id not in self._merged
        try:
            merged = self._cache.merged(class_id, frameworks[profile], [answer.summary for answer in answers])
        except Exception as cause:
            if not all(is_mergeable(frameworks[profile], answer.summary) for answer in answers):
                raise
            self._fail(class_id, merging_failed(cause), cause)
            return True
        self._merged[class_id] = merged
        self._cache.expect(self._guess_key(class_id), profile, merged)
        self._cache.nodes = merged.nodes
        guess, borrowed = self._guesses[class_id]
        if guess is None or any(answer.by_itself for answer in answers):
            return workers == 1  # a single shard's summary is the merged one
        agrees = merged.agrees_with(guess)
        if agrees or self.ask < MAX_ASKS or is_first or borrowed:
            return agrees
        self.unsettled.add(class_id)  # the summary of the previous ask counts
        return True

    def _fail(self, class_id: str, failure: Status, cause: Exception) -> None:
        """A plugin fails the class's pods."""
        self.broken.append(cause)
        self._cache.drop_guess(self._guess_key(class_id))
        self._answers[class_id] = [(ClassAnswer(class_id, failure=failure), seq) for _, seq in self._answers[class_id]]

    def unusable(self, frameworks: Mapping[str, Framework]) -> list[str]:
        """The workers whose summaries the framework cannot merge."""
        return [
            worker
            for worker, proposals in self.answered.items()
            if not all(self._is_usable(answer, frameworks) for answer in proposals.answers)
        ]

    def _is_usable(self, answer: ClassAnswer, frameworks: Mapping[str, Framework]) -> bool:
        info = self.asked[answer.class_id]
        framework = frameworks[info.template.profile]
        try:
            merged = merge(framework, [answer.summary, answer.summary])
            if self._is_followed:
                framework.trackers(info.of_class, merged.plugins, merged.late, merged.ranges)
        except Exception as cause:
            return is_of_plugin(framework, cause)
        return True

    # Topology

    @property
    def keys(self) -> tuple[str, ...]:
        """The node labels by which the round's decisions matter to any of its classes."""
        keys = {key for topology in self._topologies.values() if topology for key in topology.keys}
        return tuple(sorted(keys if self.gang is None else keys.union(self.gang.labels)))

    @property
    def _is_followed(self) -> bool:
        """Whether decisions matter to any class beyond the nodes that they fill."""
        return any(topology is not None for topology in self._topologies.values())

    def _follow(self, frameworks: Mapping[str, Framework]) -> None:
        for class_id, merged in self._merged.items() if self._is_followed else ():
            info = self.asked[class_id]
            if class_id in self.open:
                continue
            framework = frameworks[info.template.profile]
            try:
                trackers = framework.trackers(info.of_class, merged.plugins, merged.late, merged.ranges)
            except PluginFailed as cause:
                if not all(self._is_usable(answer, frameworks) for answer, _ in self._answers[class_id]):
                    raise
                self._fail(class_id, plugin_failed(cause), cause)
                continue
            self._trackers[class_id] = Trackers(trackers)

    # Extenders

    def questions(self) -> tuple[ExtenderQuestion, ...]:
        """Questions to extenders that are not answered yet. They are about placements, not about what is counted."""
        if self._lists:
            return ()
        for class_id, info in self.classes.items():
            undecided = self._judgements.keys() | self.open | self._by_name
            if is_judged(class_id) and class_id not in undecided:
                question = question_of(class_id, info.pod, (answer for answer, _ in self._answers[class_id]))
                if question is not None:
                    self._questions[class_id] = question
        return tuple(each for class_id, each in self._questions.items() if class_id not in self._judgements)

    def silence(self) -> dict[str, Judgement]:
        """A failure for each question that is not answered."""
        unheard = Judgement(failure=error("the extenders have not answered"))
        return {question.class_id: unheard for question in self.questions()}

    def take_judgements(self, judgements: Mapping[str, Judgement]) -> bool:
        """Whether workers must be asked again, among the nodes that the extenders left."""
        self._judgements |= judgements
        again = {class_id for class_id, each in judgements.items() if left_out(self._questions[class_id], each)}
        for class_id in again:
            self._among[class_id] = sorted(judgements[class_id].added)
            guess = self._cache.guess(plain_class(class_id))
            if guess is not None:
                self._cache.expect(class_id, self.classes[class_id].template.profile, guess)
        self.open |= again
        return bool(again)

    # Verdicts

    def decide(self, frameworks: Mapping[str, Framework]) -> RoundResult:
        """Assigns the pods, and predicts the merged summaries after these decisions."""
        if self._lists:
            return self._listed()
        self._follow(frameworks)
        verdicts = {class_id: self._verdict(class_id) for class_id in self.classes}
        own = {uid: each for class_id in self.classes for uid, each in self._own(class_id, verdicts[class_id])}
        reservations = None if self.gang is None else self.gang.reservations()
        result = assign(self.pods, verdicts, self._trackers, reservations, own)
        result.is_followed = self._is_followed
        result.by_name = frozenset(self._by_name)
        if result.decided:
            result.views = {info.class_id: self._view(info.class_id) for info in self.classes.values()}
        self.broken += result.broken.values()
        for class_id, trackers in self._trackers.items() if result.decided else ():
            self._predict(class_id, trackers, frameworks)
        return result

    @property
    def _lists(self) -> bool:
        """Whether workers count places or offer nodes, instead of proposing placements."""
        return self.scope is not None and self.scope.count_by is not None

    def _listed(self) -> RoundResult:
        """What workers have counted or offered. A class that was not settled counts as if it was not asked about."""
        answers = {class_id: of_class for class_id, of_class in self._answers.items() if class_id not in self.open}
        failures = {class_id: failure_of(of_class) for class_id, of_class in answers.items()}
        result = RoundResult([info.uid for info in self.pods], is_followed=self._is_followed)
        result.failed = [(info, why) for info in self.pods if (why := failures.get(info.class_id)) is not None]
        result.deferred = [info for info in self.pods if failures.get(info.class_id) is None]
        if self.scope is None or self.gang is None:
            return result
        if self.scope.options:
            labels = self.gang.labels
            result.offered = {class_id: offered(answers.get(class_id, ()), labels) for class_id in self.classes}
            result.values = {node: tuple(of) for each in self.answered.values() for node, of in each.values.items()}
            result.views = {class_id: self._view(class_id) for class_id in self.classes}
        else:
            result.counted = counted(answers, self.gang.wanted, self.answered.values())
        return result

    def _predict(self, class_id: str, trackers: Trackers, frameworks: Mapping[str, Framework]) -> None:
        """What the class's merged summary will be. If a plugin cannot say that, workers are asked once more."""
        profile, merged = self.asked[class_id].template.profile, self._merged[class_id]
        try:
            changed = trackers.summaries(frameworks[profile])
        except PluginFailed as cause:
            self.broken.append(cause)
            self._cache.drop_guess(self._guess_key(class_id))
            return
        predicted = msgspec.structs.replace(merged, plugins={**merged.plugins, **changed})
        self._cache.expect(self._guess_key(class_id), profile, predicted)

    def _view(self, class_id: str) -> ClassView:
        merged, answers = self._merged.get(class_id), self._answers.get(class_id, ())
        if merged is None:
            return NO_VIEW
        return view_of(merged.feasible, merged.nodes, [answer for answer, _ in answers])

    def _verdict(self, class_id: str) -> ClassVerdict:
        if class_id in self.open or class_id in self._by_name:
            return None
        answers = [answer for answer, _ in self._answers[class_id]]
        for answer in answers:
            if answer.failure is not None:
                return answer.failure
        pre_filter = next((answer.pre_filter for answer in answers if answer.pre_filter is not None), None)
        if _is_rejected(answers) is None and pre_filter is not None:
            # Workers judge by different pods of the class, one of which has lost its claims: the queue looks again.
            return error(f"PreFilter rejects the pod at some workers only: {pre_filter.message}").by(pre_filter.plugin)
        if pre_filter is not None:
            nodes = sum(answer.summary.nodes for answer in answers)
            plugins = sorted_names(pre_filter.plugin, *answers[0].restricted_by)
            potential = nodes if pre_filter.code is Code.UNSCHEDULABLE else 0
            return Unfit(unfit_message(nodes, pre_filter, ()), plugins, nodes, potential=potential)
        judgement = self._judgements.get(class_id)
        if judgement is not None and judgement.failure is not None:
            return judgement.failure
        if nominated := self._nominated_ladders(class_id, judgement):
            return self._merge(class_id, nominated)
        feasible = self._merged[class_id].feasible
        if judgement is not None and not judgement.added and not all(answer.ladder.complete for answer in answers):
            return NOT_OFFERED
        if judgement is not None:
            feasible = min(feasible, len(judgement.added))
        if answers[0].score_failure is not None and feasible > 1:
            return answers[0].score_failure
        if not feasible:
            return self._filter_failure(class_id) or self._unfit(class_id, judgement)
        if all(answer.ladder.complete and not answer.ladder.nodes for answer in answers):
            return error(f"{feasible} nodes are feasible, but no worker offers one")
        ladders = [(answer.ladder, seq) for answer, seq in self._answers[class_id]]
        if judgement is None:
            return None if is_judged(class_id) else self._merge(class_id, ladders)
        ladders = [(judged(ladder, judgement), seq) for ladder, seq in ladders]
        return self._merge(class_id, ladders) if any(ladder.nodes for ladder, _ in ladders) else None

    def _nominated_ladders(self, class_id: str, judgement: Judgement | None) -> list[tuple[Ladder, int]]:
        """Ladders with only the pod's nominated node: it is feasible, so no other node is looked at."""
        nominated = [(answer.ladder, seq) for answer, seq in self._answers[class_id] if answer.via_nominated]
        if judgement is None:
            return [] if is_judged(class_id) else nominated
        node = self.classes[class_id].nominated_node
        if node not in judgement.added:
            return []
        return [(judged(ladder, Judgement({node: 0})), seq) for ladder, seq in nominated]

    def _own(self, class_id: str, verdict: ClassVerdict) -> Iterable[tuple[str, ClassVerdict]]:
        """The verdicts on nominated pods to which that on their class does not apply."""

        def placed(uid: str, ladder: Ladder, seq: int) -> LadderMerge | DomainMerge:
            return self._merge(class_id, [(ladder, seq)], writer=uid)

        def unfit(rejections: Iterable[Rejections]) -> Unfit:
            answers = self._answers[class_id]
            return unfit_of(self._merged[class_id], rejections, answers[0][0].restricted_by, None)

        return self.nominated.verdicts(class_id, verdict, self._answers.get(class_id, ()), placed, unfit).items()

    def _merge(
        self, class_id: str, ladders: Sequence[tuple[Ladder, int]], writer: str = ""
    ) -> LadderMerge | DomainMerge:
        trackers = self._trackers.get(class_id)
        writer = writer or class_id
        return LadderMerge(writer, ladders) if trackers is None else DomainMerge(writer, ladders, trackers)

    def _filter_failure(self, class_id: str) -> Status | None:
        """If a filter fails on a node, no other node counts, as in kube-scheduler."""
        statuses = (part.status for answer, _ in self._answers[class_id] for part in answer.rejections)
        return next((each for each in statuses if each.code is Code.ERROR), None)

    def _unfit(self, class_id: str, judgement: Judgement | None) -> Unfit:
        answers = [answer for answer, _ in self._answers[class_id]]
        rejections = [part for answer in answers for part in answer.rejections]
        return unfit_of(self._merged[class_id], rejections, answers[0].restricted_by, judgement)


def _is_rejected(answers: Sequence[ClassAnswer]) -> bool | None:
    """Whether PreFilter rejects the class; None if workers do not agree."""
    rejected = {answer.pre_filter is not None for answer in answers}
    return None if len(rejected) > 1 else True in rejected
