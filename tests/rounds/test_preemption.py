"""Preemption carried out: rounds, searches, commits and evictions together, on virtual time."""

from functools import lru_cache

import pytest

from services.snapshot.events import NodeGone, PodDeleted
from testing.builders import pod
from tests.rounds.preempting_world import Full, Preempting, load_of_nodes, where_they_are
from tests.rounds.support import BY_NAME
from tests.rounds.world import BadLuck

Story = tuple[tuple[tuple[str, str], ...], tuple[str, ...]]
"""Where everybody has got to, and who had to go."""


@lru_cache
def in_strict_mode(seed: int, shards: int) -> Story:
    full, run = Full(seed), Preempting(shards=shards, round_size=1, ties=BY_NAME)
    full.into(run)
    run.submit(full.high)
    run.run_for(100)
    return tuple(sorted(where_they_are(run, full.high).items())), tuple(run.victims)


@pytest.mark.parametrize("shards", [2, 3, 7])
@pytest.mark.parametrize("seed", range(6))
def test_victims_are_the_same_for_any_number_of_shards(seed: int, shards: int) -> None:
    placed, victims = in_strict_mode(seed, 1)
    assert len(placed) == len(Full(seed).high)
    assert victims
    assert in_strict_mode(seed, shards) == (placed, victims)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("seed", range(6))
def test_in_rounds_everybody_of_higher_priority_ends_bound(seed: int, shards: int) -> None:
    full, run = Full(seed), Preempting(shards=shards, round_size=256)
    full.into(run)
    run.submit(full.high)
    run.run_for(100)
    assert len(where_they_are(run, full.high)) == len(full.high)
    assert all(taken <= 4000 for taken in load_of_nodes(run).values())
    assert not run.promised
    _, strictly = in_strict_mode(seed, 1)
    assert len(run.victims) <= len(strictly) + 2, "about as many make way"


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_with_messages_lost_doubled_and_delayed(seed: int, shards: int) -> None:
    luck = BadLuck(seed, 0.1)
    full, run = Full(seed), Preempting(shards=shards, round_size=4, fate=luck)
    full.into(run)
    run.submit(full.high[:4])
    run.steps(30)
    run.submit(full.high[4:])
    run.run_with_beats(300)
    assert len(where_they_are(run, full.high)) == len(full.high)
    assert not run.promised


def while_victims_go(seed: int, shards: int) -> tuple[Full, Preempting]:
    """Half of the pods of higher priority are nominated, and no victim has gone yet."""
    full, run = Full(seed), Preempting(shards=shards, round_size=256)
    full.into(run)
    run.submit(full.high[:4])
    while len(run.promised) < 4:
        assert run.step()
    assert run.evictions
    return full, run


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_no_other_pod_gets_the_nodes_room_while_victims_terminate(seed: int, shards: int) -> None:
    """The auditor looks; those who come are small, and would be quick."""
    full, run = while_victims_go(seed, shards)
    small = [pod(f"small{i}").request(cpu="500m").priority(i % 6).build() for i in range(12)]
    run.submit(small)
    run.run_for(100)
    assert len(where_they_are(run, full.high[:4])) == 4


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_pod_of_higher_priority_may_take_the_reserved_room(seed: int, shards: int) -> None:
    full, run = while_victims_go(seed, shards)
    urgent = [pod(f"urgent{i}").request(cpu="3").priority(50).build() for i in range(4)]
    run.submit(urgent)
    run.run_for(100)
    assert len(where_they_are(run, urgent)) == 4
    assert len(where_they_are(run, full.high[:4])) == 4, "and the others get some elsewhere"


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_preemptor_that_loses_its_room_preempts_elsewhere(seed: int, shards: int) -> None:
    full, run = while_victims_go(seed, shards)
    lost = min(node for node, _ in run.promised.values())
    run.observe(NodeGone(lost))
    run.run_for(100)
    assert not run.promised or set(run.promised) <= {each.uid for each in full.high}
    placed = where_they_are(run, full.high[:4])
    assert len(placed) == 4
    assert lost not in placed.values()


@pytest.mark.parametrize("shards", [1, 3])
def test_a_deleted_preemptor_frees_its_reserved_room(shards: int) -> None:
    full, run = while_victims_go(1, shards)
    gone = full.high[0]
    run.observe(PodDeleted(gone.uid))
    assert gone.uid not in run.promised
    run.run_for(100)
    assert set(where_they_are(run, full.high[:4])) == {each.name for each in full.high[1:4]}


def test_assumed_victims_are_requeued_and_not_deleted() -> None:
    full, run = Full(2), Preempting(shards=2, round_size=256, grace=1000.0)
    run.add_nodes(full.nodes[:1])
    run.hold_bindings = True
    low = [pod(f"late{i}").request(cpu="2").build() for i in range(2)]
    run.submit(low)
    while len(run.snapshot.ledger) < 2:
        assert run.step()
    urgent = pod("urgent").request(cpu="2").priority(10).build()
    run.submit([urgent])
    while urgent.uid not in run.snapshot.ledger:
        assert run.step()
    (evict,) = run.evictions
    (victim,) = evict.victims
    assert victim.attempt
    assert victim.uid not in run.snapshot.ledger
    assert run.now < 1000
