"""A new leader takes up what the one before it has left; a state that was lost is stated again."""

import asyncio
import logging
from collections.abc import Sequence
from typing import cast

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.event_handlers import MAX_CHANGES
from services.snapshot.events import (
    Effect,
    Fence,
    NodeGone,
    NodeSeen,
    PodDeleted,
    PodSeen,
    RecallAttempts,
    Reply,
    Tick,
    WatchEvents,
)
from services.snapshot.state.ledger import BINDING_WINDOW, FENCE_GRACE
from services.snapshot.store.effect_writer import EffectWriter
from services.snapshot.store.terms import Terms, ledger_is_lost
from shared.errors import InvariantBroken
from shared.messages.codec import encode
from shared.messages.queue import ForgottenPod
from shared.messages.state import (
    EPOCH_SHIFT,
    Assignment,
    Committed,
    Delta,
    LedgerEntry,
    NodeUpserted,
    OthersChanged,
    PodGone,
    PodPlaced,
)
from shared.model.load import load_of
from shared.runtime import Health
from shared.runtime.leadership import Leadership
from shared.store.errors import StateLost, StoreUnreachable
from shared.store.link import RedisLink
from shared.store.schema import Persist
from shared.store.term import Recovered
from shared.store.writer import Writer
from testing.builders import node, pod
from testing.inprocess.pipeline import bound
from tests.rounds.support import (
    SnapshotLog,
    commit,
    failed,
    finished,
    held,
    kinds,
    refusals,
    replayed,
    small_node,
    small_pod,
)

A, B = small_node("a"), small_node("b")
DUE = BINDING_WINDOW + FENCE_GRACE
P, Q, R = small_pod("p"), small_pod("q", cpu="2"), small_pod("r")


def left_behind() -> SnapshotLog:
    """p and q are assumed on a and b; q is bound, and the watch has not shown it."""
    log = SnapshotLog(A, B, epoch=1)
    log.handle(commit(1, (P, "a", log.core.seq), (Q, "b", log.core.seq)))
    log.handle(finished(Q.uid, log.attempt(Q)))
    return log


def successor(of: SnapshotLog, *seen: object, now: float = 1.0) -> tuple[SnapshotCore, list[Effect]]:
    core = SnapshotCore(2, of.core.ledger.values(), of.core.answer)
    core.validate()
    core.handle(WatchEvents([NodeSeen(A), NodeSeen(B), *seen]), now)  # type: ignore[list-item]
    core.validate()
    effects = core.begin(now)
    core.validate()
    return core, effects


def orders(core: SnapshotCore, effects: list[Effect]) -> list[tuple[str, str, int]]:
    given = [core.order(attempt, 1.0) for e in effects if isinstance(e, RecallAttempts) for attempt in e.attempts]
    return [(o.assignment.name, o.node, o.epoch) for o in given if o is not None]


def test_assumed_pods_stay_assumed_in_a_new_term() -> None:
    core, effects = successor(left_behind())
    assert orders(core, effects) == [("p", "a", 2)]
    assert {u: entry.bound for u, entry in core.ledger.items()} == {P.uid: False, Q.uid: True}
    assert {u: where for u, (where, _) in held(core.state())[1].items()} == {P.uid: "a", Q.uid: "b"}


def test_pods_that_the_listing_shows_bound_leave_the_ledger() -> None:
    core, effects = successor(left_behind(), PodSeen(bound(P, "a")), PodSeen(bound(Q, "b")))
    assert effects == [RecallAttempts(())]
    assert core.ledger == {}


def test_a_pod_that_is_gone_meanwhile_is_looked_up_in_time() -> None:
    core, _ = successor(left_behind())
    assert [effect.uid for effect in core.handle(Tick(), 1.0 + DUE) if isinstance(effect, Fence)] == [
        P.uid,
        Q.uid,
    ]


