"""Whether a worker's answer can be right: what the cycle knows better than any worker.

It gives out the shards, so it knows whose each node is. The snapshot tells it how far the state is (heartbeats, answers
to commits, batches); no worker has seen more. Scores, and who fits, are the workers' business; what is decided by them
the snapshot verifies against its own state.
"""

from collections.abc import Iterable, Mapping, Sequence

from flotilla.results import Topology
from services.cycle.events import WorkerFault, Workers
from shared.cluster.shards import shard_of
from shared.messages.preemption import Candidates
from shared.messages.rounds import ClassAnswer, Ladder, Proposals

MOST_AHEAD = 1 << 20
"""Changes of the state, at most, that a worker may have seen before the cycle has heard how far it is."""
HEARTBEATS = 8
"""Of the snapshot, without a word of a new term that a worker claims to know: then it is a lie."""
MOST_NODES = 1 << 18
"""Nodes whose shards are remembered."""

Answer = Proposals | Candidates


class Holders:
    """Which worker answers for which node."""

    def __init__(self) -> None:
        self._workers: Mapping[str, frozenset[int]] = {}
        self._holder: dict[int, str] = {}
        self._count = 1
        self._shard: dict[str, int] = {}
        self._own: dict[str, set[str]] = {}
        """Nodes that were found to be in a worker's shards: nearly all of what it names, and compared at once."""

    def set(self, workers: Workers) -> None:
        self._workers = workers.shards
        self._holder = {shard: worker for worker, held in workers.shards.items() for shard in held}
        self._own = {worker: set() for worker in workers.shards}
        if workers.shard_count != self._count:
            self._count, self._shard = workers.shard_count, {}

    def of(self, node: str) -> str:
        """Who answers for a node; nobody for any while no worker holds its shard."""
        if len(self._workers) == 1:
            return next(iter(self._workers))
        return self._holder.get(self._shard_of(node), "")

    def shards_of(self, worker: str) -> frozenset[int] | None:
        return self._workers.get(worker)

    def foreign(self, worker: str, nodes: Sequence[str]) -> str | None:
        """The first of these nodes that is not in the worker's shards."""
        held, own = self._workers.get(worker, frozenset()), self._own.get(worker, set())
        if len(held) == self._count or own.issuperset(nodes):
            return None
        for node in nodes:
            if self._shard_of(node) not in held:
                return node
        own.update(nodes)
        if len(own) > MOST_NODES:
            own.clear()
        return None

    def _shard_of(self, node: str) -> int:
        shard = self._shard.get(node)
        if shard is None:
            if len(self._shard) >= MOST_NODES:
                self._shard.clear()
            shard = self._shard[node] = shard_of(node, self._count)
        return shard


