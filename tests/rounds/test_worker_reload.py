"""Worker: when it reloads the state, and that it asks for it no more often than necessary."""

from itertools import pairwise

import pytest

from services.worker.core import WorkerCore
from services.worker.events import Effect, Reload, Tick
from services.worker.state_replica import GAP_PATIENCE, LONGEST_PATIENCE, MAX_EARLY_DELTAS, RELOAD_PATIENCE
from shared.errors import ProtocolError
from shared.messages.rounds import ClassAsk
from shared.messages.state import Delta, Heartbeat, NodeState, NodeUpserted, PodGone, PodOnNode, PodPlaced, State
from shared.model.objects import DEFAULT_SCHEDULER
from testing.builders import node
from tests.rounds.support import (
    answers,
    ask_for,
    delta,
    kinds,
    placed,
    plain_table,
    propose,
    small_node,
    small_pod,
    state,
    worker,
)

A, B, C = small_node("a"), small_node("b"), small_node("c")
P, Q = small_pod("p"), small_pod("q")
SECOND, THIRD, FOURTH = placed(2, P, "a"), placed(3, Q, "b"), delta(4, PodGone(P.uid))


def following() -> WorkerCore:
    """It has loaded nodes a and b at 1."""
    core = worker()
    core.start(0.0)
    assert core.handle(state(1, A, B), 0.0) == []
    assert core.next_deadline() is None
    return core


def until(core: WorkerCore, end: float) -> list[float]:
    """Ticks whenever the core wants to be woken; when it asked for the state."""
    asked: list[float] = []
    while (due := core.next_deadline()) is not None and due <= end:
        effects = core.handle(Tick(), due)
        assert all(effect == Reload() for effect in effects) and len(effects) <= 1
        asked += [due] * len(effects)
    return asked


# Heartbeats


@pytest.mark.parametrize("seq", [0, 1])
def test_a_heartbeat_of_its_own_state_is_no_news(seq: int) -> None:
    core = following()
    assert core.handle(Heartbeat(1, seq), 1.0) == []
    assert core.next_deadline() is None


def test_a_heartbeat_of_more_than_it_has_starts_the_patience() -> None:
    core = following()
    assert core.handle(Heartbeat(1, 2), 1.0) == []
    assert core.next_deadline() == 1.0 + GAP_PATIENCE
    assert core.handle(Heartbeat(1, 2), 1.04) == []
    assert core.next_deadline() == 1.0 + GAP_PATIENCE, "further heartbeats do not make it any more patient"
    assert until(core, 1.1 + GAP_PATIENCE) == [1.0 + GAP_PATIENCE]
    core.handle(state(2, A, B, pods=[(P, "a")]), 1.2)
    assert core.seq == 2
    assert core.next_deadline() is None


def test_a_heartbeat_that_was_faster_than_its_delta_does_no_harm() -> None:
    core = following()
    core.handle(Heartbeat(1, 2), 1.0)
    assert core.handle(SECOND, 1.01) == []
    assert core.next_deadline() is None
    assert core.handle(Heartbeat(1, 2), 1.02) == []
    assert core.next_deadline() is None


def test_a_heartbeat_of_a_newer_epoch_makes_it_reload_once() -> None:
    core = following()
    assert core.handle(Heartbeat(2, 0), 1.0) == [Reload()]
    assert core.handle(Heartbeat(2, 5), 1.1) == []
    assert core.handle(propose(ask_for(P)), 1.2) == [], "an answer from the state of a leader that is gone"
    assert core.next_deadline() == 1.0 + RELOAD_PATIENCE
    assert set(answers(core.handle(state(0, C, epoch=2), 1.3))) == {"p"}
    assert (core.seq, set(plain_table(core.table))) == (0, {"c"})


def test_a_state_of_a_newer_epoch_is_taken_with_any_number() -> None:
    core = worker()
    core.handle(state(7, A, B), 0.0)
    core.handle(state(2, C, epoch=2), 1.0)
    assert (core.seq, set(plain_table(core.table))) == (2, {"c"})


def test_a_heartbeat_of_an_older_epoch_is_refused() -> None:
    core = worker()
    core.handle(state(1, A, epoch=2), 0.0)
    assert core.handle(Heartbeat(1, 9), 0.0) == []
    assert [str(refusal) for refusal in core.refused] == ["heartbeat of epoch 1, now 2"]
    assert core.next_deadline() is None


def test_heartbeats_before_the_first_state_change_nothing() -> None:
    core = worker()
    core.start(0.0)
    assert core.handle(Heartbeat(3, 7), 0.5) == []
    assert core.next_deadline() == RELOAD_PATIENCE
    assert core.handle(state(7, A, epoch=3), 0.6) == []
    assert core.seq == 7


# Once, and not again before its time