def test_a_new_term_gives_every_entry_a_whole_window() -> None:
    """What the clock of the leader before said is of no interest here."""
    core, effects = successor(left_behind(), now=5000.0)
    assert [attempt[0] for e in effects if isinstance(e, RecallAttempts) for attempt in e.attempts] == [P.uid]
    ((attempt,),) = [e.attempts for e in effects if isinstance(e, RecallAttempts)]
    order = core.order(attempt, 5000.0)
    assert order is not None and order.window == BINDING_WINDOW
    assert core.next_deadline() == 5000.0 + DUE


def test_a_failure_may_be_reported_before_the_term_has_begun() -> None:
    """Seed 1000926 of the simulation: the report ended the new term."""
    old = left_behind()
    core = SnapshotCore(2)
    core.handle(WatchEvents([NodeSeen(A), NodeSeen(B)]), 1.0)
    core.assume_again(list(old.core.ledger.values()))
    (fence,) = core.handle(failed(P.uid, old.attempt(P), "it broke", sure=False, sole=True), 1.0)
    assert isinstance(fence, Fence) and fence.uid == P.uid
    core.validate()
    assert P.uid not in [uid for uid, *_ in orders(core, core.begin(2.0))]
    core.validate()


def test_an_assumption_on_a_node_that_is_gone_is_left_to_its_binding() -> None:
    """The call may be out, and the node come back: only what became of it tells whether the place is free."""
    core, effects = successor(left_behind(), NodeGone("a"))
    assert orders(core, effects) == [("p", "a", 2)]
    assert P.uid in core.ledger


def test_an_unfenced_pod_keeps_the_place_that_a_doubtful_ledger_names() -> None:
    """Unless the listing shows where it is."""
    doubtful = list(left_behind().core.ledger.values())
    core = SnapshotCore(2)
    core.handle(WatchEvents([NodeSeen(A), NodeSeen(B), PodSeen(bound(Q, "a"))]), 1.0)
    core.assume_again(doubtful)
    core.validate()
    assert orders(core, core.begin(1.0)) == [("p", "a", 2)]
    core.validate()
    assert {u: where for u, (where, _) in held(core.state())[1].items()} == {P.uid: "a", Q.uid: "a"}


def test_a_commit_that_the_old_leader_took_is_not_taken_twice() -> None:
    old = left_behind()
    core, _ = successor(old)
    again = commit(1, (P, "a", old.core.seq), (Q, "b", old.core.seq))
    (answer,) = core.handle(again, 2.0)
    begin = 2 << EPOCH_SHIFT
    assert answer == Reply(Committed(1, 1, begin, [], others=begin, relabelled=begin)), "as of the new leader's state"
    assert refusals(core.handle(commit(2, (P, "b", core.seq)), 2.0)) == {P.uid: ("the pod is on node a already", True)}


def test_a_state_that_was_lost_goes_on_in_a_later_term() -> None:
    log = left_behind()
    before = held(log.core.state())
    seen = log.core.seq
    log.core.restate(7)
    log.core.validate()
    assert held(log.core.state()) == before
    assert log.core.state().epoch == 7
    assert log.core.seq > seen
    assert orders(log.core, log.core.begin(1.0)) == [("p", "a", 7)]
    (published,) = [e for e in log.core.handle(PodDeleted(P.uid), 1.0) if isinstance(e, Delta)]
    assert (published.epoch, published.seq) == (7, log.core.seq)


def test_events_of_the_watch_at_once_make_one_delta() -> None:
    log = SnapshotLog(epoch=1)
    effects = log.handle(WatchEvents([NodeSeen(A), PodSeen(bound(P, "a")), NodeSeen(B), PodSeen(bound(Q, "b"))]))
    assert kinds(effects) == ["Persist", "Delta"]
    (delta,) = log.deltas
    assert [type(change) for change in delta.changes] == [NodeUpserted, PodPlaced, NodeUpserted, PodPlaced]
    assert replayed(log.deltas) == held(log.core.state())
    assert log.handle(WatchEvents([PodSeen(bound(P, "a")), NodeSeen(A)])) == []


