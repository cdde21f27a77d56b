"""Redis goes back a second while the snapshot starts again: nothing that was ordered lands on what is given away."""

import pytest

from tests.simulation.test_simulation import hold


@pytest.mark.parametrize("seed", range(3000, 3002))
def test_redis_goes_back_while_the_snapshot_starts_again(seed: int) -> None:
    hold(seed, "plain", mishaps=frozenset({"redis_rolls_back", "calls"}))
