import numpy as np
import pytest

from flotilla.plugin import ScaleToHighest


@pytest.mark.parametrize(
    ("raw", "scaled", "reverse"),
    [
        ([0, 1, 2, 4], [0, 25, 50, 100], [100, 75, 50, 0]),
        ([1, 3], [33, 100], [67, 0]),
        ([5, 5], [100, 100], [0, 0]),
        ([0, 0], [0, 0], [100, 100]),
        ([10**15], [100], [0]),
    ],
)
def test_the_highest_becomes_a_hundred(raw: list[int], scaled: list[int], reverse: list[int]) -> None:
    scores = np.array(raw, dtype=np.int64)
    low, high = min(raw), max(raw)
    assert ScaleToHighest()(scores, low, high).tolist() == scaled
    assert ScaleToHighest(reversed=True)(scores, low, high).tolist() == reverse
    assert scores.tolist() == raw


def test_the_range_may_be_that_of_more_nodes_than_are_at_hand() -> None:
    scores = np.array([2, 0], dtype=np.int64)
    assert ScaleToHighest()(scores, 0, 8).tolist() == [25, 0]
    assert ScaleToHighest(reversed=True)(scores, 0, 8).tolist() == [75, 100]


def test_a_part_is_scaled_as_the_whole() -> None:
    whole = np.array([3, 9, 4, 1], dtype=np.int64)
    normalizer = ScaleToHighest()
    assert normalizer(whole, 1, 9)[1:3].tolist() == normalizer(whole[1:3], 1, 9).tolist()
