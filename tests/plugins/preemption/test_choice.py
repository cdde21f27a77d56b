"""Which of the candidates is best."""

import pytest

from shared.messages.preemption import Candidate, Victim
from shared.plugins.preemption import best_of


def candidate(node: str, *victims: Victim) -> Candidate:
    return Candidate(node, list(victims))


def victim(priority: int = 0, started: float | None = 0.0, violates: bool = False) -> Victim:
    return Victim("uid", "default/name", priority, started, violates)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param([victim(9), victim(9)], [victim(0, violates=True)], id="fewer violations"),
        pytest.param([victim(3), victim(3), victim(3)], [victim(4)], id="a less important victim"),
        pytest.param([victim(3), victim(1)], [victim(3), victim(2)], id="less important victims together"),
        pytest.param([victim(3)], [victim(3), victim(-100)], id="one who is hardly worth anything adds up, too"),
        pytest.param([victim(3, 20.0)], [victim(3, 10.0)], id="one who has not run for long"),
        pytest.param([victim(3, None)], [victim(3, 10.0)], id="one who has just begun"),
        pytest.param([victim(3, 20.0), victim(1, 0.0)], [victim(3, 10.0), victim(1, 30.0)], id="only the first count"),
        pytest.param(
            [victim(3, 20.0), victim(3, 30.0)],
            [victim(3, 10.0), victim(3, 90.0)],
            id="the longest run counts",
        ),
    ],
)
def test_each_criterion(better: list[Victim], worse: list[Victim]) -> None:
    assert [c.node for c in best_of([candidate("worse", *worse), candidate("better", *better)])] == ["better"]


def test_fewer_victims_count_where_the_sums_are_equal() -> None:
    lowest = -(1 << 31)
    best = best_of([candidate("two", victim(5), victim(lowest)), candidate("one", victim(5))])
    assert [c.node for c in best] == ["one"]


def test_ties_are_told() -> None:
    candidates = [candidate(name, victim(3, 5.0)) for name in ("c", "a", "b")]
    assert [c.node for c in best_of(candidates)] == ["a", "b", "c"]
    assert [c.node for c in best_of([candidate(name, victim(3, None)) for name in ("c", "a")])] == ["a", "c"]
    assert best_of([]) == []