def test_one_delta_settles_all_that_was_seen_bound() -> None:
    log = left_behind()
    effects = log.handle(WatchEvents([PodSeen(bound(P, "a")), PodSeen(bound(Q, "b")), PodDeleted(Q.uid)]))
    told, persist, publish = effects
    assert told == OthersChanged(log.core.epoch, log.core.seq)
    assert isinstance(persist, Persist) and persist.settled == (P.uid, Q.uid)
    assert isinstance(publish, Delta)
    assert publish.changes == [PodGone(Q.uid)]


def test_nodes_that_a_delta_changes_invalidate_earlier_evaluations() -> None:
    log = SnapshotLog(A, B, epoch=1)
    seen = log.core.seq
    log.handle(WatchEvents([PodSeen(bound(P, "a"))]))
    assert refusals(log.handle(commit(1, (R, "a", seen)))) == {
        R.uid: ("node a has changed since the evaluation", False)
    }


def test_a_node_that_is_shown_again_unchanged_does_not_invalidate_earlier_evaluations() -> None:
    log = SnapshotLog(A, B, epoch=1)
    seen = log.core.seq
    log.handle(WatchEvents([NodeSeen(A), PodSeen(bound(P, "b"))]))
    assert refusals(log.handle(commit(1, (R, "a", seen)))) == {}


def test_the_pod_comes_along_where_binding_needs_it() -> None:
    entry = LedgerEntry(
        Assignment(P.uid, "default", "p", "default-scheduler", "a", pod=P), 5, load_of(P), 1, 1, 30.0, 30.0
    )
    core = SnapshotCore(2, [entry])
    core.handle(NodeSeen(A), 0.0)
    (resume,) = core.begin(0.0)
    assert isinstance(resume, RecallAttempts)
    order = core.order(resume.attempts[0], 1.0)
    assert order is not None and order.assignment.pod == P


