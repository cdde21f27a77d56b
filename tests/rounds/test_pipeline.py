"""Invariants of every run, for any cluster, shards, round size and seed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.cycle.events import Decided, Superseded
from services.snapshot.events import Beat, NodeSeen
from services.worker.core import WorkerCore
from services.worker.state_replica import RELOAD_PATIENCE
from shared.cluster.nodetable import NodeTable
from shared.messages.state import Delta, State
from testing.inprocess.pipeline import reliable
from tests.rounds.support import BASE, FRAMEWORKS, Plain, held, plain_table, small_node, small_pod
from tests.rounds.world import Audited, BadLuck, World


@dataclass(frozen=True)
class Scenario:
    seed: int
    nodes: int
    batches: tuple[int, ...]
    shards: int
    round_size: int
    bad_luck: float
    events: int


SCENARIOS = st.builds(
    Scenario,
    seed=st.integers(0, 10**6),
    nodes=st.integers(1, 30),
    batches=st.lists(st.integers(1, 50), min_size=1, max_size=3).map(tuple),
    shards=st.integers(1, 7),
    round_size=st.sampled_from([1, 2, 3, 8, 40, 256]),
    bad_luck=st.sampled_from([0.0, 0.1, 0.3]),
    events=st.integers(0, 6),
)


def play(scenario: Scenario) -> Audited:
    """Batches, with events in between wherever the run has got to; then the wire heals and all settles."""
    world, luck = World(scenario.seed), BadLuck(scenario.seed, scenario.bad_luck)
    fate = luck if scenario.bad_luck else reliable
    run = Audited(shards=scenario.shards, round_size=scenario.round_size, fate=fate)
    run.add_nodes(world.nodes(scenario.nodes))
    for size in scenario.batches:
        run.submit(world.pods(size))
        for _ in range(scenario.events):
            run.steps(world.dice.randrange(12))
            world.event(run)
    run.settle()
    luck.over = True
    run.observe(Beat())  # by which a worker learns of the loss of the last delta
    run.settle()
    return run


def check(run: Audited) -> None:
    outcomes = Counter(told.uid for told in run.told)
    assert set(outcomes) == set(run.submitted), "a pod was lost, or came from nowhere"
    assert set(outcomes.values()) <= {1}, "a pod was told two outcomes"
    decided = Counter(uid for uid, _ in run.decisions)
    assert set(decided.values()) <= {1}, "a pod was decided twice"
    told = {o.uid: o.node for o in run.told if isinstance(o, Decided)}
    assert told == dict(run.decisions), "what was told is not what was decided"
    assert run.snapshot.ledger == {}
    assert run.cycle.pods_held == 0
    assert (run.nodes, run.placed) == held(run.snapshot.state()), "the deltas do not add up to the state"
    check_tables(run)


def check_tables(run: Audited) -> None:
    state = run.snapshot.state()
    whole: dict[str, Plain] = {}
    for core in run.workers.values():
        fresh = WorkerCore(core.name, core.shards, core.shard_count, FRAMEWORKS)
        fresh.handle(state, run.now)
        assert plain_table(core.table) == plain_table(fresh.table)
        assert core.seq == run.snapshot.seq
        assert not set(whole) & set(plain_table(core.table))
        whole |= plain_table(core.table)
    assert {name: shown["object"] for name, shown in whole.items()} == run.nodes
    pods = {uid: (name, load) for name, shown in whole.items() for uid, load in shown["pods"].items()}
    assert pods == run.placed


@settings(deadline=None, max_examples=60)
@given(SCENARIOS)
@example(Scenario(seed=0, nodes=8, batches=(4, 41), shards=1, round_size=2, bad_luck=0.1, events=0))
def test_no_run_breaks_an_invariant(scenario: Scenario) -> None:
    run = play(scenario)
    check(run)
    if not scenario.events:
        # A search for victims runs beside rounds, which may take its node before it ends.
        overtaken = [conflict for conflict in run.conflicts if conflict.uid in run.nominated]
        assert run.conflicts == overtaken
        assert run.cycle.rounds.begun <= len(run.submitted) + len(overtaken), "a round went by without an outcome"
        assert not any(isinstance(told, Superseded) for told in run.told)


@settings(deadline=None, max_examples=40)
@given(SCENARIOS.filter(lambda s: s.round_size > 3))
def test_rounds_that_grow_break_no_invariant(scenario: Scenario) -> None:
    """Rounds begin while others are committed, double in size, and defer pods."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("core.ENOUGH", "round.runner.ENOUGH"):
            patch.setattr(f"services.cycle.{name}", 3)
        check(play(scenario))


