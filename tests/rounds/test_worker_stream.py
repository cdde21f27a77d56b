"""Worker: following the snapshot's deltas."""

import pytest

from services.worker.events import Reload, Tick
from services.worker.state_replica import GAP_PATIENCE, MAX_EARLY_DELTAS, RELOAD_PATIENCE
from shared.cluster.nodetable import NodeTable
from shared.messages.state import Delta, NodeRemoved, NodeUpserted, PodGone, State
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
ORDERS = [(SECOND, THIRD, FOURTH), (FOURTH, THIRD, SECOND), (THIRD, SECOND, FOURTH), (FOURTH, SECOND, THIRD)]


def test_it_starts_by_asking_for_everything() -> None:
    core = worker()
    assert core.start(2.0) == [Reload()]
    assert core.next_deadline() == 2.0 + RELOAD_PATIENCE


def test_before_it_has_loaded_anything_deltas_wait() -> None:
    core = worker()
    core.start(0.0)
    assert core.handle(SECOND, 0.1) == core.handle(THIRD, 0.2) == []
    assert core.next_deadline() == RELOAD_PATIENCE
    assert core.handle(state(1, A, B), 0.3) == []
    assert core.seq == 3
    assert core.next_deadline() is None


@pytest.mark.parametrize("order", ORDERS)
def test_deltas_have_one_effect_in_any_order_and_number(order: tuple[Delta, ...]) -> None:
    core = worker()
    core.handle(state(1, A, B), 0.0)
    for news in (*order, *reversed(order)):
        assert core.handle(news, 0.0) == []
    assert core.seq == 4
    assert core.next_deadline() is None
    assert plain_table(core.table) == plain_table(loaded(state(4, A, B, pods=[(Q, "b")])))


def loaded(whole: State) -> NodeTable:
    core = worker()
    core.handle(whole, 0.0)
    return core.table


def test_a_gap_is_waited_for_and_then_mended() -> None:
    core = worker()
    core.handle(state(1, A, B), 0.0)
    assert core.handle(THIRD, 1.0) == []
    assert core.seq == 1
    assert core.next_deadline() == 1.0 + GAP_PATIENCE
    assert core.handle(FOURTH, 1.01) == []
    assert core.next_deadline() == 1.0 + GAP_PATIENCE
    assert core.handle(Tick(), 1.0 + GAP_PATIENCE / 2) == []
    assert core.handle(Tick(), 1.0 + GAP_PATIENCE) == [Reload()]
    assert core.next_deadline() == 1.0 + GAP_PATIENCE + RELOAD_PATIENCE
    assert [str(refused) for refused in core.refused] == ["delta 2: seq: it has not come, and 2 later ones wait"]


def test_a_gap_that_closes_is_forgotten() -> None:
    core = worker()
    core.handle(state(1, A, B), 0.0)
    core.handle(THIRD, 1.0)
    core.handle(SECOND, 1.01)
    assert core.next_deadline() is None
    assert core.seq == 3


def test_what_came_early_is_applied_on_top_of_a_state() -> None:
    core = worker()
    core.handle(state(1, A, B), 0.0)
    core.handle(THIRD, 0.0)
    core.handle(state(2, A, B, pods=[(P, "a")]), 0.0)
    assert core.seq == 3
    assert plain_table(core.table) == plain_table(loaded(state(3, A, B, pods=[(P, "a"), (Q, "b")])))


def test_a_gap_that_is_still_there_after_a_state_is_waited_for_again() -> None:
    """1. Deltas 2 and 3 are lost, 4 comes. 2. The state that mends it was taken at 2. 3. Nothing else comes."""
    core = worker()
    core.handle(state(1, A, B), 0.0)
    core.handle(FOURTH, 0.0)
    core.handle(Tick(), GAP_PATIENCE)
    core.handle(state(2, A, B, pods=[(P, "a")]), 1.0)
    assert core.next_deadline() == 1.0 + GAP_PATIENCE
    assert core.handle(Tick(), 1.0 + GAP_PATIENCE) == [Reload()]


def test_too_many_early_deltas_are_not_waited_for() -> None:
    core = worker()
    core.handle(state(1, A), 0.0)
    for seq in range(3, MAX_EARLY_DELTAS + 3):
        assert core.handle(delta(seq), 0.0) == []
    assert core.handle(delta(MAX_EARLY_DELTAS + 3), 0.0) == [Reload()]


