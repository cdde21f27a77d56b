"""What tests of the simulation share."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from testing.simulation.running import pool_of_players


@pytest.fixture(scope="session")
def player() -> Iterator[ProcessPoolExecutor]:
    """A process in which a seed takes the same course every time, as in `flotilla simulation`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "0")
        pool = pool_of_players(1)
        pool.submit(int).result()  # it has started
    with pool:
        yield pool
