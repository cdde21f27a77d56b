"""What holds for all tests."""

import gc

import pytest
from hypothesis import HealthCheck, settings

# How fast a machine is, is not what the tests are about.
settings.register_profile("flotilla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("flotilla")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests stay in memory: to look through them for garbage again and again costs more than it finds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