class Verifying:
    """`known`: the newest number of the state that anybody but a worker has told of."""

    def __init__(self) -> None:
        self.holders = Holders()
        self.known = 0
        self._incarnations: Mapping[str, str] = {}
        self._claims: dict[str, int] = {}
        self._committed_on: dict[str, int] = {}
        self._doubted: dict[str, int] = {}
        self._heartbeats = 0

    def on_workers(self, workers: Workers) -> None:
        self.holders.set(workers)
        self._incarnations = workers.incarnations
        self._claims.clear()
        self._committed_on.clear()
        self._doubted.clear()

    def hear(self, seq: int) -> None:
        """The snapshot, or the queue, says how far the state is."""
        self.known = max(self.known, seq)

    def on_heartbeat(self, seq: int) -> None:
        self._heartbeats += 1
        self.hear(seq)

    def refusal(self, answer: Answer) -> str:
        """Why an answer is passed over, which need not be its worker's fault; empty if it is not."""
        worker = answer.worker
        if answer.incarnation != self._incarnations.get(worker, answer.incarnation):
            return f"another process answers in the name of {worker}"
        if frozenset(answer.shards) != self.holders.shards_of(worker):
            return f"{worker} answers for shards that it does not hold"
        return f"{worker} answers by a state that nobody has told of" if self._is_doubtful(answer) else ""

    def proposals(
        self, proposals: Proposals, least: int, classes: Iterable[str], keys: Sequence[str] = ()
    ) -> WorkerFault | None:
        """`least`: the number of the state that was asked for. `classes`, `keys`: what was asked about."""
        told = [answer.class_id for answer in proposals.answers]
        wrong = self._wrong(proposals, least, told, classes)
        if wrong is not None:
            return wrong
        for answer in proposals.answers:
            ladder = answer.ladder
            if ladder.nodes:
                malformed = _malformed(ladder, answer.topology, keys)
                if malformed:
                    return WorkerFault(proposals.worker, "answer", f"its ladder has {malformed}")
                foreign = self.holders.foreign(proposals.worker, ladder.nodes)
                if foreign is not None:
                    return _not_its(proposals.worker, foreign)
            if not _counts(answer):
                return WorkerFault(proposals.worker, "answer", "negative node count")
        return None

    def candidates(self, candidates: Candidates, least: int, classes: Iterable[str]) -> WorkerFault | None:
        """As proposals."""
        told = [findings.class_id for findings in candidates.findings]
        wrong = self._wrong(candidates, least, told, classes)
        if wrong is not None:
            return wrong
        for findings in candidates.findings:
            foreign = self.holders.foreign(candidates.worker, [each.node for each in findings.candidates])
            if foreign is not None:
                return _not_its(candidates.worker, foreign)
            if not all(each.victims for each in findings.candidates):
                return WorkerFault(candidates.worker, "answer", "it names a candidate without victims")
        return None

    def _is_doubtful(self, answer: Answer) -> bool:
        """Whether its state is of a term that the snapshot has not told of: for a while it may just be early."""
        if not self._is_ahead(answer):
            return False
        since = self._doubted.setdefault(answer.worker, self._heartbeats)
        return self._heartbeats < since + HEARTBEATS

    def _is_ahead(self, answer: Answer) -> bool:
        """A snapshot of the release before sends no heartbeats: then nobody knows."""
        return bool(self._heartbeats) and answer.seq > self.known + MOST_AHEAD

    def _wrong(self, answer: Answer, least: int, told: Sequence[str], classes: Iterable[str]) -> WorkerFault | None:
        worker, seq = answer.worker, answer.seq
        if self._is_ahead(answer):
            return WorkerFault(worker, "sequence", f"it claims to have seen state {seq}, and {self.known} is known")
        if seq < least:
            return WorkerFault(worker, "sequence", f"it answers by state {seq}, and was asked for {least}")
        if len(told) != len(asked := set(classes)) or asked != set(told):
            return WorkerFault(worker, "answer", "it answers for other classes than it was asked about")
        self._doubted.pop(worker, None)
        self._claims[worker] = max(seq, self._claims.get(worker, 0))
        return None

    # A commit is sent after what it rests on was seen: so its answer tells whether that can have been.

    def commit_sent(self) -> None:
        self._committed_on, self._claims = self._claims, {}

    def committed(self, seq: int) -> list[WorkerFault]:
        self.hear(seq)
        lies = {worker: claim for worker, claim in self._committed_on.items() if claim > seq}
        self._committed_on = {}
        return [
            WorkerFault(worker, "sequence", f"it claimed to have seen state {claim}, and later the newest was {seq}")
            for worker, claim in sorted(lies.items())
        ]


def _not_its(worker: str, node: str) -> WorkerFault:
    return WorkerFault(worker, "shard", f"node {node} is not in its shards")


def _malformed(ladder: Ladder, topology: Topology | None, keys: Sequence[str]) -> str:
    """What of a ladder does not go together; `keys`: the labels whose values were asked for."""
    rungs = len(ladder.nodes)
    if len(ladder.scores) != rungs or len(ladder.ties) != rungs or len(ladder.volumes) not in (0, rungs):
        return "not one score, tie and decision on volumes for each node"
    if any(len(column) != rungs for column in ladder.domains.values()):
        return "not one value of each label for each node"
    followed = () if topology is None else topology.keys
    if any(key not in followed or (key in keys and key not in ladder.domains) for key in ladder.strata):
        return "no values of labels that it goes by"
    return ""


def _counts(answer: ClassAnswer) -> bool:
    return answer.summary.nodes >= 0 and answer.summary.feasible >= 0