def test_very_much_that_the_watch_says_at_once_makes_several_deltas() -> None:
    """Nodes that come with thousands of pods each, which were there before them."""
    core = SnapshotCore(1)
    names = [f"n{i}" for i in range(4)]
    pods = [pod(f"{name}-{i}").request(cpu="1m").build() for name in names for i in range(MAX_CHANGES // 2)]
    core.handle(WatchEvents([PodSeen(bound(made, made.name.partition("-")[0])) for made in pods]), 0.0)
    effects = core.handle(WatchEvents([NodeSeen(node(name).build()) for name in names]), 0.0)
    assert kinds(effects) == ["Persist", "Delta"] * 2
    deltas = [e for e in effects if isinstance(e, Delta)]
    assert [len(delta.changes) for delta in deltas] == [MAX_CHANGES + 2] * 2
    assert all(len(encode(delta)) < 4 << 20 for delta in deltas)
    assert replayed(deltas) == held(core.state())


@pytest.mark.parametrize(
    ("stored", "lost", "before", "expected"),
    [
        (0, True, 0, False),  # the first term of all
        (6, False, 6, False),  # the store was written to in the last term
        (5, False, 6, True),  # term 6 wrote to another store: this ledger is that of an earlier term
        (6, True, 6, True),
        (0, True, 6, True),
        (6, False, 0, False),  # the Lease was deleted, and the store knows better
    ],
)
def test_a_store_that_missed_a_term_counts_as_lost(stored: int, lost: bool, before: int, expected: bool) -> None:
    assert ledger_is_lost(Recovered(stored, [], None, lost), before) is expected


def test_a_store_that_stays_away_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = 0

    async def refuses(*_: object) -> Writer:
        nonlocal attempts
        attempts += 1
        if attempts == 20:
            raise StateLost("the end")
        raise StoreUnreachable("redis: OOM command not allowed")

    monkeypatch.setattr("services.snapshot.store.terms.PAUSE", 0.0)
    monkeypatch.setattr(Writer, "open", refuses)
    link, lead = cast(RedisLink, None), cast(Leadership, None)
    terms = Terms(lead, link, "flotilla", Health(), logging.getLogger("snapshot"))
    assert not asyncio.run(terms.begin(SnapshotLog(A, epoch=1).core, 1))
    assert [record.getMessage() for record in caplog.records] == ["redis: OOM command not allowed", "the end"]


def test_nothing_is_written_to_a_state_whose_rewriting_was_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a term ends while it restates: what waits for a write is lost, which is no fault."""

    async def opens(*_: object) -> Writer:
        return Writer(link, "flotilla", 1, 1)

    async def run() -> bool:
        with pytest.raises(asyncio.CancelledError):
            await terms.begin(SnapshotLog(A, epoch=1).core, 1)
        return await terms.write([])

    async def broken_off(*_: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(Writer, "open", opens)
    monkeypatch.setattr(Writer, "rewrite", broken_off)
    link, lead = cast(RedisLink, None), cast(Leadership, None)
    terms = Terms(lead, link, "flotilla", Health(), logging.getLogger("snapshot"))
    assert not asyncio.run(run())


def test_nothing_is_written_to_a_state_that_was_found_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the term ends before the next one has begun."""

    async def opens(*_: object) -> Writer:
        return Writer(link, "flotilla", 1, 1)

    async def nothing(*_: object) -> None:
        pass

    async def lost(writer: Writer, _: object) -> None:
        if not writes:
            raise InvariantBroken("a term begins with the whole state")
        raise writes.pop()

    async def run() -> list[bool]:
        await terms.begin(SnapshotLog(A, epoch=1).core, 1)
        return [await terms.write([]), await terms.write([])]

    writes = [StateLost("flushed")]
    monkeypatch.setattr(Writer, "open", opens)
    monkeypatch.setattr(Writer, "rewrite", nothing)
    monkeypatch.setattr(Writer, "write", lost)
    link, lead = cast(RedisLink, None), cast(Leadership, None)
    terms = Terms(lead, link, "flotilla", Health(), logging.getLogger("snapshot"))
    assert asyncio.run(run()) == [False, False]


class LosesState:
    """As Terms, with a Redis that has lost the state."""

    epoch = 1

    async def take(self) -> None:
        self.epoch += 1

    async def begin(self, core: SnapshotCore, shard_count: int) -> bool:
        return True

    async def write(self, persists: Sequence[Persist]) -> bool:
        return False


def test_pods_that_an_earlier_term_has_forgotten_are_told_before_those_that_a_new_term_assumes() -> None:
    """The queue takes back all that is not assumed in the new term; what comes later would undo new decisions."""
    forgotten = ForgottenPod(P.uid, "no rights")
    told: list[object] = []

    async def run() -> None:
        core, terms = SnapshotCore(1), cast(Terms, LosesState())
        writer = EffectWriter(core, terms, 1, told.append, lambda: told.append(f"term {core.epoch}"), lambda: 0.0)
        await writer.begin()
        for effect in (Persist(settled=(P.uid,)), forgotten):
            writer.add(effect)
        running = asyncio.create_task(writer.run())
        while "term 2" not in told:
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(run())
    assert forgotten in told[: told.index("term 2")]


class WaitsForStore(LosesState):
    """As Terms, with a Redis that answers on demand."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def write(self, persists: Sequence[Persist]) -> bool:
        await self.answers.wait()
        return True


def test_a_cycle_hears_that_its_epoch_stands_only_once_that_is_written() -> None:
    """Otherwise Redis and snapshot may fail together, and nothing remembers that the epoch was used."""
    told: list[object] = []

    async def run() -> tuple[int, int]:
        log, terms = SnapshotLog(A), WaitsForStore()
        writer = EffectWriter(log.core, cast(Terms, terms), 1, told.append, lambda: None, lambda: 0.0)
        for effect in (*log.handle(commit(1)), *log.handle(commit(1))):  # the second one is a repetition
            writer.add(effect)
        running = asyncio.create_task(writer.run())
        await asyncio.sleep(0)
        before = len(told)
        terms.answers.set()
        while len(told) < 2:
            await asyncio.sleep(0)
        running.cancel()
        return before, len(told)

    assert asyncio.run(run()) == (0, 2)
    assert {type(each) for each in told} == {Reply}
