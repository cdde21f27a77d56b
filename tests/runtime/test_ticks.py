"""Ticks: multiples of a period, whenever one begins to wait for the next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.ticks import EARLY, next_tick

PERIODS = st.sampled_from([0.25, 0.5, 1.0, 2.0, 15.0])


@given(st.floats(0.0, 1e7), PERIODS)
def test_the_next_one_is_a_multiple_at_most_a_period_away(now: float, period: float) -> None:
    at = next_tick(now, period)
    assert at % period == 0.0
    assert now < at <= now + period * (1 + EARLY)


@given(st.integers(1, 1_000_000), PERIODS, st.floats(0.0, 0.9 * EARLY))
def test_a_timer_that_fires_a_little_early_is_not_set_again_for_the_same_one(
    number: int, period: float, early: float
) -> None:
    assert next_tick((number - early) * period, period) == pytest.approx((number + 1) * period)
