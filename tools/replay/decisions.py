"""Decides recorded rounds and searches again, each on the states that it was judged on."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from services.cycle.extenders import Extenders
from services.cycle.preemption.candidate_search import CandidateSearch, SearchCase
from services.cycle.preemption.gang_case import GangCase, Stage
from services.cycle.preemption.gang_search import GangSearch
from services.cycle.preemption.search_queue import SearchQueue
from services.cycle.recording import pods_of_gang_search, pods_of_round, pods_of_search
from services.cycle.round.admission import Admission, PodInfo
from services.cycle.round.assign import Unfit
from services.cycle.round.class_cache import ClassCache
from services.cycle.round.gang import GangRound
from services.cycle.round.gangs import AnyGang
from services.cycle.round.round import Round
from services.cycle.round.tree_round import TreeRound
from shared.errors import FlotillaError
from shared.framework.evaluator import Explanation
from shared.framework.profile import MAX_ASKS, Framework, merge
from shared.messages.evaluation import Ties
from shared.messages.queue import Gang
from shared.messages.recording import (
    ClassDecided,
    GangSearched,
    GangStep,
    PodDecided,
    RecordedPod,
    RoundDecided,
    SearchDecided,
    WorkerShards,
)
from shared.messages.rounds import ClassAsk
from tools.replay.states import History, Judges, ReplayWorkers

EPOCH = 1
"""A replay has one term."""


class Incomparable(FlotillaError):
    """A decision cannot be made again from what was recorded."""


class Decisions:
    def __init__(
        self, frameworks: Mapping[str, Framework], ties: Ties, round_size: int, shards: int | None = None
    ) -> None:
        """`shards`: the number of equal parts into which nodes are divided; by default, as when it was recorded."""
        self.frameworks = frameworks
        self.workers = ReplayWorkers(frameworks, ties, shards)
        self.ties = ties
        self.round_size = round_size
        self._admission = Admission(frameworks, Extenders(), keeps_labels=True)
        self.cache = ClassCache()
        self._gangs: dict[str, AnyGang | None] = {}
        """Those that are decided, by key; None if an earlier step does not agree with what was recorded."""
        self.pods: dict[str, PodInfo] = {}

    def show(self, pods: Iterable[RecordedPod]) -> None:
        """Pods that rounds and searches name."""
        for each in pods:
            info, failure = self._admission.admit(each.queued, 0.0)
            if failure is None:
                self.pods[each.uid] = info

    def info(self, pod: PodDecided, of: ClassDecided, gang: Gang | None = None) -> PodInfo:
        """Incomparable if the pod was not recorded."""
        info = self.pods.get(pod.uid)
        if info is None:
            raise Incomparable("a pod is missing")
        info.class_id, info.gang = of.class_id, in_its_group(info, gang)
        return info

    def round(self, record: RoundDecided, history: History) -> tuple[list[PodDecided], str]:
        """What is decided about each pod, and about the gang, if this is the last step of one."""
        step = record.gang
        of_gang = None if step is None else step.gang or Gang(step.key, step.least)
        pods = [self.info(pod, record.classes[pod.of], of_gang) for pod in record.pods]
        gang = self._gang(record, pods)
        groups = _groups(record.classes)
        self._check(groups, history)
        asked = [] if gang is None else gang.asked()
        round_ = Round(record.round, asked or pods, self.cache, gang)
        keys: tuple[str, ...] | None = None
        while keys != round_.keys:  # every ladder needs the values of all labels
            keys = round_.keys
            for seqs, classes in groups.items():
                self.settle(round_, classes, self.judges(record.workers, seqs), history)
        result = round_.decide(self.frameworks)
        if gang is None:
            return pods_of_round(result, list(round_.classes)), ""
        gang.take(result)
        found = pods_of_round(result, list(round_.classes))
        outcome = gang.verdict if step is not None and step.outcome else ""
        self._gangs[gang.key] = gang if found == record.pods else None
        return found, outcome

    def search(self, record: SearchDecided, history: History) -> list[PodDecided]:
        if record.gang is not None:
            return self._gang_search(record, record.gang, history)
        groups = _groups(record.classes)
        self._check(groups, history)
        by_class: dict[int, list[PodInfo]] = {index: [] for index in range(len(record.classes))}
        for pod in record.pods:
            by_class[pod.of].append(self.info(pod, record.classes[pod.of]))
        found: Mapping[str, dict[str, object]] = {each.class_id: {} for each in record.classes}
        for _ in range(2):  # the first one finds the summaries
            cases = [
                SearchCase(of.class_id, by_class[index], Unfit(of.unfit, (), 0, found[of.class_id], of.potential))
                for index, of in enumerate(record.classes)
            ]
            search = CandidateSearch(record.search, cases)
            for seqs, classes in groups.items():
                self.gather(search, classes, self.judges(record.workers, seqs), history)
            found = {each.class_id: search.told(each.class_id)[0] for each in record.classes}
        alone = {each.class_id for each in record.classes if each.alone}
        queue = SearchQueue(
            EPOCH, self.frameworks, self.ties, Extenders(), at_once=self.round_size, stands_alone=alone.__contains__
        )
        return pods_of_search(search, queue.conclude(search))

    def _gang_search(self, record: SearchDecided, gang: GangSearched, history: History) -> list[PodDecided]:
        """A search with other victims than were recorded gives them as the reason."""
        [(seqs, _)] = _groups(record.classes).items()
        self._check([seqs], history)
        of_gang = Gang(gang.key, gang.least, groups=gang.groups)
        pods = [self.info(pod, record.classes[pod.of], of_gang) for pod in record.pods]
        members = [(info, Unfit("", ())) for info in pods]
        case = GangCase(
            gang.key,
            gang.least,
            gang.priority,
            members,
            keys=tuple(gang.keys),
            within=gang.within,
            groups=gang.groups,
            placed_in=gang.placed_in,
            stage=Stage(gang.stage),
        )
        alone = {each.class_id for each in record.classes if each.alone}
        search = GangSearch(record.search, case, self.frameworks, alone.__contains__)
        while search.open:
            for worker, seq in self.judges(record.workers, seqs):
                search.take(worker.preempt(history, seq, search.message(EPOCH, seq)))
            search.gather(self.frameworks)
        victims = [victim.uid for victim in search.victims]
        if victims and gang.victims and victims != gang.victims:
            why = f"the victims are {', '.join(victims)}"
            return [msgspec.structs.replace(pod, reason=why) for pod in record.pods]
        return pods_of_gang_search(search)

    def explain(self, pod: PodDecided, record: RoundDecided | SearchDecided, history: History) -> Explanation:
        """The result of every node for a pod of this round or search, before any of its decisions."""
        of = record.classes[pod.of]
        self._check([tuple(of.seqs)], history)
        info = self.info(pod, of, self.pods[pod.uid].gang)
        framework, judges = self.frameworks[info.template.profile], self.judges(record.workers, of.seqs)
        ask = ClassAsk(
            info.class_id,
            framework.name,
            1,
            info.pod,
            private_claims=info.has_private_claims,
            own_volumes=info.own_volumes,
        )
        whole = Explanation()
        for _ in range(MAX_ASKS):
            parts = [worker.explain(history, seq, ask) for worker, seq in judges]
            whole = Explanation(skipped_scores=parts[0][1].skipped_scores)
            for _, part in parts:
                whole.rejected.update(part.rejected)
                whole.scores.update(part.scores)
            merged = merge(framework, (answer.summary for answer, _ in parts))
            if any(answer.pre_filter is not None for answer, _ in parts) or merged.agrees_with(ask.guess):
                break
            ask = msgspec.structs.replace(ask, guess=merged)
        return whole

    # Inside

    def _gang(self, record: RoundDecided, pods: Sequence[PodInfo]) -> AnyGang | None:
        step = record.gang
        if step is None:
            return None
        gang = self._begun(step, pods) if step.first else self._gangs.get(step.key)
        if gang is None:
            raise Incomparable("an earlier step of its gang is missing or differs")
        self._gangs[step.key] = None
        asked = {info.uid for info in pods}
        gang.open = deque(info for info in gang.open if gang.asked() or info.uid not in asked)
        return gang

    def _begun(self, step: GangStep, pods: Sequence[PodInfo]) -> AnyGang:
        """Incomparable if a member was not recorded."""
        if step.gang is None:
            gang = GangRound(pods)
            gang.attempts.end_with_this()
            return gang
        if not self.pods.keys() >= set(step.pods):
            raise Incomparable("a member of its gang is missing")
        members = [self.pods[uid] for uid in step.pods]
        for info in members:
            info.gang = in_its_group(info, step.gang)
        decide = TreeRound if step.gang.groups else GangRound
        return decide(members, step.gone, step.unreserved)

    def _check(self, groups: Iterable[Sequence[int]], history: History) -> None:
        for seqs in groups:
            if not all(history.oldest <= seq <= history.newest for seq in seqs):
                raise Incomparable("a state that it was judged on is missing")

    def judges(self, workers: Sequence[WorkerShards], seqs: Sequence[int]) -> Judges:
        """Workers that share all nodes, each on its state."""
        judges = self.workers.judges(workers, seqs)
        self.cache.keep_workers(self.workers.names)
        return judges

    def settle(self, round_: Round, classes: Iterable[str], judges: Judges, history: History) -> None:
        """Asks about these classes until they are judged by their merged summaries."""
        wanted = set(classes)
        round_.open, round_.ask = set(wanted), 0
        while round_.open & wanted and round_.ask < MAX_ASKS:
            round_.open &= wanted
            round_.next_ask()
            for worker, seq in judges:
                ask = round_.propose(EPOCH, self.ties, seq, worker.name, len(judges))
                proposals = worker.propose(history, seq, ask)
                self.cache.remember_known(proposals)
                round_.answered[worker.name] = proposals
            round_.settle(self.frameworks, len(judges))
        if round_.open & wanted:
            raise Incomparable("its summaries do not settle")
        round_.open = set()

    def gather(self, search: CandidateSearch, classes: Iterable[str], judges: Judges, history: History) -> None:
        """Likewise, in a search."""
        search.open, search.ask, search.answered = set(classes), 1, {}
        while search.open:
            for worker, seq in judges:
                search.take(worker.preempt(history, seq, search.message(EPOCH, seq)))
            search.gather(self.frameworks)


def in_its_group(info: PodInfo, gang: Gang | None) -> Gang | None:
    """The gang, with the number that the pod's group has in it if it is a tree."""
    if gang is None or info.gang is None:
        return gang
    return msgspec.structs.replace(gang, group=info.gang.group)


def _groups(classes: Iterable[ClassDecided]) -> dict[tuple[int, ...], list[str]]:
    """Classes that were judged on the same states. Incomparable if the states alone do not tell what was decided."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for each in classes:
        if each.incomparable:
            raise Incomparable(each.incomparable)
        groups.setdefault(tuple(each.seqs), []).append(each.class_id)
    return groups


def latest(classes: Iterable[ClassDecided]) -> Iterator[int]:
    """The newest state that each was judged on."""
    return (max(each.seqs, default=0) for each in classes)
