"""The states of a recording: workers that evaluate nodes as of any of them."""

from collections.abc import Mapping, Sequence

from services.worker.message_limits import fitting_answers, fitting_candidates
from services.worker.proposer import Proposer
from services.worker.state_replica import StateReplica
from services.worker.what_if import pods_evicted, pods_placed
from shared.framework.evaluator import Explanation
from shared.framework.profile import Framework
from shared.messages.codec import copy
from shared.messages.evaluation import Ties
from shared.messages.preemption import Candidates, Preempt
from shared.messages.recording import WorkerShards
from shared.messages.rounds import ClassAnswer, ClassAsk, Proposals, Propose
from shared.messages.state import Delta, State
from tools.cluster_image import ClusterImage

MAX_HISTORY = 1 << 16
"""Deltas that can be taken back: decisions arrive a little out of order."""


class History:
    """The state after the newest delta, and the way back from it."""

    def __init__(self, state: State) -> None:
        self.image = ClusterImage(state)
        self.oldest = state.seq
        """The first state that is known."""
        self.time = 0.0
        """The Unix time of the last heartbeat."""
        self._steps: dict[int, tuple[Delta, Delta]] = {}
        """By sequence number: the delta, and what takes it back."""

    @property
    def newest(self) -> int:
        return self.image.seq

    def take(self, delta: Delta) -> None:
        """The next delta."""
        self._steps[delta.seq] = (delta, self.image.apply(delta))
        if len(self._steps) > MAX_HISTORY:
            self.oldest = min(self._steps)
            del self._steps[self.oldest]

    def move(self, replica: StateReplica, seq: int) -> None:
        """Brings the replica to this state."""
        while replica.seq < seq:
            replica.apply(self._steps[replica.seq + 1][0])
        while replica.seq > seq:
            replica.apply(self._steps[replica.seq][1])
        replica.table.objects.devices.time = self.time


class ReplayWorker:
    """Evaluates the nodes of some shards as of any state."""

    def __init__(
        self, name: str, shards: frozenset[int], shard_count: int, frameworks: Mapping[str, Framework], ties: Ties
    ) -> None:
        self.name = name
        self.shards = shards
        self._shard_count = shard_count
        self._frameworks = frameworks
        self._ties = ties
        self._replica: StateReplica | None = None
        self._proposer: Proposer | None = None

    def forget(self) -> None:
        """What was known of the state does not lead to the next one."""
        self._replica = self._proposer = None

    def propose(self, history: History, seq: int, ask: Propose) -> Proposals:
        proposer, replica = self._at(history, seq)
        ask = copy(ask)
        table = replica.table
        with pods_evicted(table, ask.gone, ask.unreserved), pods_placed(table, ask.given, ask.loads):
            proposed = proposer.propose(ask.classes, ask.round, ask.keys, ask.scope)
        answers, shards = fitting_answers(proposed), sorted(self.shards)
        return copy(Proposals(self.name, ask.epoch, ask.round, ask.ask, seq, shards, answers))

    def preempt(self, history: History, seq: int, ask: Preempt) -> Candidates:
        proposer, _ = self._at(history, seq)
        ask = copy(ask)
        findings = fitting_candidates(proposer.search(ask))
        return copy(Candidates(self.name, ask.epoch, ask.search, ask.ask, seq, sorted(self.shards), findings))

    def explain(self, history: History, seq: int, ask: ClassAsk) -> tuple[ClassAnswer, Explanation]:
        return self._at(history, seq)[0].explain(ask)

    def _at(self, history: History, seq: int) -> tuple[Proposer, StateReplica]:
        replica, proposer = self._replica, self._proposer
        if replica is None or proposer is None or not history.oldest <= replica.seq <= history.newest:
            replica = self._replica = StateReplica(self.shards, self._shard_count)
            replica.take_state(copy(history.image.state(self.shards, self._shard_count)), 0.0)
            share = len(self.shards) / self._shard_count
            proposer = self._proposer = Proposer(replica.table, self._frameworks, self._ties, share)
        history.move(replica, seq)
        return proposer, replica


Judges = list[tuple[ReplayWorker, int]]
"""Workers that share all nodes, and the state that each judges on."""


class ReplayWorkers:
    """Those that divided the nodes when it was recorded, or `shards` ones of equal share."""

    def __init__(self, frameworks: Mapping[str, Framework], ties: Ties, shards: int | None) -> None:
        self._frameworks = frameworks
        self._ties = ties
        self._workers: dict[tuple[frozenset[int], int], ReplayWorker] = {}
        self._equal = range(shards or 0)

    def forget(self) -> None:
        for worker in self._workers.values():
            worker.forget()

    @property
    def names(self) -> list[str]:
        return [worker.name for worker in self._workers.values()]

    def judges(self, workers: Sequence[WorkerShards], seqs: Sequence[int]) -> Judges:
        """Nodes that were judged on different states must be divided as they were then."""
        if self._equal and len(set(seqs)) == 1:
            count = len(self._equal)
            return [(self._worker(frozenset({shard}), count), seqs[0]) for shard in self._equal]
        shard_count = sum(len(each.shards) for each in workers)
        return [
            (self._worker(frozenset(each.shards), shard_count), seq) for each, seq in zip(workers, seqs, strict=True)
        ]

    def _worker(self, shards: frozenset[int], shard_count: int) -> ReplayWorker:
        worker = self._workers.get((shards, shard_count))
        if worker is None:
            name = f"worker-{len(self._workers)}"
            worker = ReplayWorker(name, shards, shard_count, self._frameworks, self._ties)
            self._workers[shards, shard_count] = worker
        return worker
