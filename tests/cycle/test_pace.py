"""When rounds that are not full begin."""

import pytest

from services.cycle.core import PAUSE_PER_RATE
from services.cycle.events import Tick
from services.cycle.service import LONGEST_PAUSE
from shared.pace import Pace
from tests.rounds.script import Script, asked, written
from tests.rounds.support import small_pod

LONGEST = LONGEST_PAUSE


def rounds(pace: Pace, rate: float, seconds: float) -> list[int]:
    """The sizes of the rounds, if pods come at this rate, and a round begins as soon as it may."""
    sizes: list[int] = []
    waiting, due = 0, 0.0
    for i in range(int(rate * seconds)):
        at = i / rate
        while waiting and due <= at:
            pace.began(waiting, due)
            sizes.append(waiting)
            waiting, due = 0, pace.not_before
        waiting += 1
        due = max(due, at)
    return sizes


def test_pods_that_come_20_ms_apart_are_decided_one_by_one() -> None:
    assert set(rounds(Pace(LONGEST, PAUSE_PER_RATE), 50, 4)) == {1}


@pytest.mark.parametrize(("rate", "per_second"), [(150, 60), (300, 41), (1000, 41)])
def test_rounds_get_fuller_with_the_rate_and_not_more(rate: int, per_second: int) -> None:
    sizes = rounds(Pace(LONGEST, PAUSE_PER_RATE), rate, 4)[50:]
    assert sum(sizes) / len(sizes) >= rate / per_second


def test_after_a_burst_a_lone_pod_is_decided_at_once() -> None:
    pace = Pace(LONGEST, PAUSE_PER_RATE)
    pace.began(5_000, 10.0)
    assert pace.not_before == 10.0 + LONGEST
    pace.began(1, 13.0)
    assert pace.not_before < 13.005


def test_a_clock_that_does_not_move_does_no_harm() -> None:
    pace = Pace(LONGEST, PAUSE_PER_RATE)
    for _ in range(3):
        pace.began(1, 1.0)
    assert 1.0 < pace.not_before < 1.0 + LONGEST


def test_pods_that_come_during_the_pause_share_the_next_round() -> None:
    script = Script("w", longest_pause=LONGEST)
    asks = script.submit(*(small_pod(f"first-{i}") for i in range(100)))
    commit = written(script.settle(asks, w=[(f"n{i}", 9) for i in range(100)]))
    script.committed(commit)
    assert script.submit(small_pod("second")) == {}
    script.now = LONGEST / 2
    assert script.submit(small_pod("third")) == {}
    script.now = script.core.next_deadline() or 0.0
    assert script.now == pytest.approx(LONGEST)
    (ask,) = asked(script.handle(Tick()))["w"].classes
    assert ask.count == 2