@settings(deadline=None, max_examples=25)
@given(SCENARIOS.filter(lambda s: s.events > 0))
def test_rounds_without_an_outcome_have_an_external_cause(scenario: Scenario) -> None:
    run = play(scenario)
    outcomes = [told for told in run.told if not isinstance(told, Superseded)]
    assert run.cycle.rounds.begun <= len(outcomes) + len(run.conflicts) + scenario.events * len(scenario.batches)


@settings(deadline=None, max_examples=15)
@given(SCENARIOS)
def test_the_same_seed_gives_the_same_run(scenario: Scenario) -> None:
    one, other = play(scenario), play(scenario)
    assert one.decisions == other.decisions
    assert one.told == other.told
    assert (one.now, one.snapshot.seq) == (other.now, other.snapshot.seq)
    assert one.cycle.rounds.begun == other.cycle.rounds.begun
    assert one.placed == other.placed


@settings(deadline=None, max_examples=15)
@given(SCENARIOS, st.integers(0, 6))
def test_a_worker_may_restart_at_any_time(scenario: Scenario, which: int) -> None:
    world = World(scenario.seed)
    run = Audited(shards=scenario.shards, round_size=scenario.round_size)
    run.add_nodes(world.nodes(scenario.nodes))
    run.submit(world.pods(sum(scenario.batches)))
    while run.step():
        if world.dice.random() < 0.1:
            run.restart_worker(f"worker-{which % scenario.shards}")
    check(run)
    assert not run.conflicts


def test_a_worker_that_missed_the_last_delta_finds_out_by_a_heartbeat() -> None:
    lossy = True

    def fate(message: object) -> Sequence[float]:
        return () if lossy and isinstance(message, Delta) else (0.0,)

    run = Audited(shards=1, round_size=1, fate=fate)
    run.observe(NodeSeen(small_node("a")))
    run.settle()
    lossy = False
    run.observe(Beat())
    run.settle()
    run.submit([small_pod("p")])
    run.settle()
    assert isinstance(run.outcomes["default/p"], Decided)


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_a_state_that_is_lost_is_asked_for_until_it_comes(lost: int) -> None:
    states = 0

    def fate(message: object) -> Sequence[float]:
        nonlocal states
        states += isinstance(message, State)
        return () if isinstance(message, State) and states <= lost else (0.0,)

    run = Audited(shards=1, round_size=8, fate=fate)
    run.add_nodes([small_node("a")])
    run.submit([small_pod("p")])
    run.settle()
    check(run)
    assert states == lost + 1
    assert run.now == sum(RELOAD_PATIENCE * 2**again for again in range(lost))


def test_heartbeats_of_a_quiet_cluster_change_nothing() -> None:
    run = Audited(shards=3, round_size=8)
    run.add_nodes([small_node("a"), small_node("b")])
    run.settle()
    for _ in range(5):
        run.observe(Beat())
        run.settle()
    assert (run.now, run.snapshot.seq) == (0.0, BASE + 2)
    assert all(core.next_deadline() is None for core in run.workers.values())


def test_a_difference_between_tables_is_found() -> None:
    """A table that lacks a pod does not pass for one that has it."""
    world = World(1)
    run = Audited(shards=1, round_size=8)
    run.add_nodes(world.nodes(5))
    run.submit(world.pods(5))
    run.settle()
    check_tables(run)
    (core,) = run.workers.values()
    before = plain_table(core.table)
    core.table.remove_pod(next(iter(run.placed)))
    assert plain_table(core.table) != before
    assert plain_table(NodeTable()) == {}
