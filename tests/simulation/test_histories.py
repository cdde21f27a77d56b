"""Redis goes back a second while the snapshot starts again: nothing that was ordered lands on what is given away."""

import pytest

from testing.simulation.world import World
from tests.simulation.test_simulation import on_virtual_time


@pytest.mark.parametrize("seed", range(3000, 3005))
def test_redis_goes_back_while_the_snapshot_starts_again(seed: int) -> None:
    async def run() -> None:
        world = World(seed, mishaps=frozenset({"rolled back"}), bad_luck=0.1, round_size=16)
        await world.run(20.0)

    on_virtual_time(run)
