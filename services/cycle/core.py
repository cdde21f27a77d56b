"""Cycle: runs rounds. It asks the workers for proposals, merges them, decides, and has the snapshot commit.

    idle --pods--> asking --all answered, guesses right--> committing --committed--> idle
                     |  ^                                      |
                     +--+ a guess was wrong, or a worker late  +--> asked again after its deadline

A pod is with the cycle from the batch that brought it until an outcome is told: decided, unfit, failed, or superseded
(it turned out to hold a place already). Stale pods and lost conflicts wait at the head for the next round: that is the
scheduler's affair, not the pod's.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass

from services.cycle.race import Race
from services.cycle.walk import QueuedPod, Unfit, Verdict, Walk, walk
from shared.cluster.classify import Classifier
from shared.cluster.load import PodLoad
from shared.errors import FlotillaError, InvariantBroken, ProtocolError
from shared.framework.diagnosis import merge_rejections, unfit_message
from shared.framework.profile import Framework
from shared.framework.status import Status, error
from shared.framework.summary import Summary, merge
from shared.framework.tiebreak import Ties
from shared.messages.rounds import ClassAnswer, ClassAsk, Proposals, Propose
from shared.messages.state import Commit, Committed, Decision
from shared.model.objects import Pod

ASK_DEADLINE = 1.0
"""Seconds until a worker that has not answered is asked again."""
COMMIT_DEADLINE = 1.0
MOST_ASKS = 8
"""So often is a class asked about in one round before its pods wait for the next."""
MOST_GUESSES = 1 << 14


@dataclass(frozen=True, slots=True)
class Batch:
    """Event: pods to decide, in queue order."""

    pods: list[Pod]


@dataclass(frozen=True, slots=True)
class Workers:
    """Event: who holds which shards now. Together they hold each of them once."""

    shards: Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Effect: send this to a worker."""

    worker: str
    message: Propose


@dataclass(frozen=True, slots=True)
class Write:
    """Effect: send this to the snapshot."""

    message: Commit


