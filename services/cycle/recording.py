"""What the cycle tells recorders of its decisions, as long as one of them asks for it.

`pods_of_round` and `pods_of_search` give decisions the form in which a replay compares them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from services.cycle.events import Record, Unschedulable
from services.cycle.extenders import is_judged
from services.cycle.preemption.candidate_search import CandidateSearch
from services.cycle.preemption.gang_case import GangCase
from services.cycle.preemption.gang_search import GangSearch
from services.cycle.preemption.search_queue import SearchProgress
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import RoundResult
from services.cycle.round.gangs import AnyGang
from services.cycle.round.round import Round
from shared.bounded import BoundedDict
from shared.messages.evaluation import Ties
from shared.messages.limits import HALF_A_MESSAGE
from shared.messages.queue import QueuedPod
from shared.messages.recording import (
    ClassDecided,
    CommitAnswered,
    DeciderShown,
    GangSearched,
    GangStep,
    PodDecided,
    PodsShown,
    RecordDecisions,
    RecordedPod,
    RoundDecided,
    SearchDecided,
    WorkerShards,
)
from shared.messages.state import Committed

MAX_PODS_SHOWN = 1 << 14
"""Pods that recorders are known to have; others are sent with each of their decisions."""
UNSETTLED = "its summary changed with every ask"
EXTENDERS = "extenders judged it"

Shards = Mapping[str, frozenset[int]]


class Decider(NamedTuple):
    """What decides, as recorders see it: DeciderShown."""

    version: str = ""
    config: str = ""
    feature_gates: str = ""


class Recording:
    def __init__(self, epoch: int, incarnation: str, round_size: int, ties: Ties, decider: "Decider") -> None:
        self._decider = decider
        self._epoch = epoch
        self._incarnation = incarnation
        self._round_size = round_size
        self._ties = ties
        self._until = 0.0
        self._recordings: dict[str, float] = {}
        """Those that recorders ask for, and until when."""
        self._shown: BoundedDict[str, object] = BoundedDict(MAX_PODS_SHOWN)
        """By uid: the bodies that recorders have."""
        self._number = 0

    def is_on(self, now: float) -> bool:
        return now < self._until

    def ask(self, request: RecordDecisions, now: float) -> list[Record]:
        """Sends decisions for at least this many seconds from now."""
        is_new = self._recordings.get(request.recording, now) <= now
        self._recordings[request.recording] = now + request.seconds
        self._recordings = {each: until for each, until in self._recordings.items() if until > now}
        self._until = max(self._recordings.values(), default=now)
        if not is_new:
            return []
        self._shown.clear()
        version, config, feature_gates = self._decider
        size, ties, recording = self._round_size, self._ties, request.recording
        return [Record(DeciderShown(*self._next(), version, size, ties, config, feature_gates, recording))]

    def round(self, round_: Round, result: RoundResult, workers: Shards) -> Iterator[Record]:
        """`result`: of the round, or of this step of a gang, which has taken it."""
        yield from self._pods(round_.pods if round_.gang is None else round_.gang.members)
        classes = list(round_.classes)
        shown = [
            ClassDecided(each, _seqs(round_.judged_on.get(each, {}), workers), incomparable=_why(round_, each))
            for each in classes
        ]
        pods, gang = pods_of_round(result, classes), None if round_.gang is None else step_of(round_.gang)
        yield Record(RoundDecided(*self._next(), round_.number, _shards(workers), shown, pods, gang))

    def search(
        self,
        search: CandidateSearch | GangSearch,
        progress: SearchProgress,
        stands_alone: Callable[[str], bool],
        workers: Shards,
    ) -> Iterator[Record]:
        """`stands_alone`: whether the pods of a class matter to each other only by the nodes that they take."""
        if isinstance(search, GangSearch):
            return self._gang_search(search, filter(stands_alone, classes_of(search.case)), workers)
        return self._candidate_search(search, progress, filter(stands_alone, search.cases), workers)

    def _candidate_search(
        self, search: CandidateSearch, progress: SearchProgress, alone: Iterable[str], workers: Shards
    ) -> Iterator[Record]:
        yield from self._pods([info for case in search.cases.values() for info in case.pods])
        stands_alone = set(alone)
        classes = [
            ClassDecided(
                class_id,
                seqs=_seqs(search.judged_on[class_id], workers),
                unfit=case.unfit.message,
                incomparable=_why_not(search, class_id),
                potential=search.told(class_id)[1],
                alone=class_id in stands_alone,
            )
            for class_id, case in search.cases.items()
        ]
        pods = pods_of_search(search, progress)
        yield Record(SearchDecided(*self._next(), search.number, _shards(workers), classes, pods))

    def _gang_search(self, search: GangSearch, alone: Iterable[str], workers: Shards) -> Iterator[Record]:
        """What comes of it is rehearsed in rounds."""
        case, stands_alone = search.case, set(alone)
        yield from self._pods(case.pods)
        seqs = _seqs(search.judged_on[-1] if search.judged_on else {}, workers)
        why_not = "" if search.is_settled else UNSETTLED
        classes = [
            ClassDecided(class_id, seqs, incomparable=why_not, alone=class_id in stands_alone)
            for class_id in classes_of(case)
        ]
        pods = pods_of_gang_search(search)
        victims = [victim.uid for victim in search.victims]
        gang = GangSearched(
            case.key,
            case.least,
            case.priority,
            list(case.keys),
            case.within,
            victims,
            case.groups,
            dict(case.placed_in or {}),
            int(case.stage),
        )
        yield Record(SearchDecided(*self._next(), search.number, _shards(workers), classes, pods, gang))

    def committed(self, round_: int, answer: Committed) -> Record:
        conflicts = {conflict.uid: conflict.reason for conflict in answer.conflicts}
        return Record(CommitAnswered(*self._next(), round_, answer.seq, conflicts))

    def _next(self) -> tuple[int, str, int]:
        self._number += 1
        return self._epoch, self._incarnation, self._number

    def _pods(self, pods: Iterable[PodInfo]) -> Iterator[Record]:
        """Pods that recorders do not have yet, in messages of bounded size."""
        part: list[RecordedPod] = []
        size = 0
        for info in pods:
            if self._shown.get(info.uid) is info.body:
                continue
            self._shown[info.uid] = info.body
            size += len(info.body)
            if part and size > HALF_A_MESSAGE:
                yield Record(PodsShown(*self._next(), part))
                part, size = [], len(info.body)
            gang = None if info.gang is None else msgspec.structs.replace(info.gang, groups=())
            queued = QueuedPod(info.body, info.attempt, 0.0, 0.0, gang, info.claims, info.volumes)
            part.append(RecordedPod(info.uid, queued))
        if part:
            yield Record(PodsShown(*self._next(), part))


def pods_of_round(result: RoundResult, classes: Sequence[str]) -> list[PodDecided]:
    """In the order of the round."""
    of = {class_id: index for index, class_id in enumerate(classes)}
    found: dict[str, PodDecided] = {}
    for info, placement in result.decided:
        found[info.uid] = PodDecided(
            info.uid,
            of[info.class_id],
            "placed",
            placement.node,
            placement.score,
            volumes=placement.volumes,
            devices=placement.devices,
        )
    for info, unfit in result.unfit:
        found[info.uid] = PodDecided(info.uid, of[info.class_id], "unfit", reason=unfit.message)
    for info, status in result.failed:
        found[info.uid] = PodDecided(info.uid, of[info.class_id], "failed", reason=status.message)
    for info in result.deferred:
        found[info.uid] = PodDecided(info.uid, of[info.class_id], "deferred")
    return [found[uid] for uid in result.order]


def pods_of_search(search: CandidateSearch, progress: SearchProgress) -> list[PodDecided]:
    """By class; pods that are to be decided again are deferred."""
    of = {class_id: index for index, class_id in enumerate(search.cases)}
    found: dict[str, PodDecided] = {}
    for planned in progress.nominations:
        info, preemption = planned.info, planned.preemption
        victims = [victim.uid for victim in preemption.victims]
        found[info.uid] = PodDecided(
            info.uid, of[info.class_id], "nominated", preemption.nominated or "", victims=victims
        )
    for effect in progress.effects:
        if isinstance(effect, Unschedulable) and effect.pod is not None:
            found[effect.uid] = PodDecided(effect.uid, of[effect.pod.class_id], "unfit", reason=effect.unfit.message)
    pods = [info for case in search.cases.values() for info in case.pods]
    return [found.get(info.uid) or PodDecided(info.uid, of[info.class_id], "deferred") for info in pods]


def classes_of(case: GangCase) -> list[str]:
    return list(dict.fromkeys(info.class_id for info in case.pods))


def pods_of_gang_search(search: GangSearch) -> list[PodDecided]:
    """Pods of a gang with victims are deferred: it is rehearsed whether they all fit."""
    of = {class_id: index for index, class_id in enumerate(classes_of(search.case))}
    verdict: Literal["deferred", "unfit"] = "deferred" if search.victims else "unfit"
    return [PodDecided(info.uid, of[info.class_id], verdict, reason=search.why) for info in search.case.pods]


def step_of(gang: AnyGang) -> GangStep:
    """The step that it has just taken."""
    outcome = gang.verdict if gang.is_over else ""
    if gang.steps > 1:
        return GangStep(gang.key, gang.least, len(gang.members), outcome=outcome)
    uids = [info.uid for info in gang.members]
    return GangStep(
        gang.key,
        gang.least,
        len(gang.members),
        first=True,
        outcome=outcome,
        pods=uids,
        gang=gang.message,
        gone=gang.gone,
        unreserved=gang.unreserved,
    )


def _shards(workers: Shards) -> list[WorkerShards]:
    return [WorkerShards(worker, sorted(shards)) for worker, shards in workers.items()]


def _seqs(judged_on: Mapping[str, int], workers: Shards) -> list[int]:
    return [judged_on.get(worker, 0) for worker in workers]


def _why(round_: Round, class_id: str) -> str:
    if is_judged(class_id):
        return EXTENDERS
    return UNSETTLED if class_id in round_.unsettled or class_id in round_.open else ""


def _why_not(search: CandidateSearch, class_id: str) -> str:
    if is_judged(class_id) or search.is_extended(class_id):
        return EXTENDERS
    return UNSETTLED if class_id in search.unsettled else ""
