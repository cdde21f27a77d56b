"""Checks workers' answers against what the cycle knows better than any worker.

The cycle assigns the shards, so it knows which worker has each node. The snapshot tells it the newest sequence number
(heartbeats, answers to commits, batches), and no worker can have seen a later one. Feasibility and scores are the
workers' business; the snapshot verifies the decisions made by them against its own state.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from flotilla.results import Topology
from services.cycle.events import WorkerFault, Workers
from services.cycle.round.known_answers import MAX_CLASSES
from shared.cluster.nodetable import shard_of
from shared.messages.explaining import ShardExplained
from shared.messages.preemption import Candidates
from shared.messages.rounds import ClassAnswer, Ladder, Proposals, ScoreGroup
from shared.terms import Heard, Newest

MAX_AHEAD = 1 << 20
"""Changes by which a worker may be ahead of what the cycle has heard of the state."""
MAX_HEARTBEATS = 8
"""Heartbeats of the snapshot without the new term that a worker claims to know; after them it counts as a lie."""
MAX_COUNTED = 1 << 32
"""Nodes that one worker can have counted."""
MAX_SCORE = 1 << 52
"""The sum of the scores of the nodes of a domain, which is compared as it is."""
MAX_NODES = 1 << 18
"""Nodes whose shards are cached."""

BEATS_TO_REFUTE = 2
"""The snapshot's heartbeats below the queue's claim; the first may have been sent before the claim."""

Answer = Proposals | Candidates | ShardExplained


class AnswerChecks:
    def __init__(self) -> None:
        self._known = Newest(0)
        """The newest sequence number that the snapshot named."""
        self.claimed_seq = 0
        """The newest that the queue named, until heartbeats of the snapshot refute it."""
        self._beats_below_claim = 0
        self._shards: Mapping[str, frozenset[int]] = {}
        self._holder: dict[int, str] = {}
        self._shard_count = 1
        self._shard_of_node: dict[str, int] = {}
        self._own_nodes: dict[str, set[str]] = {}
        """By worker, nodes found to be in its shards: nearly all that it names, and compared at once."""
        self._incarnations: Mapping[str, str] = {}
        self._claims: dict[str, int] = {}
        self._committed_claims: dict[str, int] = {}
        self._doubted: dict[str, int] = {}
        self._heartbeats = 0

    # What the cycle knows

    @property
    def known_seq(self) -> int:
        """The newest sequence number that the snapshot named."""
        return self._known.position

    def on_workers(self, workers: Workers) -> None:
        self._shards = workers.shards
        self._holder = {shard: worker for worker, held in workers.shards.items() for shard in held}
        self._own_nodes = {worker: set() for worker in workers.shards}
        if workers.shard_count != self._shard_count:
            self._shard_count, self._shard_of_node = workers.shard_count, {}
        self._incarnations = workers.incarnations
        self._claims.clear()
        self._committed_claims.clear()
        self._doubted.clear()

    def on_claim(self, seq: int) -> None:
        if seq > self.claimed_seq:
            self.claimed_seq, self._beats_below_claim = seq, 0

    def is_refuted_by(self, seq: int, now: float) -> bool:
        """Whether this heartbeat of the snapshot, with earlier ones, disproves the newest number that it named."""
        return self._known.hear(seq, now) is Heard.REFUTED

    def on_heartbeat(self, seq: int) -> bool:
        """Whether it refutes the queue's claim: workers would wait for that sequence number in vain."""
        self._heartbeats += 1
        if seq < self.known_seq:
            return False  # of a snapshot of an earlier term
        self._beats_below_claim += seq < self.claimed_seq
        refuted = seq < self.claimed_seq and self._beats_below_claim >= BEATS_TO_REFUTE
        if refuted:
            self.claimed_seq = seq
        return refuted

    def worker_of(self, node: str) -> str:
        """The worker that holds the node's shard; empty if none does."""
        if len(self._shards) == 1:
            return next(iter(self._shards))
        return self._holder.get(self._shard_of(node), "")

    def _foreign(self, worker: str, nodes: Sequence[str]) -> str | None:
        """The first of these nodes that is not in the worker's shards."""
        held, own = self._shards.get(worker, frozenset()), self._own_nodes.get(worker, set())
        if len(held) == self._shard_count or own.issuperset(nodes):
            return None
        for node in nodes:
            if self._shard_of(node) not in held:
                return node
        own.update(nodes)
        if len(own) > MAX_NODES:
            own.clear()
        return None

    def _shard_of(self, node: str) -> int:
        shard = self._shard_of_node.get(node)
        if shard is None:
            if len(self._shard_of_node) >= MAX_NODES:
                self._shard_of_node.clear()
            shard = self._shard_of_node[node] = shard_of(node, self._shard_count)
        return shard

    # Answers

    def refusal(self, answer: Answer) -> str:
        """Why an answer is ignored without being a fault of its worker; empty if it is not."""
        worker = answer.worker
        if answer.incarnation != self._incarnations.get(worker, answer.incarnation):
            return f"another process answers under the name {worker}"
        if frozenset(answer.shards) != self._shards.get(worker):
            return f"{worker} answers for shards that it does not hold"
        if self._is_ahead(answer):  # of a new term of the snapshot, perhaps
            since = self._doubted.setdefault(worker, self._heartbeats)
            if self._heartbeats < since + MAX_HEARTBEATS:
                return f"{worker} answers by a state of which the snapshot has not told yet"
        return ""

    def proposals(
        self,
        proposals: Proposals,
        least: int,
        classes: Iterable[str],
        keys: Sequence[str] = (),
        labels: int = 0,
        nominated: Callable[[str, str], str] = lambda class_id, uid: "",
    ) -> WorkerFault | None:
        """`least`: the sequence number that was asked for. `classes`, `keys`: what was asked about. `labels`: the
        number of labels by which places are counted. `nominated`: the node of a class's pod with this uid.
        """
        wrong = self._wrong(proposals, least, [answer.class_id for answer in proposals.answers], classes)
        if wrong is not None:
            return wrong
        for answer in proposals.answers:
            ladder = answer.ladder
            if ladder.nodes or ladder.strata:
                malformed = _malformed(ladder, answer.topology, keys)
                if malformed:
                    return WorkerFault(proposals.worker, "answer", f"its ladder has {malformed}")
                foreign = self._foreign(proposals.worker, ladder.nodes)
                if foreign is not None:
                    return _foreign_node(proposals.worker, foreign)
            listed = [node for group in answer.groups for node in group.nodes]
            if answer.groups and _malformed_groups(answer.groups, listed):
                return WorkerFault(proposals.worker, "answer", "groups of nodes that contradict each other")
            foreign = self._foreign(proposals.worker, listed)
            if foreign is not None:
                return _foreign_node(proposals.worker, foreign)
            beside, taken = answer.beside.values(), len(listed) if answer.groups else len(ladder.nodes)
            if len(beside) > MAX_CLASSES or any(len(scores) != taken for scores in beside):
                return WorkerFault(proposals.worker, "answer", "not one score for each placement and class beside it")
            wrong = self._wrong_own_nodes(proposals.worker, answer, keys, nominated)
            if wrong is not None:
                return wrong
            if not _is_plausible(answer.summary.nodes, answer.summary.feasible):
                return WorkerFault(proposals.worker, "answer", "an absurd count of nodes")
            for counted in answer.places:
                if len(counted.values) != labels:
                    return WorkerFault(proposals.worker, "answer", "not one value of each label for counted places")
                if not _is_plausible(counted.places, counted.nodes) or abs(counted.score) > MAX_SCORE:
                    return WorkerFault(proposals.worker, "answer", "an absurd count of places")
        foreign = self._foreign(proposals.worker, list(proposals.values))
        if foreign is not None:
            return _foreign_node(proposals.worker, foreign)
        if any(len(values) != labels for values in proposals.values.values()):
            return WorkerFault(proposals.worker, "answer", "not one value of each label for a node")
        return None

    def _wrong_own_nodes(
        self, worker: str, answer: ClassAnswer, keys: Sequence[str], nominated: Callable[[str, str], str]
    ) -> WorkerFault | None:
        own = answer.own_nodes
        if own is None:
            return None
        malformed = _malformed(own.ladder, answer.topology, keys)
        if malformed:
            return WorkerFault(worker, "answer", f"its ladder for nominated pods has {malformed}")
        if [nominated(answer.class_id, uid) for uid in own.fit] != own.ladder.nodes:
            return WorkerFault(worker, "answer", "other nodes for nominated pods than theirs")
        if not all(nominated(answer.class_id, uid) for uid in (*own.fit, *(each.uid for each in own.unfit))):
            return WorkerFault(worker, "answer", "it answers for nominated pods that it was not asked about")
        foreign = self._foreign(worker, own.ladder.nodes)
        return None if foreign is None else _foreign_node(worker, foreign)

    def candidates(
        self, candidates: Candidates, least: int, classes: Iterable[str], *, of_gang: bool = False
    ) -> WorkerFault | None:
        """As `proposals`. `of_gang`: nodes on which members fit as it is are candidates, too."""
        wrong = self._wrong(candidates, least, [findings.class_id for findings in candidates.findings], classes)
        if wrong is not None:
            return wrong
        for findings in candidates.findings:
            foreign = self._foreign(candidates.worker, [each.node for each in findings.candidates])
            if foreign is not None:
                return _foreign_node(candidates.worker, foreign)
            if not of_gang and not all(each.victims for each in findings.candidates):
                return WorkerFault(candidates.worker, "answer", "a candidate without victims")
            if not _is_plausible(findings.summary.nodes, findings.summary.feasible, findings.potential):
                return WorkerFault(candidates.worker, "answer", "an absurd count of nodes")
        return None

    def _is_ahead(self, answer: Answer) -> bool:
        """False without heartbeats: a snapshot of the previous release sends none."""
        return bool(self._heartbeats) and answer.seq > max(self.known_seq, self.claimed_seq) + MAX_AHEAD

    def _wrong(self, answer: Answer, least: int, told: Sequence[str], classes: Iterable[str]) -> WorkerFault | None:
        worker, seq = answer.worker, answer.seq
        if self._is_ahead(answer):
            reason = f"it claims to have seen sequence number {seq}, and the newest is {self.known_seq}"
            return WorkerFault(worker, "sequence", reason)
        if seq < least:
            return WorkerFault(worker, "sequence", f"it answers at sequence number {seq}, and was asked for {least}")
        if len(told) != len(asked := set(classes)) or asked != set(told):
            return WorkerFault(worker, "answer", "it answers for other classes than it was asked about")
        self._doubted.pop(worker, None)
        self._claims[worker] = max(seq, self._claims.get(worker, 0))
        return None

    # A commit is sent after the answers that it rests on, so no worker can have seen more than the commit's own answer.

    def on_commit_sent(self) -> None:
        self._committed_claims, self._claims = self._claims, {}

    def on_committed(self, seq: int, now: float) -> list[WorkerFault]:
        self._known.hear(seq, now)
        lies = {worker: claim for worker, claim in self._committed_claims.items() if claim > seq}
        self._committed_claims = {}
        return [
            WorkerFault(
                worker, "sequence", f"it claimed to have seen sequence number {claim}, and later {seq} was the newest"
            )
            for worker, claim in sorted(lies.items())
        ]