def test_a_state_that_does_not_come_is_asked_for_again_and_again() -> None:
    core = worker()
    assert core.start(0.0) == [Reload()]
    asked = [0.0, *until(core, 64.0)]
    waits = [later - earlier for earlier, later in pairwise(asked)]
    assert waits == [1.0, 2.0, 4.0, 8.0, LONGEST_PATIENCE, LONGEST_PATIENCE, LONGEST_PATIENCE]
    assert waits[0] == RELOAD_PATIENCE
    core.handle(state(1, A), 65.0)
    assert until(core, 200.0) == []
    core.handle(Heartbeat(1, 2), 200.0)
    assert until(core, 202.0) == [200.0 + GAP_PATIENCE, 200.0 + GAP_PATIENCE + RELOAD_PATIENCE], "as patient as before"


def test_after_a_new_epoch_deltas_wait_for_the_state() -> None:
    core = following()
    assert core.handle(placed(3, Q, "b", epoch=2), 1.0) == [Reload()]
    for seq in range(4, 30):
        assert core.handle(delta(seq, epoch=2), 1.0 + seq / 100) == []
    assert core.next_deadline() == 1.0 + RELOAD_PATIENCE
    assert core.handle(state(2, A, B, epoch=2, pods=[(P, "a")]), 1.5) == []
    assert core.seq == 29
    assert (core.table.node_of(P.uid), core.table.node_of(Q.uid)) == ("a", "b")
    assert core.next_deadline() is None


BAD_DELTAS = [
    (delta(2, PodPlaced(P.uid, "a", 0)), "a message of 0 loads names number 0"),
    (delta(2, PodPlaced(P.uid, "a", 1), loads=SECOND.loads), "a message of 1 loads names number 1"),
    (delta(2, PodPlaced(P.uid, "a", -1), loads=SECOND.loads), "a message of 1 loads names number -1"),
    (delta(2, NodeUpserted(C), PodPlaced(P.uid, "a", 7)), "a message of 0 loads names number 7"),
    (delta(2, NodeUpserted(node("").build())), "metadata.name: must not be empty"),
]


@pytest.mark.parametrize(("bad", "why"), BAD_DELTAS)
def test_a_delta_that_cannot_be_applied_is_refused_and_the_state_asked_for_once(bad: Delta, why: str) -> None:
    core = following()
    assert core.handle(bad, 1.0) == [Reload()]
    assert len(core.refused) == 1 and why in str(core.refused[0])
    for again in range(20):
        for news in (bad, THIRD, FOURTH, Heartbeat(1, 4)):
            assert core.handle(news, 1.0 + again / 50) == []
    assert len(core.refused) == 1
    assert core.next_deadline() == 1.0 + RELOAD_PATIENCE
    assert core.handle(propose(ask_for(P)), 1.5) == [], "an answer from a table that is half changed"
    assert kinds(core.handle(state(2, A, B, pods=[(P, "a")]), 1.6)) == ["Answer"]
    assert core.seq == 4
    assert set(plain_table(core.table)) == {"a", "b"}
    assert (core.table.node_of(P.uid), core.table.node_of(Q.uid)) == (None, "b")


def test_a_load_that_is_not_there_is_a_protocol_error() -> None:
    core = following()
    core.handle(BAD_DELTAS[0][0], 1.0)
    assert isinstance(core.refused[0], ProtocolError)


def test_a_state_from_before_the_bad_delta_is_followed_by_the_wait_for_it() -> None:
    """1. Delta 2 is bad. 2. The state that comes is still that of 1. 3. Delta 2 is missing, as 3 tells."""
    core = following()
    core.handle(BAD_DELTAS[0][0], 1.0)
    core.handle(THIRD, 1.1)
    assert core.handle(state(1, A, B), 1.2) == []
    assert core.seq == 1
    assert core.next_deadline() == 1.2 + GAP_PATIENCE
    assert core.handle(SECOND, 1.21) == []
    assert core.seq == 3


def test_deltas_that_come_during_a_gap_do_not_put_off_its_end() -> None:
    """Delta 2 is lost, and every 10 ms another one comes."""
    core = following()
    asked: list[float] = []
    for seq in range(3, 40):
        at = 1.0 + seq / 100
        asked += until(core, at)
        assert core.handle(delta(seq), at) == []
    assert asked == [1.03 + GAP_PATIENCE]


def test_deltas_that_come_while_a_gap_is_mended_do_not_ask_again() -> None:
    """Delta 2 is lost, and the state takes most of its time."""
    core = following()
    core.handle(THIRD, 1.0)
    asked_at = 1.0 + GAP_PATIENCE
    assert until(core, asked_at) == [asked_at]
    for seq in range(4, 13):
        at = asked_at + seq / 15
        assert until(core, at) == [], "asked again before its time"
        assert core.handle(delta(seq), at) == []
    assert core.next_deadline() == asked_at + RELOAD_PATIENCE
    assert core.handle(state(2, A, B), asked_at + 0.9) == []
    assert core.seq == 12


