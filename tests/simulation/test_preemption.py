"""Pods make way for others, and nobody goes in vain: whatever gets lost, room is kept for who was promised it, and for
nobody else."""

import pytest

from testing.simulation.preemption import PreemptionWorld
from tests.simulation.test_simulation import EVERYTHING, FAILOVER, play_in

CALM: frozenset[str] = frozenset()


@pytest.mark.parametrize("seed", [1, 6])
def test_nobody_waits_for_time_to_pass_where_nothing_goes_wrong(seed: int) -> None:
    play_in(PreemptionWorld, seed, CALM, 0.0, seconds=20.0)


def test_messages_about_who_is_to_make_way_go_astray() -> None:
    play_in(PreemptionWorld, 200, CALM, 0.15, seconds=20.0)


@pytest.mark.parametrize("seed", [105, 109])
def test_pods_make_way_while_everything_happens(seed: int) -> None:
    play_in(PreemptionWorld, seed, EVERYTHING | {"kill snapshot"}, 0.15, seconds=20.0)


def test_pods_make_way_while_snapshots_come_and_go() -> None:
    play_in(PreemptionWorld, 300, FAILOVER, 0.05, seconds=20.0)
