"""A bucket of tokens, checked against counting: never more than it allows, in order, and nothing taken in vain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kube.outcome import TokenBucket

RATES = st.sampled_from([0.1, 1.0, 4.0, 50.0, 1000.0])
GAPS = st.lists(st.sampled_from([0.0, 0.001, 0.2, 1.0, 30.0]), min_size=1, max_size=60)


def test_a_burst_goes_at_once_then_calls_are_spaced() -> None:
    bucket = TokenBucket(10.0, 3)
    assert [bucket.take(5.0, 100.0) for _ in range(5)] == pytest.approx([5.0, 5.0, 5.0, 5.1, 5.2])


def test_a_caller_past_its_deadline_takes_nothing() -> None:
    bucket = TokenBucket(1.0, 1)
    assert bucket.take(0.0, 0.0) == 0.0
    assert bucket.take(0.0, 0.5) is None
    assert bucket.take(0.0, 1.0) == 1.0


def test_a_returned_token_can_be_taken_again() -> None:
    bucket = TokenBucket(1.0, 1)
    bucket.take(0.0, 0.0)
    assert bucket.take(0.0, 1.0) == 1.0
    bucket.give_back()
    assert bucket.take(0.0, 1.0) == 1.0


@given(RATES, st.integers(1, 20), GAPS, st.sampled_from([0.0, 0.5, 3.0, 1e9]))
def test_no_interval_exceeds_rate_and_burst(rate: float, burst: int, gaps: list[float], patience: float) -> None:
    bucket, now, gone = TokenBucket(rate, burst), 0.0, list[float]()
    for gap in gaps:
        now += gap
        at = bucket.take(now, now + patience)
        if at is not None:
            assert now <= at <= now + patience
            gone.append(at)
    assert gone == sorted(gone)
    for first, began in enumerate(gone):
        for last in range(first, len(gone)):
            assert last - first + 1 <= burst + (gone[last] - began) * rate + 1e-6