def test_heartbeats_and_proposals_while_a_gap_is_mended_do_not_ask_again() -> None:
    core = following()
    core.handle(Heartbeat(1, 5), 1.0)
    asked_at = 1.0 + GAP_PATIENCE
    assert until(core, asked_at) == [asked_at]
    for i in range(9):
        at = asked_at + (i + 1) / 10
        assert until(core, at) == []
        assert core.handle(Heartbeat(1, 5 + i), at) == []
        assert core.handle(propose(ask_for(P), round_=i + 1, min_seq=5), at) == []
    assert until(core, 10.0)[0] == asked_at + RELOAD_PATIENCE


def test_the_number_of_deltas_that_wait_for_a_state_is_bounded() -> None:
    """Only the oldest are dropped, which a state that is under way most likely includes."""
    core = following()
    assert core.handle(delta(2, epoch=2), 1.0) == [Reload()]
    last = MAX_EARLY_DELTAS + 11
    asks: list[Effect] = []
    for seq in range(3, last + 1):
        asks += core.handle(delta(seq, epoch=2), 1.1)
    assert asks == []
    core.handle(state(10, A, epoch=2), 1.2)
    assert core.seq == 10, "delta 11 was the last to be dropped"
    assert core.next_deadline() == 1.2 + GAP_PATIENCE
    core.handle(state(11, A, epoch=2), 1.3)
    assert (core.seq, core.next_deadline()) == (last, None)


def test_the_missing_delta_is_taken_however_many_wait_for_it() -> None:
    core = following()
    for seq in range(3, MAX_EARLY_DELTAS + 3):
        core.handle(delta(seq), 1.0)
    assert core.handle(delta(2), 1.01) == []
    assert core.seq == MAX_EARLY_DELTAS + 2


def test_a_doubled_state_does_not_drop_what_is_known() -> None:
    core = worker()
    core.handle(state(2, A, B), 0.0)
    answers(core.handle(propose(ask_for(P)), 0.0))
    table = core.table
    for seq in (1, 2):
        assert core.handle(state(seq, C), 1.0) == []
    assert core.table is table
    assert not answers(core.handle(propose(ClassAsk("p", DEFAULT_SCHEDULER, 1), round_=2), 1.0))["p"].unknown


# States that cannot be


def bad_state(seq: int, *nodes: NodeState, loads: int = 1) -> State:
    return State(1, seq, list(nodes), list(SECOND.loads) * loads)


BAD_STATES = [
    (bad_state(2, NodeState(C), NodeState(C)), "Node c: metadata.name: a node of this name is already known"),
    (bad_state(2, NodeState(C, {P.uid: PodOnNode(1)})), "a message of 1 loads names number 1"),
    (bad_state(2, NodeState(C, {P.uid: PodOnNode(-1)})), "a message of 1 loads names number -1"),
    (bad_state(2, NodeState(C, {P.uid: PodOnNode(0)}), loads=0), "a message of 0 loads names number 0"),
    (bad_state(2, NodeState(node("").build())), "metadata.name: must not be empty"),
]


@pytest.mark.parametrize(("bad", "why"), BAD_STATES)
def test_a_state_that_cannot_be_built_is_refused_whole(bad: State, why: str) -> None:
    core = following()
    core.handle(Heartbeat(1, 2), 1.0)
    core.handle(Tick(), 1.0 + GAP_PATIENCE)
    table, before = core.table, plain_table(core.table)
    assert core.handle(bad, 1.5) == []
    assert [str(refusal) for refusal in core.refused][:1] == [
        "delta 2: seq: it has not come, and another process has seen it"
    ]
    assert [why in str(refusal) for refusal in core.refused] == [False, True]
    assert core.table is table and plain_table(table) == before
    assert core.seq == 1
    asked_at = 1.0 + GAP_PATIENCE
    assert until(core, 5.0) == pytest.approx([asked_at + RELOAD_PATIENCE, asked_at + 3 * RELOAD_PATIENCE])
    core.handle(state(2, A, B, C), 5.1)
    assert (core.seq, core.next_deadline()) == (2, None)


@pytest.mark.parametrize(("bad", "why"), BAD_STATES)
def test_a_first_state_that_cannot_be_built_is_asked_for_again(bad: State, why: str) -> None:
    core = worker()
    core.start(0.0)
    core.handle(propose(ask_for(P)), 0.1)
    assert core.handle(bad, 0.5) == []
    assert [why in str(refusal) for refusal in core.refused] == [True]
    assert (core.seq, core.table.node_count) == (0, 0)
    assert until(core, 1.5) == [RELOAD_PATIENCE], "a refused state delays no request"
    assert kinds(core.handle(state(2, A), 1.6)) == ["Answer"]


def test_nodes_of_other_shards_in_a_state_are_passed_over() -> None:
    core = worker(shards=[0], count=2)
    core.handle(state(1, *(small_node(f"n{i}") for i in range(20))), 0.0)
    assert 0 < core.table.node_count < 20
    assert not core.refused
