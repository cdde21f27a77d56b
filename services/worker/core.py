"""Worker: filters and scores the nodes of its shards, and proposes the best of them.

It follows the snapshot's deltas. What comes out of order waits a moment for what is missing; what stays missing is
mended by loading the whole state anew. Asked for proposals, it answers as soon as it has seen what the asker has seen.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.worker.sampling import sample
from shared.cluster.changes import Rows
from shared.cluster.load import PodLoad
from shared.cluster.nodetable import LoadKind, NodeTable
from shared.cluster.shards import shard_of
from shared.errors import FlotillaError, ProtocolError
from shared.framework.evaluator import ShardEvaluator
from shared.framework.explanation import Explanation, explain, rejections
from shared.framework.keymatrix import Keys, Mask
from shared.framework.podclass import PodClass
from shared.framework.profile import Framework
from shared.framework.status import Status, error
from shared.framework.summary import Range, Summary
from shared.framework.tiebreak import Ties
from shared.messages.rounds import ClassAnswer, ClassAsk, Explain, Explained, Ladder, Proposals, Propose
from shared.messages.state import Change, Delta, NodeRemoved, NodeUpserted, PodGone, PodPlaced, State

GAP_PATIENCE = 0.05
"""Seconds that a missing delta is waited for: longer than reordering takes, shorter than anybody's deadline."""
MOST_WAITING_DELTAS = 1024
CLASS_MEMORY = 512 << 20
"""Bytes that cached evaluations may take; the class not asked about for longest goes first."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect: send this to whoever asked."""

    message: Proposals | Explained


