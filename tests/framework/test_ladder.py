import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shared.framework.ladders import greedy

Curve = list[int]
"""The key of a candidate by how many pods it was given; beyond the end it is full."""


@st.composite
def groups(draw: st.DrawFn) -> list[tuple[list[Curve], int]]:
    """For each group its candidates' curves, all keys distinct, and how many placements it wants."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        shapes = draw(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=7), max_size=6))
        curves = [
            [value * 1000 + owner * 20 + count for count, value in enumerate(shape)]
            for owner, shape in enumerate(shapes)
        ]
        found.append((curves, draw(st.integers(1, 20))))
    return found


def simulated(curves: list[Curve], wanted: int) -> list[tuple[int, int]]:
    """Greed itself: place one pod after another on what is best just then."""
    given_pods = [0] * len(curves)
    placements: list[tuple[int, int]] = []
    while len(placements) < wanted:
        keys = [curve[n] if n < len(curve) else -1 for curve, n in zip(curves, given_pods, strict=True)]
        if not keys or max(keys) < 0:
            break
        best = keys.index(max(keys))
        placements.append((best, keys[best]))
        given_pods[best] += 1
    return placements


def climbed(found: list[tuple[list[Curve], int]]) -> list[tuple[int, int]]:
    curves = [curve for of_group, _ in found for curve in of_group]
    wanted = np.array([n for _, n in found], dtype=np.int64)
    group = np.repeat(np.arange(len(found), dtype=np.intp), [len(of_group) for of_group, _ in found])
    most = wanted[group]

    def lookahead(which: NDArray[np.intp], own: NDArray[np.int64]) -> NDArray[np.int64]:
        assert ((own >= 1) & (own < most[which])).all()
        keys = [curves[i][n] if n < len(curves[i]) else -1 for i, n in zip(which.tolist(), own.tolist(), strict=True)]
        return np.array(keys, dtype=np.int64)

    first = np.array([curve[0] for curve in curves], dtype=np.int64)
    owner, keys, _ = greedy(first, group, wanted, lookahead)
    return list(zip(owner.tolist(), keys.tolist(), strict=True))


@settings(deadline=None, max_examples=300)
@given(groups())
def test_the_ladder_is_what_greed_would_do(found: list[tuple[list[Curve], int]]) -> None:
    expected, start = [], 0
    for curves, wanted in found:
        expected += [(start + owner, key) for owner, key in simulated(curves, wanted)]
        start += len(curves)
    if start:
        assert climbed(found) == expected


def test_a_node_that_gets_better_is_taken_until_it_is_full() -> None:
    assert climbed([([[10, 30, 50], [40, 35, 20]], 9)]) == [(1, 40), (1, 35), (1, 20), (0, 10), (0, 30), (0, 50)]
    assert climbed([([[45, 60, 50], [40]], 3)]) == [(0, 45), (0, 60), (0, 50)]


def test_full_candidates_end_the_ladder() -> None:
    assert climbed([([[5], [7]], 6)]) == [(1, 7), (0, 5)]


def test_groups_do_not_take_from_each_other() -> None:
    assert climbed([([[5, 4]], 1), ([[9, 8, 7]], 2)]) == [(0, 5), (1, 9), (1, 8)]


def test_a_long_flat_ladder_looks_ahead_in_few_calls() -> None:
    calls = 0

    def lookahead(which: NDArray[np.intp], own: NDArray[np.int64]) -> NDArray[np.int64]:
        nonlocal calls
        calls += 1
        return 10_000 - own

    owner, _, _ = greedy(np.array([10_000]), np.array([0]), np.array([1000]), lookahead)
    assert owner.tolist() == [0] * 1000
    assert calls <= 12
