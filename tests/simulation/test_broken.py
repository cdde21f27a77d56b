"""The simulation can fail: with any one fence switched off, it says so within 50 seeds."""

from concurrent.futures import ProcessPoolExecutor

import pytest

from testing.simulation.broken import BROKEN, broken_build
from testing.simulation.running import Options, Result, drawn, play
from testing.simulation.schedule import Schedule

MAX_SEEDS = 50


@pytest.mark.parametrize("name", BROKEN)
def test_a_fence_that_is_switched_off_is_missed_and_the_same_seed_holds_with_it(
    name: str, player: ProcessPoolExecutor
) -> None:
    missed = player.submit(first_that_fails, name).result()
    assert missed is not None
    print(f"missed by seed {missed.seed}, {missed.seed - BROKEN[name].first} after the first")
    result: Result = player.submit(play, missed).result()
    assert result.held, result.wrong


def first_that_fails(name: str) -> Schedule | None:
    first = BROKEN[name].first
    with broken_build(name):
        for seed in range(first, first + MAX_SEEDS):
            schedule = drawn(seed, Options(broken=name))
            if not play(schedule).held:
                return schedule
    return None
