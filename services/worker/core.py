"""The worker's core: filters and scores the nodes of its shards, and proposes the best of them.

It keeps a replica of the snapshot's state, and answers as soon as the replica includes what the cycle has seen. The
cycle assigns its shards; when they change, their state is loaded whole, and nothing is answered until then.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flotilla.results import error
from services.worker.events import Answer, Effect, End, Event, Loaded, Reload, Tick
from services.worker.explaining import explain
from services.worker.gang_preempting import GangLadders
from services.worker.label_readers import LabelReaders
from services.worker.message_limits import fitting_answers, fitting_candidates
from services.worker.places import values_of
from services.worker.proposer import Proposer
from services.worker.state_replica import StateReplica
from services.worker.supposed_pods import SupposedPods
from services.worker.table_builder import TableBuilder
from shared.cluster.nodetable import NodeTable
from shared.deadlines import earliest
from shared.errors import FlotillaError, ProtocolError
from shared.framework.evaluator import Explanation
from shared.framework.failures import Failures
from shared.framework.metering import PluginMeter
from shared.framework.profile import Framework
from shared.messages.evaluation import Ties
from shared.messages.explaining import ExplainNodes, ShardExplained
from shared.messages.identity import NameTaken
from shared.messages.preemption import Candidates, Preempt, ShardFindings
from shared.messages.rounds import ClassAnswer, ClassAsk, Proposals, Propose, Scope
from shared.messages.state import Delta, Heartbeat, State
from shared.messages.workers import Assign
from shared.terms import Heard, Newest, Position

NOT_YET_PATIENCE = 20.0
"""Seconds until the state is loaded again for a sequence number that it lacked, unless a heartbeat names it before."""


class GangSearchUnderWay(NamedTuple):
    """The ask with this position, by the proposer of the table on which it began. `seq`: the state at its beginning."""

    position: tuple[int, int, int]
    proposer: Proposer
    seq: int
    ladders: GangLadders


class WorkerCore:
    def __init__(
        self,
        name: str,
        shards: frozenset[int],
        shard_count: int,
        frameworks: Mapping[str, Framework],
        stopwatch: Callable[[], float] | None = None,
        first_evaluations: int | None = None,
        judged_at_once: int | None = None,
    ) -> None:
        """`stopwatch`: times plugins, in seconds.

        `first_evaluations`: how many of new classes on nodes are made at once; the next ones follow at the next
        deadline, which is now. `judged_at_once`: likewise, of pods on nodes in a search for a gang. None: all.
        """
        self.name = name
        self.frameworks = frameworks
        self.meters = {profile: PluginMeter(stopwatch) for profile in frameworks}
        self.failures = Failures()
        self._assigned = Newest((0, 0))
        """The cycle's term, and the number of the assignment by which it holds its shards."""
        self.no_shards_because = ""
        """Why the cycle assigns it no shards, if that is for its faults."""
        self.incarnation = ""
        """Of the process; its answers name it."""
        self._replica = StateReplica(shards, shard_count)
        self._label_readers = LabelReaders()
        self._individual_labels: list[str] = []
        """As the table was before pods were supposed."""
        self._supposed = SupposedPods()
        self._proposer: Proposer | None = None
        self._asked = Newest((0, 0, 0))
        """The cycle's term, and the numbers of the round and the ask."""
        self._ask: Propose | None = None
        """The newest ask, until it is answered."""
        self._most_first = first_evaluations
        self._first: set[str] = set()
        """Classes that were evaluated for the newest ask already."""
        self._resumes_at: float | None = None
        """When the evaluation of new classes goes on."""
        self._searched = Newest((0, 0, 0))
        self._search: Preempt | None = None
        """The newest search, until it is answered."""
        self._explained = Newest((0, 0, 0))
        self._question: ExplainNodes | None = None
        """The newest question for an explanation, until it is answered."""
        self.judged_at_once = judged_at_once
        self._under_way: GangSearchUnderWay | None = None
        """The newest search, if it is for a gang and has begun."""
        self._found: Candidates | None = None
        """The answer to the last search, in case the cycle asks for it again."""
        self._not_yet = 0
        """A sequence number that even the whole state did not include: it is still to come, and may never."""
        self._reload_after = 0.0

    def start(self, now: float) -> list[Effect]:
        self._replica.request(now)
        return [Reload()]

    def handle(self, event: Event, now: float) -> list[Effect]:
        reload = False
        if not isinstance(event, Propose | Heartbeat | Tick):  # these do not change the table
            self._supposed.clear()
        match event:
            case Delta():
                reload = self._replica.take_delta(event, now)
            case Heartbeat():
                reload = self._replica.take_heartbeat(event, now)
            case State() | Loaded():
                state, table = (event.state, event.table) if isinstance(event, Loaded) else (event, None)
                reload = self._replica.take_state(state, now, table)
                wanted = max(
                    each.min_seq if each is not None else 0 for each in (self._ask, self._search, self._question)
                )
                if wanted:
                    self._not_yet = max(self._not_yet, wanted)
                    self._reload_after = now + NOT_YET_PATIENCE
            case Tick():
                reload = self._replica.take_time(now)
            case Assign() if event.refused:
                return self._on_refusal(event, now)
            case NameTaken(epoch=epoch, incarnation=incarnation):
                newest = max(self._assigned.position[0], self._asked.position[0])
                return [End(event)] if incarnation == self.incarnation and epoch >= newest else []
            case Assign():
                reload = self._on_assignment(event, now)
            case Propose():
                self._on_ask(event, now)
            case Preempt():
                self._on_search(event, now)
            case ExplainNodes():
                if not self._is_old(self._explained, (event.epoch, event.number, event.ask), now, "question"):
                    self._question = event
        effects: list[Effect] = [Reload()] if reload else []
        effects += self._answer_ask(now)
        if self._under_way is None or isinstance(event, Tick):
            effects += self._answer_search(now)
        else:
            self._resumes_at = now  # nobody waits for a step of a search that has come with something else
        return effects + self._answer_question(now)

    def next_deadline(self) -> float | None:
        return earliest(self._resumes_at, self._replica.next_deadline())

    @property
    def assignment(self) -> tuple[int, int]:
        """The cycle's term, and the number of the assignment by which it holds its shards."""
        return self._assigned.position

    @property
    def shards(self) -> frozenset[int]:
        return self._replica.shards

    @property
    def shard_count(self) -> int:
        return self._replica.shard_count

    @property
    def node_count(self) -> int:
        return self._replica.table.node_count

    @property
    def table(self) -> NodeTable:
        """As the state says: what a gang's round supposes is taken back."""
        self._supposed.clear()
        return self._replica.table

    @property
    def seq(self) -> int:
        return self._replica.seq

    @property
    def loaded(self) -> bool:
        """Whether it can answer for all of its shards."""
        return self._replica.loaded

    @property
    def awaits_state(self) -> bool:
        """Whether a Reload has not led to a state that it could use."""
        return self._replica.awaits_state

    @property
    def refused(self) -> deque[FlotillaError]:
        """Why messages were refused."""
        return self._replica.refused

    @property
    def ties(self) -> Ties | None:
        """How the cycle breaks ties; None before its first ask."""
        return None if self._proposer is None else self._proposer.ties

    def builder(self, state: State) -> TableBuilder:
        """Builds the table of a requested state, for a Loaded event."""
        return self._replica.builder(state)

    def explain(self, ask: ClassAsk) -> tuple[ClassAnswer, Explanation]:
        """Explains the result of every node for the ask's pod, at present."""
        self._supposed.clear()
        if not self._replica.loaded:
            failure = error(f"{self.name} has not loaded its nodes yet")
            return ClassAnswer(ask.class_id, failure=failure), Explanation()
        return self._proposer_for(self.ties or Ties()).explain(ask)

    def validate(self) -> None:
        self._replica.table.validate()

    # Inside

    def _on_refusal(self, assign: Assign, now: float) -> list[Effect]:
        """Gives up all shards. The process ends if the cycle distrusts this incarnation."""
        if assign.incarnation not in ("", self.incarnation):
            return []
        if assign.epoch < self.assignment[0] and self._is_old(self._assigned, (assign.epoch, assign.number), now):
            return []
        self.no_shards_because = assign.refused
        if self._replica.shards:
            self._replica = self._replica.with_shards(frozenset(), assign.shard_count)
        return [End(assign.refused)] if assign.incarnation else []

    def _on_assignment(self, assign: Assign, now: float) -> bool:
        before = self.assignment
        if self._is_old(self._assigned, (assign.epoch, assign.number), now) or self.assignment == before:
            return False
        self.no_shards_because = ""
        shards = frozenset(assign.shards)
        if shards == self._replica.shards and assign.shard_count == self._replica.shard_count:
            return False
        self._replica = self._replica.with_shards(shards, assign.shard_count)
        return bool(shards) and self._replica.request(now)

    def _on_ask(self, propose: Propose, now: float) -> None:
        if not self._is_old(self._asked, (propose.epoch, propose.round, propose.ask), now, "ask"):
            self._ask = propose

    def _on_search(self, preempt: Preempt, now: float) -> None:
        if not self._is_old(self._searched, (preempt.epoch, preempt.search, preempt.ask), now, "search"):
            self._search = preempt

    def _is_old(self, newest: Newest[Position], position: Position, now: float, what: str = "") -> bool:
        """`what`: an older one is reported."""
        before = newest.position
        heard = newest.hear(position, now)
        if what and heard is Heard.OLD:
            self.refused.append(ProtocolError(f"{what} {position} is old, now {before}"))
        return heard is Heard.OLD

    def _answer_ask(self, now: float) -> list[Effect]:
        propose, replica = self._ask, self._replica
        self._resumes_at = None
        if propose is None or not self._has_seen(propose.min_seq, now):
            return []
        proposer = self._proposer_for(propose.ties)
        first = self._first_evaluations(proposer, propose.classes)
        if not self._supposed:
            self._individual_labels = self._label_readers.read(replica.table)
        with self._supposed.on(replica.table, propose):
            proposed = proposer.propose(
                first or propose.classes, propose.round, propose.keys, propose.scope, propose.beside
            )
        if first:
            self._resumes_at = now
            return []
        self._ask = None
        self._first.clear()
        answer = Proposals(
            worker=self.name,
            epoch=propose.epoch,
            round=propose.round,
            ask=propose.ask,
            seq=replica.seq,
            shards=sorted(replica.shards),
            answers=fitting_answers(proposed),
            incarnation=self.incarnation,
            values=_values(replica.table, propose.scope),
            individual_labels=self._individual_labels,
        )
        return [Answer(answer)]

    def _first_evaluations(self, proposer: Proposer, asks: list[ClassAsk]) -> list[ClassAsk]:
        """The new classes that are evaluated now, before the others; empty if the ask can be answered at once.

        The answers of these are thrown away: what was evaluated for them is not.
        """
        if self._most_first is None or len(asks) * self._replica.table.size <= self._most_first:
            return []
        at_once = max(1, self._most_first // self._replica.table.size)
        new = [ask for ask in asks if ask.class_id not in self._first and proposer.is_new(ask.class_id)]
        if len(new) <= at_once:
            return []
        self._first.update(ask.class_id for ask in new[:at_once])
        return new[:at_once]

    def _has_seen(self, min_seq: int, now: float) -> bool:
        """If not, the replica waits for what is missing."""
        replica = self._replica
        if replica.loaded and min_seq <= replica.seq:
            return True
        if not replica.loaded or min_seq > self._not_yet or now >= self._reload_after:
            replica.await_missing(now)
        return False

    def _answer_search(self, now: float) -> list[Effect]:
        search = self._search
        if search is None or not self._has_seen(search.min_seq, now):
            return []
        self._supposed.clear()
        if self._found is None or not _answers(self._found, search, self._replica.shards):
            found, seq = self._go_on(search)
            if found is None:
                self._resumes_at = now
                return []
            self._found = Candidates(
                worker=self.name,
                epoch=search.epoch,
                search=search.search,
                ask=search.ask,
                seq=seq,
                shards=sorted(self._replica.shards),
                findings=fitting_candidates(found),
                incarnation=self.incarnation,
            )
        self._search = self._under_way = None
        return [Answer(self._found)]

    def _go_on(self, search: Preempt) -> tuple[list[ShardFindings] | None, int]:
        """What was found, and on which state; None while the search goes on."""
        proposer, under_way = self._proposer_for(self.ties or Ties()), self._under_way
        if search.gang is None or len(search.classes) != 1:  # no cycle asks for a gang about none, or several
            return proposer.search(search), self._replica.seq
        if under_way is None or under_way.proposer is not proposer or under_way.position != _position(search):
            ladders = GangLadders(search.classes[0], search.gang, self.judged_at_once)
            under_way = GangSearchUnderWay(_position(search), proposer, self._replica.seq, ladders)
        self._under_way = under_way
        found = proposer.search_on(under_way.ladders)
        return None if found is None else [found], under_way.seq

    def _answer_question(self, now: float) -> list[Effect]:
        question, replica = self._question, self._replica
        if question is None or not self._has_seen(question.min_seq, now):
            return []
        self._supposed.clear()
        self._question = None
        proposer = self._proposer_for(Ties() if self._proposer is None else self._proposer.ties)
        found, summary, by_itself = explain(
            replica.table, proposer.evaluator(question.profile), question, self.failures
        )
        answer = ShardExplained(
            worker=self.name,
            epoch=question.epoch,
            number=question.number,
            ask=question.ask,
            seq=replica.seq,
            shards=sorted(replica.shards),
            findings=found,
            summary=summary,
            by_itself=by_itself,
            incarnation=self.incarnation,
        )
        return [Answer(answer)]

    def _proposer_for(self, ties: Ties) -> Proposer:
        """A new one if the table was reloaded, or the cycle breaks ties in another way."""
        proposer, replica = self._proposer, self._replica
        if proposer is None or proposer.table is not replica.table or proposer.ties != ties:
            self._first.clear()
            share = len(replica.shards) / replica.shard_count
            proposer = self._proposer = Proposer(
                replica.table, self.frameworks, ties, share, self.meters, self.failures
            )
        return proposer


def _position(search: Preempt) -> tuple[int, int, int]:
    return search.epoch, search.search, search.ask


def _values(table: NodeTable, scope: Scope | None) -> dict[str, list[str | None]]:
    return {} if scope is None or scope.count_by is None else values_of(table, scope.count_by, scope.values_of)


def _answers(found: Candidates, search: Preempt, shards: frozenset[int]) -> bool:
    """Whether this answers the same ask: a search may take longer than the cycle waits before it asks again."""
    same = (found.epoch, found.search, found.ask) == (search.epoch, search.search, search.ask)
    return same and found.seq >= search.min_seq and found.shards == sorted(shards)
