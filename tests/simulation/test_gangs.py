"""Gangs compete for room that suffices for some of them: each gets it whole, or leaves it to others."""

import pytest

from testing.simulation.gangs import GangWorld
from tests.simulation.test_simulation import EVERYTHING, FAILOVER, play_in

CALM: frozenset[str] = frozenset()


@pytest.mark.parametrize("seed", [1, 2])
def test_no_gang_waits_for_time_to_pass_where_nothing_goes_wrong(seed: int) -> None:
    play_in(GangWorld, seed, CALM, 0.0, seconds=15.0)


@pytest.mark.parametrize("seed", [100, 101])
def test_gangs_while_everything_happens(seed: int) -> None:
    play_in(GangWorld, seed, EVERYTHING | {"kill snapshot"}, 0.15, seconds=15.0)


def test_gangs_while_snapshots_come_and_go() -> None:
    play_in(GangWorld, 300, FAILOVER, 0.05, seconds=15.0)