def test_a_delta_of_an_old_epoch_is_refused() -> None:
    core = worker()
    core.handle(state(1, A, epoch=2), 0.0)
    assert core.handle(placed(2, P, "a", epoch=1), 0.0) == []
    assert [str(refusal) for refusal in core.refused] == ["delta 2 of epoch 1, now 2"]
    assert core.seq == 1


def test_a_new_epoch_is_loaded_whole() -> None:
    core = worker()
    core.handle(state(7, A, epoch=1, pods=[(P, "a")]), 0.0)
    assert core.handle(placed(2, Q, "b", epoch=2), 0.0) == [Reload()]
    assert core.handle(state(2, B, epoch=2, pods=[(Q, "b")]), 0.0) == []
    assert core.seq == 2
    assert set(plain_table(core.table)) == {"b"}


@pytest.mark.parametrize("old", [state(1, C, epoch=2), state(9, C, epoch=1)])
def test_a_state_older_than_its_own_is_passed_over(old: State) -> None:
    core = worker()
    core.handle(state(2, A, epoch=2), 0.0)
    assert core.handle(old, 0.0) == []
    assert core.seq == 2
    assert set(plain_table(core.table)) == {"a"}


def test_it_keeps_only_the_nodes_of_its_shards() -> None:
    nodes = [small_node(f"n{i}") for i in range(20)]
    held: list[str] = []
    for shard in range(3):
        core = worker(shards=[shard], count=3)
        core.handle(state(1, *nodes[:10], pods=[(P, "n0")]), 0.0)
        core.handle(delta(2, *(NodeUpserted(node) for node in nodes[10:])), 0.0)
        core.handle(placed(3, Q, "n15"), 0.0)
        held += plain_table(core.table)
        assert core.table.node_of(P.uid) == ("n0" if "n0" in core.table else None)
        assert core.table.node_of(Q.uid) == ("n15" if "n15" in core.table else None)
        core.handle(delta(4, *(NodeRemoved(node.name) for node in nodes)), 0.0)
        assert core.table.node_count == core.table.pod_count == 0
    assert sorted(held) == sorted(node.name for node in nodes)


def test_a_pod_that_moves_to_another_shard_leaves_this_one() -> None:
    nodes = {f"n{i}": small_node(f"n{i}") for i in range(20)}
    core = worker(shards=[0], count=2)
    core.handle(state(1, *nodes.values()), 0.0)
    mine = next(name for name in nodes if name in core.table)
    other = next(name for name in nodes if name not in core.table)
    core.handle(placed(2, P, mine), 0.0)
    core.handle(placed(3, P, other), 0.0)
    assert core.table.node_of(P.uid) is None
    core.handle(placed(4, P, mine), 0.0)
    assert core.table.node_of(P.uid) == mine


def test_a_proposal_waits_until_all_that_the_asker_knows_is_seen() -> None:
    core = worker()
    core.handle(state(1, A, B), 0.0)
    assert core.handle(propose(ask_for(small_pod("new", cpu="4")), min_seq=3), 5.0) == []
    assert core.next_deadline() == 5.0 + GAP_PATIENCE
    assert core.handle(THIRD, 5.01) == []
    (new,) = answers(core.handle(placed(2, P, "a"), 5.02)).values()
    assert new.summary.feasible == 0
    assert core.next_deadline() is None


def test_a_proposal_that_waits_in_vain_makes_it_reload() -> None:
    core = worker()
    core.handle(state(1, A, B), 0.0)
    core.handle(propose(ask_for(P), min_seq=2), 5.0)
    assert core.handle(Tick(), 5.0 + GAP_PATIENCE) == [Reload()]
    assert kinds(core.handle(state(1, A, B), 6.0)) == []
    assert core.next_deadline() is None, "what is not in the whole state has not happened"
    core.handle(propose(ask_for(P), min_seq=2), 7.0)
    assert core.next_deadline() is None, "nor does asking again make it happen"
    core.handle(propose(ask_for(P), min_seq=3), 8.0)
    assert core.next_deadline() == 8.0 + GAP_PATIENCE
    assert kinds(core.handle(state(3, A, B), 8.0)) == ["Answer"]


def test_only_the_newest_proposal_waits() -> None:
    core = worker()
    core.handle(propose(ask_for(P), ask=1), 0.0)
    core.handle(propose(ask_for(Q), ask=2), 0.0)
    assert set(answers(core.handle(state(1, A), 0.0))) == {"q"}