@dataclass(frozen=True, slots=True)
class Decided:
    """Effect: this pod is assumed to be on this node, and on its way to be bound."""

    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Effect: no node is feasible for this pod."""

    uid: str
    unfit: Unfit


@dataclass(frozen=True, slots=True)
class Failed:
    """Effect: a plugin failed on this pod, or the pod cannot be read."""

    uid: str
    status: Status


@dataclass(frozen=True, slots=True)
class Superseded:
    """Effect: this pod holds a place already; there is nothing to decide."""

    uid: str


Event = Batch | Workers | Proposals | Committed | Tick
Effect = Ask | Write | Decided | Unschedulable | Failed | Superseded


class CycleCore:
    def __init__(
        self, epoch: int, frameworks: Mapping[str, Framework], *, round_size: int = 256, ties: Ties | None = None
    ) -> None:
        self.epoch = epoch
        self.frameworks = frameworks
        self.round_size = round_size
        self.ties = ties or Ties()
        self.refused: list[ProtocolError] = []
        self.rounds = 0
        self._classifiers = {name: Classifier(name, f.signature) for name, f in frameworks.items()}
        self._backlog: deque[QueuedPod] = deque()
        self._held: set[str] = set()
        self._workers: Mapping[str, frozenset[int]] = {}
        self._known: dict[str, OrderedDict[str, None]] = {}
        self._guesses: OrderedDict[str, Summary] = OrderedDict()
        self._min_seq = 0
        self._deadline: float | None = None
        self._round: _Round | None = None
        self._commit: Commit | None = None
        self._walked: Walk | None = None

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Batch():
                return self._on_batch(event, now)
            case Workers():
                return self._on_workers(event, now)
            case Proposals():
                return self._on_proposals(event, now)
            case Committed():
                return self._on_committed(event, now)
            case Tick():
                return self._on_tick(now)

    def next_deadline(self) -> float | None:
        return self._deadline

    @property
    def pods_held(self) -> int:
        """How many pods wait here for an outcome; what the queue may still send is its credit less this."""
        return len(self._held)

    def _on_batch(self, batch: Batch, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for pod in batch.pods:
            if pod.uid in self._held:
                continue
            framework = self.frameworks.get(pod.spec.scheduler_name)
            if framework is None:
                reason = f"spec.schedulerName: there is no profile {pod.spec.scheduler_name!r}"
                effects.append(Failed(pod.uid, error(f"Pod {pod.key}: {reason}")))
                continue
            try:
                classified = self._classifiers[framework.name].classify(pod)
            except Exception as cause:
                effects.append(Failed(pod.uid, _unreadable(pod, cause)))
                continue
            self._held.add(pod.uid)
            self._backlog.append(QueuedPod(pod, classified.class_id, classified.load, framework.name))
        return effects + self._begin(now)

    def _on_workers(self, event: Workers, now: float) -> list[Effect]:
        """Whoever is new is asked; who is gone is not waited for. The round in flight is asked again."""
        self._workers = dict(event.shards)
        self._known = {worker: self._known.get(worker, OrderedDict()) for worker in self._workers}
        if self._round is None:
            return self._begin(now)
        self._round.answers.clear()
        self._round.open = set(self._round.classes)
        return self._ask(now)

    def _on_tick(self, now: float) -> list[Effect]:
        if self._deadline is None or now < self._deadline:
            return []
        if self._commit is not None:
            self._deadline = now + COMMIT_DEADLINE
            return [Write(self._commit)]
        if self._round is None:
            self._deadline = None
            return []
        return self._ask(now, again=True)

    # A round

    def _begin(self, now: float) -> list[Effect]:
        if self._round is not None or self._commit is not None or not self._backlog or not self._workers:
            return []
        pods = [self._backlog.popleft() for _ in range(min(self.round_size, len(self._backlog)))]
        self.rounds += 1
        self._round = _Round(self.rounds, pods)
        return self._ask(now)

    def _ask(self, now: float, *, again: bool = False) -> list[Effect]:
        """Asks every worker about the classes that are open; `again`: only those who have not answered."""
        round_ = self._open_round()
        if not again:
            round_.ask += 1
            round_.answered = {}
        self._deadline = now + ASK_DEADLINE
        return [Ask(worker, self._propose(round_, worker)) for worker in self._workers if worker not in round_.answered]

    def _propose(self, round_: "_Round", worker: str) -> Propose:
        known = self._known[worker]
        asks = [
            ClassAsk(
                class_id=class_id,
                profile=(sample := round_.classes[class_id]).profile,
                count=_ladder_length(round_.counts[class_id], len(self._workers)),
                pod=None if class_id in known else sample.pod,
                guess=self._guesses.get(class_id),
            )
            for class_id in round_.order
            if class_id in round_.open
        ]
        return Propose(self.epoch, round_.number, round_.ask, self._min_seq, self.ties, asks)

    def _on_proposals(self, proposals: Proposals, now: float) -> list[Effect]:
        round_ = self._round
        if (
            round_ is None
            or proposals.epoch != self.epoch
            or (proposals.round, proposals.ask) != (round_.number, round_.ask)
            or proposals.worker in round_.answered
        ):
            return []  # late or doubled
        if frozenset(proposals.shards) != self._workers.get(proposals.worker):
            self.refused.append(ProtocolError(f"{proposals.worker} answers for shards that it does not hold"))
            return []
        if {answer.class_id for answer in proposals.answers} != round_.open:
            self.refused.append(ProtocolError(f"{proposals.worker} answers for other classes than it was asked about"))
            return []
        round_.answered[proposals.worker] = proposals
        if len(round_.answered) < len(self._workers):
            return []
        return self._gathered(round_, now)

    def _gathered(self, round_: "_Round", now: float) -> list[Effect]:
        """Everybody has answered: settles each class whose guess was right, asks again about the others."""
        for proposals in round_.answered.values():
            known = self._known[proposals.worker]
            for answer in proposals.answers:
                round_.answers.setdefault(answer.class_id, {})[proposals.worker] = (answer, proposals.seq)
                if answer.unknown:
                    known.pop(answer.class_id, None)
                else:
                    known[answer.class_id] = None
            while len(known) > MOST_GUESSES:
                known.popitem(last=False)
        round_.open = {class_id for class_id in round_.open if not self._settled(round_, class_id)}
        if round_.open and round_.ask < MOST_ASKS:
            for class_id in round_.open:
                del round_.answers[class_id]
            return self._ask(now)
        return self._decide(round_, now)

    def _settled(self, round_: "_Round", class_id: str) -> bool:
        """Have the workers judged this class by the merged summary? If not, it is their guess for the next time."""
        answers = [answer for answer, _ in round_.answers[class_id].values()]
        if any(answer.unknown for answer in answers):
            return False
        if any(answer.failure is not None or answer.pre_filter is not None for answer in answers):
            return True
        framework = self.frameworks[round_.classes[class_id].profile]
        merged = merge(framework, (answer.summary for answer in answers))
        guess = self._guesses.get(class_id)
        round_.merged[class_id] = merged
        self._guesses[class_id] = merged
        self._guesses.move_to_end(class_id)
        if len(self._guesses) > MOST_GUESSES:
            self._guesses.popitem(last=False)
        if guess is None and len(answers) == 1:
            return True  # the only shard's own summary is the merged one
        return merged.agrees_with(guess)

    def _decide(self, round_: "_Round", now: float) -> list[Effect]:
        verdicts = {class_id: self._verdict(round_, class_id) for class_id in round_.classes}
        result = walk(round_.pods, verdicts)
        self._round = None
        effects: list[Effect] = []
        for queued, unfit in result.unfit:
            self._held.discard(queued.pod.uid)
            effects.append(Unschedulable(queued.pod.uid, unfit))
        for queued, status in result.failed:
            self._held.discard(queued.pod.uid)
            effects.append(Failed(queued.pod.uid, status))
        self._backlog.extendleft(reversed(result.deferred))
        if not result.decided:
            return effects + self._begin(now)
        self._walked = result
        self._commit = _commit(self.epoch, round_.number, result)
        self._deadline = now + COMMIT_DEADLINE
        return [*effects, Write(self._commit)]

    def _verdict(self, round_: "_Round", class_id: str) -> Verdict:
        if class_id in round_.open:
            return None
        answers = list(round_.answers[class_id].values())
        for answer, _ in answers:
            if answer.failure is not None:
                return answer.failure
        restricted_by = answers[0][0].restricted_by
        pre_filter = next((answer.pre_filter for answer, _ in answers if answer.pre_filter is not None), None)
        if pre_filter is not None:
            nodes = sum(answer.summary.nodes for answer, _ in answers)
            plugins = {pre_filter.plugin, *restricted_by} - {""}
            return Unfit(unfit_message(nodes, pre_filter, ()), tuple(sorted(plugins)))
        merged = round_.merged[class_id]
        if merged.feasible:
            return Race(class_id, [(answer.ladder, seq) for answer, seq in answers])
        rejections = merge_rejections(part for answer, _ in answers for part in answer.rejections)
        plugins = {*(part.status.plugin for part in rejections), *restricted_by} - {""}
        return Unfit(unfit_message(merged.nodes, None, rejections), tuple(sorted(plugins)))

    def _on_committed(self, committed: Committed, now: float) -> list[Effect]:
        if self._commit is None or self._walked is None:
            return []
        if (committed.epoch, committed.round) != (self._commit.epoch, self._commit.round):
            return []
        conflicts = {conflict.uid: conflict for conflict in committed.conflicts}
        effects: list[Effect] = []
        again: list[QueuedPod] = []
        for queued, rung in self._walked.decided:
            uid = queued.pod.uid
            conflict = conflicts.get(uid)
            if conflict is not None and not conflict.placed:
                again.append(queued)
                continue
            self._held.discard(uid)
            effects.append(Decided(uid, rung.node) if conflict is None else Superseded(uid))
        self._backlog.extendleft(reversed(again))
        self._min_seq = committed.seq
        self._commit = self._walked = self._deadline = None
        return effects + self._begin(now)

    def _open_round(self) -> "_Round":
        if self._round is None:
            raise InvariantBroken("asked for proposals outside a round")
        return self._round

    def validate(self) -> None:
        """Every pod held is in the backlog, or in the round or commit in flight, and once."""
        where = [queued.pod.uid for queued in self._backlog]
        if self._round is not None:
            where += [queued.pod.uid for queued in self._round.pods]
        if self._walked is not None:
            where += [queued.pod.uid for queued, _ in self._walked.decided]
        if len(where) != len(set(where)) or set(where) != self._held:
            raise InvariantBroken(f"cycle holds {len(self._held)} pods and can account for {len(where)}")


class _Round:
    """A round whose proposals are being gathered. `open`: the classes that still are to be asked about."""

    def __init__(self, number: int, pods: list[QueuedPod]) -> None:
        self.number = number
        self.pods = pods
        self.ask = 0
        self.classes: dict[str, QueuedPod] = {}
        for queued in pods:
            self.classes.setdefault(queued.class_id, queued)
        self.order = list(self.classes)
        self.counts = Counter(queued.class_id for queued in pods)
        self.open = set(self.classes)
        self.answered: dict[str, Proposals] = {}
        self.answers: dict[str, dict[str, tuple[ClassAnswer, int]]] = {}
        self.merged: dict[str, Summary] = {}


def _unreadable(pod: Pod, cause: Exception) -> Status:
    return error(str(cause) if isinstance(cause, FlotillaError) else f"Pod {pod.key}: {cause!r}")


def _ladder_length(pods: int, workers: int) -> int:
    """Enough rungs for all pods if the shards share them within a factor of two; else the rest waits a round."""
    return min(pods, 2 * -(-pods // workers) + 8)


def _commit(epoch: int, round_: int, result: Walk) -> Commit:
    loads: list[PodLoad] = []
    numbers: dict[int, int] = {}
    decisions: list[Decision] = []
    for queued, rung in result.decided:
        number = numbers.get(id(queued.load))
        if number is None:
            number = numbers[id(queued.load)] = len(loads)
            loads.append(queued.load)
        meta = queued.pod.metadata
        decisions.append(Decision(meta.uid, meta.namespace, meta.name, queued.profile, rung.node, number, rung.seen))
    return Commit(epoch, round_, loads, decisions)