def _is_plausible(*counts: int) -> bool:
    """Whether the sum over all shards can be sent to workers: they refuse to read a number that is out of range."""
    return all(0 <= count <= MAX_COUNTED for count in counts)


def _foreign_node(worker: str, node: str) -> WorkerFault:
    return WorkerFault(worker, "shard", f"node {node} is not in its shards")


def _malformed_groups(groups: Sequence[ScoreGroup], listed: Sequence[str]) -> bool:
    """Whether a node or a group is there twice, or columns have different lengths."""
    distinct = {(tuple(group.values), group.pods) for group in groups}
    return len(distinct) < len(groups) or len(set(listed)) < len(listed) or any(map(_malformed_group, groups))


def _malformed_group(group: ScoreGroup) -> bool:
    columns = group.scores, group.ties, group.next_scores, group.next_ties
    length = len(group.nodes)
    return not 0 < length <= group.count <= MAX_COUNTED or any(len(column) != length for column in columns)


def _malformed(ladder: Ladder, topology: Topology | None, keys: Sequence[str]) -> str:
    """How a ladder contradicts itself; `keys`: the labels whose values were asked for."""
    length = len(ladder.nodes)
    if len(ladder.scores) != length or len(ladder.ties) != length:
        return "not one score and tie for each node"
    if len(ladder.volumes) not in (0, length) or len(ladder.devices) not in (0, length):
        return "not one decision about volumes and devices for each node"
    bindings = [0 if each is None else len(each.bindings) for each in ladder.volumes]
    if ladder.choices and [len(each) for each in ladder.choices] != bindings:
        return "not one list of free volumes for each claim that gets one"
    if any(len(column) != length for column in ladder.domains.values()):
        return "not one value of each label for each node"
    followed = () if topology is None else topology.keys
    if any(key not in followed or (key in keys and key not in ladder.domains) for key in ladder.strata):
        return "no values of labels that it is split by"
    return ""
