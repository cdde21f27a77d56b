"""The simulation can fail: with any one fence switched off, it says so within 50 seeds."""

import pytest

from testing.simulation.broken import BROKEN, broken_build
from testing.simulation.running import play
from testing.simulation.seeds import Options, drawn

MOST_SEEDS = 50


@pytest.mark.parametrize("name", BROKEN)
def test_a_fence_that_is_switched_off_is_missed(name: str) -> None:
    options, first = Options(broken=name), BROKEN[name].first
    with broken_build(name):
        assert any(not play(drawn(seed, options)).held for seed in range(first, first + MOST_SEEDS))


@pytest.mark.parametrize("name", BROKEN)
def test_the_first_of_these_seeds_holds_with_all_fences(name: str) -> None:
    result = play(drawn(1, Options(broken=name)))
    assert result.held, result.wrong
