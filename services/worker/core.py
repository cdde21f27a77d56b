"""Worker: filters and scores the nodes of its shards, and proposes the best of them.

It mirrors the snapshot's state. Asked for proposals, it answers as soon as it has seen what the asker has seen. Which
shards it holds is cycle's to say; others than before are loaded whole, and until then nothing is answered.
"""

from collections import deque
from collections.abc import Mapping

from flotilla.results import error
from services.worker.bounds import fewer_candidates, within_a_message
from services.worker.events import Answer, Distrusted, Effect, Event, Reload, Tick, Unnamed
from services.worker.mirror import Mirror
from services.worker.preempting import Inbox
from services.worker.proposer import Proposer
from services.worker.supposing import check_given, supposed
from shared.cluster.nodetable import NodeTable
from shared.errors import FlotillaError, ProtocolError
from shared.framework.profile import Framework
from shared.messages.evaluation import Explanation, Ties
from shared.messages.identity import NameTaken
from shared.messages.preemption import Candidates, Preempt
from shared.messages.rounds import ClassAnswer, Explain, Explained, Proposals, Propose
from shared.messages.state import Delta, Heartbeat, State
from shared.messages.workers import Assign

NOT_YET_PATIENCE = 20.0
"""Seconds until the state is loaded again for something that it did not show, if no heartbeat tells of it before."""