@dataclass(frozen=True, slots=True)
class Reload:
    """Effect: fetch the whole state; it comes back as a State event."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


Event = Delta | Propose | Explain | State | Tick
Effect = Answer | Reload


class WorkerCore:
    def __init__(
        self, name: str, shards: frozenset[int], shard_count: int, frameworks: Mapping[str, Framework]
    ) -> None:
        self.name = name
        self.shards = shards
        self.shard_count = shard_count
        self.frameworks = frameworks
        self.refused: list[ProtocolError] = []
        self._state_epoch = 0
        self._seq = 0
        self._loaded = False
        self._cycle_epoch = 0
        self._newest = (0, 0)
        self._early: dict[int, Delta] = {}
        self._waiting: Propose | None = None
        self._patience_ends: float | None = None
        self._start_over(NodeTable())

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Delta():
                return self._on_delta(event, now)
            case Propose():
                return self._on_propose(event, now)
            case Explain():
                return self._on_explain(event)
            case State():
                return self._on_state(event, now)
            case Tick():
                return self._on_tick(now)

    def next_deadline(self) -> float | None:
        return self._patience_ends

    def start(self) -> list[Effect]:
        return [Reload()]

    @property
    def seq(self) -> int:
        return self._seq

    def _on_delta(self, delta: Delta, now: float) -> list[Effect]:
        if delta.epoch < self._state_epoch:
            self.refused.append(ProtocolError(f"delta {delta.seq} of epoch {delta.epoch}, now {self._state_epoch}"))
            return []
        if delta.epoch > self._state_epoch or not self._loaded:
            return [Reload()]  # a new snapshot leader: its state is loaded whole
        if delta.seq <= self._seq:
            return []
        self._early[delta.seq] = delta
        while (following := self._early.pop(self._seq + 1, None)) is not None:
            self._apply(following)
        if not self._early:
            self._patience_ends = None
        elif len(self._early) > MOST_WAITING_DELTAS:
            return self._reload()
        elif self._patience_ends is None:
            self._patience_ends = now + GAP_PATIENCE
        return self._answer_waiting()

    def _on_propose(self, propose: Propose, now: float) -> list[Effect]:
        if propose.epoch < self._cycle_epoch or (
            propose.epoch == self._cycle_epoch and (propose.round, propose.ask) < self._newest
        ):
            self.refused.append(ProtocolError(f"ask {propose.round}.{propose.ask} of epoch {propose.epoch} is old"))
            return []
        self._cycle_epoch = propose.epoch
        self._newest = (propose.round, propose.ask)
        self._waiting = propose
        answer = self._answer_waiting()
        if not answer and self._patience_ends is None:
            self._patience_ends = now + GAP_PATIENCE
        return answer

    def _on_state(self, state: State, now: float) -> list[Effect]:
        if state.epoch < self._state_epoch or (state.epoch == self._state_epoch and state.seq < self._seq):
            return []
        table = NodeTable()
        for node in state.nodes:
            if self._is_ours(node.name):
                table.add_node(node)
        kinds: dict[int, LoadKind] = {}
        for pod in state.pods:
            if pod.node in table:
                table.add_pod(pod.uid, pod.node, _kind(table, kinds, state.loads, pod.load))
        self._start_over(table)
        self._state_epoch, self._seq, self._loaded = state.epoch, state.seq, True
        self._early = {seq: delta for seq, delta in self._early.items() if seq > state.seq}
        while (following := self._early.pop(self._seq + 1, None)) is not None:
            self._apply(following)
        answer = self._answer_waiting()
        behind = bool(self._early) or self._waiting is not None
        self._patience_ends = now + GAP_PATIENCE if behind else None
        return answer

    def _on_tick(self, now: float) -> list[Effect]:
        if self._patience_ends is None or now < self._patience_ends:
            return []
        return self._reload()

    def _reload(self) -> list[Effect]:
        self._patience_ends = None
        return [Reload()]

    # The table

    def _is_ours(self, node: str) -> bool:
        return shard_of(node, self.shard_count) in self.shards

    def _apply(self, delta: Delta) -> None:
        kinds: dict[int, LoadKind] = {}
        for change in delta.changes:
            self._apply_change(change, delta.loads, kinds)
        self._seq = delta.seq

    def _apply_change(self, change: Change, loads: Sequence[PodLoad], kinds: dict[int, LoadKind]) -> None:
        table = self.table
        match change:
            case PodPlaced(uid=uid, node=node, load=load):
                if node in table:
                    table.add_pod(uid, node, _kind(table, kinds, loads, load))
                elif table.place_of(uid) is not None:
                    table.remove_pod(uid)
            case PodGone(uid=uid):
                if table.place_of(uid) is not None:
                    table.remove_pod(uid)
            case NodeUpserted(node=node_object):
                if self._is_ours(node_object.name):
                    table.upsert_node(node_object)
            case NodeRemoved(name=name):
                if name in table:
                    table.remove_node(name)

    def _start_over(self, table: NodeTable) -> None:
        self.table = table
        self._ties: Ties | None = None
        self._evaluators: dict[str, ShardEvaluator] = {}
        self._classes: OrderedDict[str, PodClass] = OrderedDict()
        self._class_profiles: dict[str, str] = {}

    # Proposals

    def _answer_waiting(self) -> list[Effect]:
        propose = self._waiting
        if propose is None or not self._loaded or propose.min_seq > self._seq:
            return []
        self._waiting = None
        if not self._early:
            self._patience_ends = None
        if propose.ties != self._ties:
            self._start_over(self.table)
            self._ties = propose.ties
            self._evaluators = {n: ShardEvaluator(self.table, f, propose.ties) for n, f in self.frameworks.items()}
        by_profile: dict[str, list[ClassAsk]] = {}
        for ask in propose.classes:
            by_profile.setdefault(ask.profile, []).append(ask)
        answers = [answer for profile, asks in by_profile.items() for answer in self._propose(profile, asks)]
        return [
            Answer(
                Proposals(
                    worker=self.name,
                    epoch=propose.epoch,
                    round=propose.round,
                    ask=propose.ask,
                    seq=self._seq,
                    shards=sorted(self.shards),
                    answers=answers,
                )
            )
        ]

    def _propose(self, profile: str, asks: list[ClassAsk]) -> list[ClassAnswer]:
        evaluator = self._evaluators.get(profile)
        if evaluator is None:
            failure = error(f"there is no profile {profile!r}")
            return [ClassAnswer(ask.class_id, failure=failure) for ask in asks]
        answers: list[ClassAnswer] = []
        ready: list[tuple[ClassAsk, PodClass]] = []
        for ask in asks:
            pod_class = self._class(evaluator, ask)
            if isinstance(pod_class, ClassAnswer):
                answers.append(pod_class)
            else:
                ready.append((ask, pod_class))
        try:
            answers += self._evaluate(evaluator, ready)
        except Exception:  # a plugin failed: find out for which class, and answer the others
            answers += [self._evaluate_alone(evaluator, ask, pod_class) for ask, pod_class in ready]
        self._evict(evaluator, keep=len(ready))
        return answers

    def _class(self, evaluator: ShardEvaluator, ask: ClassAsk) -> PodClass | ClassAnswer:
        """The class that is asked about, or at once the answer if no node is to be looked at."""
        pod_class = self._classes.get(ask.class_id)
        if pod_class is None:
            if ask.pod is None:
                return ClassAnswer(ask.class_id, unknown=True)
            try:
                pod_class = evaluator.prepare(ask.class_id, ask.pod)
            except Exception as cause:
                return ClassAnswer(ask.class_id, failure=_failure(cause))
            self._classes[ask.class_id] = pod_class
            self._class_profiles[ask.class_id] = ask.profile
        self._classes.move_to_end(ask.class_id)
        if pod_class.failure is not None:
            return ClassAnswer(ask.class_id, failure=pod_class.failure)
        if pod_class.pre.rejection is not None:
            nodes = Summary(nodes=self.table.node_count)
            by = pod_class.pre.restricted_by
            return ClassAnswer(ask.class_id, pre_filter=pod_class.pre.rejection, summary=nodes, restricted_by=by)
        return pod_class

    def _evaluate(self, evaluator: ShardEvaluator, ready: list[tuple[ClassAsk, PodClass]]) -> list[ClassAnswer]:
        if not ready:
            return []
        classes = [pod_class for _, pod_class in ready]
        summaries, samples = self._rank(evaluator, ready)
        ladders = evaluator.ladders(classes, [ask.count for ask, _ in ready], samples)
        return [
            ClassAnswer(
                ask.class_id,
                summary=summary,
                ladder=self._ladder(evaluator, *ladder, complete=len(ladder[0]) < ask.count),
                rejections=[] if summary.feasible else rejections(evaluator, pod_class),
                restricted_by=pod_class.pre.restricted_by,
            )
            for (ask, _), pod_class, summary, ladder in zip(ready, classes, summaries, ladders, strict=True)
        ]

    def _rank(
        self, evaluator: ShardEvaluator, ready: list[tuple[ClassAsk, PodClass]]
    ) -> tuple[list[Summary], list[Mask | None]]:
        """Evaluates on the guesses, or on what this shard knows where there is none."""
        classes = [pod_class for _, pod_class in ready]
        own = [evaluator.summarize(pod_class) for pod_class in classes]
        for (ask, pod_class), plugins in zip(ready, own, strict=True):
            evaluator.believe(pod_class, plugins if ask.guess is None else ask.guess.plugins)
        evaluator.refresh(classes)
        share = len(self.shards) / self.shard_count
        samples = [sample(evaluator, pod_class, share, self._newest[0]) for pod_class in classes]
        summaries = [
            evaluator.summary(pod_class, plugins, among)
            for pod_class, plugins, among in zip(classes, own, samples, strict=True)
        ]
        ranges: list[dict[str, Range]] = [
            summary.ranges if ask.guess is None else ask.guess.ranges
            for (ask, _), summary in zip(ready, summaries, strict=True)
        ]
        evaluator.rank(classes, ranges)
        return summaries, samples

    def _ladder(self, evaluator: ShardEvaluator, rows: Rows, keys: Keys, *, complete: bool) -> Ladder:
        names, bits = self.table.names, evaluator.tie_bits
        by_name = evaluator.ties.mode == "name"
        return Ladder(
            nodes=[names[row] for row in rows.tolist()],
            scores=(keys >> bits).tolist(),
            ties=[0] * len(rows) if by_name else (keys & ((1 << bits) - 1)).tolist(),
            complete=complete,
        )

    def _evaluate_alone(self, evaluator: ShardEvaluator, ask: ClassAsk, pod_class: PodClass) -> ClassAnswer:
        try:
            return self._evaluate(evaluator, [(ask, pod_class)])[0]
        except Exception as cause:
            return ClassAnswer(ask.class_id, failure=_failure(cause))

    def _evict(self, evaluator: ShardEvaluator, keep: int) -> None:
        most = max(keep, CLASS_MEMORY // evaluator.bytes_per_class())
        while len(self._classes) > most:
            class_id, pod_class = self._classes.popitem(last=False)
            self._evaluators[self._class_profiles.pop(class_id)].release(pod_class)

    def _on_explain(self, event: Explain) -> list[Effect]:
        """Judges every node of the shard for one pod, as of now."""
        evaluator = self._evaluators.get(event.ask.profile)
        if evaluator is None:
            framework = self.frameworks.get(event.ask.profile)
            if framework is None or event.ask.pod is None:
                failure = ClassAnswer(event.ask.class_id, failure=error(f"there is no profile {event.ask.profile!r}"))
                return [Answer(Explained(self.name, event.id, self._seq, failure, Explanation()))]
            evaluator = self._evaluators[event.ask.profile] = ShardEvaluator(self.table, framework, Ties())
        pod_class = self._class(evaluator, event.ask)
        if isinstance(pod_class, ClassAnswer):
            return [Answer(Explained(self.name, event.id, self._seq, pod_class, Explanation()))]
        answer, explanation = self._explain(evaluator, event.ask, pod_class)
        return [Answer(Explained(self.name, event.id, self._seq, answer, explanation))]

    def _explain(
        self, evaluator: ShardEvaluator, ask: ClassAsk, pod_class: PodClass
    ) -> tuple[ClassAnswer, Explanation]:
        try:
            summaries, _ = self._rank(evaluator, [(ask, pod_class)])
            by = pod_class.pre.restricted_by
            return ClassAnswer(ask.class_id, summary=summaries[0], restricted_by=by), explain(evaluator, pod_class)
        except Exception as cause:
            return ClassAnswer(ask.class_id, failure=_failure(cause)), Explanation()


def _kind(table: NodeTable, kinds: dict[int, LoadKind], loads: Sequence[PodLoad], load: int) -> LoadKind:
    if load not in kinds:
        kinds[load] = table.kind(loads[load])
    return kinds[load]


def _failure(cause: Exception) -> Status:
    return error(str(cause) if isinstance(cause, FlotillaError | ValueError) else repr(cause))