class WorkerCore:
    def __init__(
        self, name: str, shards: frozenset[int], shard_count: int, frameworks: Mapping[str, Framework]
    ) -> None:
        self.name = name
        self.frameworks = frameworks
        self.assignment = (0, 0)
        """The epoch and number of the assignment by which it holds its shards."""
        self.no_shards_because = ""
        """Why the cycle gives it none, if that is for its faults."""
        self.incarnation = ""
        """Of the process; its answers name it."""
        self._mirror = Mirror(shards, shard_count)
        self._proposer: Proposer | None = None
        self._searches = Inbox()
        self._found: Candidates | None = None
        self._cycle_epoch = 0
        self._newest = (0, 0)
        self._waiting: Propose | None = None
        self._not_yet = 0
        """A sequence number that even the whole state did not show: it has not happened yet, and may never."""
        self._look_again_at = 0.0

    def start(self, now: float) -> list[Effect]:
        return [Reload()] if self._mirror.start(now) else []

    def handle(self, event: Event, now: float) -> list[Effect]:
        reload = False
        match event:
            case Delta():
                reload = self._mirror.take_delta(event, now)
            case Heartbeat():
                reload = self._mirror.take_heartbeat(event, now)
            case State():
                reload = self._mirror.take_state(event, now)
                wanted = 0 if self._waiting is None else self._waiting.min_seq
                wanted = max(wanted, self._searches.waits_for or 0)
                if wanted:
                    self._not_yet = max(self._not_yet, wanted)
                    self._look_again_at = now + NOT_YET_PATIENCE
            case Tick():
                reload = self._mirror.take_time(now)
            case Assign() if event.refused:
                return self._take_refusal(event)
            case NameTaken(epoch=epoch, incarnation=incarnation):
                is_told = incarnation == self.incarnation and epoch >= max(self.assignment[0], self._cycle_epoch)
                return [Unnamed(event)] if is_told else []
            case Assign():
                reload = self._take_shards(event, now)
            case Propose():
                self._take_ask(event)
            case Preempt():
                if not self._searches.take(event):
                    what = f"search {event.search}.{event.ask} of epoch {event.epoch}"
                    self.refused.append(ProtocolError(f"{what} is older than another"))
            case Explain():
                return self._explain(event)
        effects: list[Effect] = [Reload()] if reload else []
        return effects + self._answer_waiting(now) + self._answer_search(now)

    def next_deadline(self) -> float | None:
        return self._mirror.patience_ends

    # What others may look at

    @property
    def shards(self) -> frozenset[int]:
        return self._mirror.shards

    @property
    def shard_count(self) -> int:
        return self._mirror.shard_count

    @property
    def table(self) -> NodeTable:
        return self._mirror.table

    @property
    def seq(self) -> int:
        return self._mirror.seq

    @property
    def loaded(self) -> bool:
        """Whether it can answer for all of its shards."""
        return self._mirror.loaded

    @property
    def refused(self) -> deque[FlotillaError]:
        """What was not taken, and why."""
        return self._mirror.refused

    def validate(self) -> None:
        self.table.validate()

    # Inside

    def _take_refusal(self, assign: Assign) -> list[Effect]:
        """Nothing is answered any more; where it is this very process that is not believed, it ends."""
        if assign.epoch < self.assignment[0] or assign.incarnation not in ("", self.incarnation):
            return []
        self.no_shards_because = assign.refused
        if self._mirror.shards:
            self._mirror = self._mirror.with_shards(frozenset(), assign.shard_count)
        return [Distrusted(assign.refused)] if assign.incarnation else []

    def _take_shards(self, assign: Assign, now: float) -> bool:
        if (assign.epoch, assign.number) <= self.assignment:
            return False
        self.assignment, self.no_shards_because = (assign.epoch, assign.number), ""
        shards = frozenset(assign.shards)
        if shards == self._mirror.shards and assign.shard_count == self._mirror.shard_count:
            return False
        self._mirror = self._mirror.with_shards(shards, assign.shard_count)
        return bool(shards) and self._mirror.start(now)

    def _take_ask(self, propose: Propose) -> None:
        newest = (propose.round, propose.ask)
        if propose.epoch < self._cycle_epoch or (propose.epoch == self._cycle_epoch and newest < self._newest):
            what = f"ask {propose.round}.{propose.ask} of epoch {propose.epoch}"
            self.refused.append(ProtocolError(f"{what} is old, now {self._newest} of epoch {self._cycle_epoch}"))
            return
        try:
            check_given(propose)
        except ProtocolError as cause:
            self.refused.append(cause)
            return
        self._cycle_epoch, self._newest = propose.epoch, newest
        self._waiting = propose

    def _answer_waiting(self, now: float) -> list[Effect]:
        propose, mirror = self._waiting, self._mirror
        if propose is None or not self._has_seen(propose.min_seq, now):
            return []
        self._waiting = None
        with supposed(mirror.table, propose.given, propose.loads):
            proposed = self._proposer_for(propose.ties).propose(propose.classes, propose.round, propose.keys)
        answer = Proposals(
            worker=self.name,
            epoch=propose.epoch,
            round=propose.round,
            ask=propose.ask,
            seq=mirror.seq,
            shards=sorted(mirror.shards),
            answers=within_a_message(proposed),
            incarnation=self.incarnation,
        )
        return [Answer(answer)]

    def _has_seen(self, min_seq: int, now: float) -> bool:
        """If not, what is missing is waited for."""
        mirror = self._mirror
        if mirror.loaded and min_seq <= mirror.seq:
            return True
        if not mirror.loaded or min_seq > self._not_yet or now >= self._look_again_at:
            mirror.miss(now)
        return False

    def _answer_search(self, now: float) -> list[Effect]:
        mirror, wanted = self._mirror, self._searches.waits_for
        if wanted is None or not self._has_seen(wanted, now):
            return []
        search = self._searches.ready(mirror.seq)
        if search is None:
            return []
        if self._found is None or not _answers(self._found, search, mirror.shards):
            self._found = self._candidates(search)
        return [Answer(self._found)]

    def _candidates(self, search: Preempt) -> Candidates:
        proposer = self._proposer_for(Ties() if self._proposer is None else self._proposer.ties)
        found = fewer_candidates([proposer.preempt(ask, search.search) for ask in search.classes])
        shards = sorted(self._mirror.shards)
        of = (self.name, search.epoch, search.search, search.ask, self._mirror.seq, shards, found)
        return Candidates(*of, self.incarnation)

    def _explain(self, event: Explain) -> list[Effect]:
        if not self._mirror.loaded:
            answer = ClassAnswer(event.ask.class_id, failure=error(f"{self.name} has not loaded its nodes yet"))
            return [Answer(Explained(self.name, event.id, self.seq, answer, Explanation()))]
        ties = Ties() if self._proposer is None else self._proposer.ties
        answer, explanation = self._proposer_for(ties).explain(event.ask)
        return [Answer(Explained(self.name, event.id, self.seq, answer, explanation))]

    def _proposer_for(self, ties: Ties) -> Proposer:
        """A new one if the table was reloaded, or ties are broken otherwise than before."""
        proposer, mirror = self._proposer, self._mirror
        if proposer is None or proposer.table is not mirror.table or proposer.ties != ties:
            share = len(mirror.shards) / mirror.shard_count
            proposer = self._proposer = Proposer(mirror.table, self.frameworks, ties, share)
        return proposer


def _answers(found: Candidates, search: Preempt, shards: frozenset[int]) -> bool:
    """Whether this was found for the same ask: a search may take longer than its asker waits before asking again."""
    same = (found.epoch, found.search, found.ask) == (search.epoch, search.search, search.ask)
    return same and found.seq >= search.min_seq and found.shards == sorted(shards)
