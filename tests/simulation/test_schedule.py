"""Schedules: drawn, printed, read again, and cut down to what it takes to fail."""

import pytest

from shared.errors import UserError
from testing.simulation.drawing import draw
from testing.simulation.running import Result, shrink
from testing.simulation.schedule import Schedule


def test_what_is_printed_is_read_again() -> None:
    schedule = draw(7)
    assert Schedule.read(str(schedule)) == schedule


def test_the_same_seed_draws_the_same_and_another_one_something_else() -> None:
    assert draw(7) == draw(7)
    assert draw(7).entries != draw(8).entries


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "line 1: expected: flotilla-simulation seed=N"),
        ("flotilla-simulation seed=1", "line 1: expected"),
        ("flotilla-simulation seed=x scene=plain round_size=1 seconds=1", "line 1: invalid literal"),
        ("flotilla-simulation seed=1 scene=plain round_size=1 seconds=1\n1 soon kill", "line 2: expected: NUMBER"),
        ("flotilla-simulation seed=1 scene=plain round_size=1 seconds=1\n1 2.0 kill b1", "line 2: expected NAME=VALUE"),
        (
            "flotilla-simulation seed=1 scene=x round_size=1 seconds=9\n1 2.0 luck share=abc",
            "line 2: share: takes a number, not",
        ),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, error: str) -> None:
    with pytest.raises(UserError, match=error):
        Schedule.read(text)


def test_shrinking_leaves_what_it_takes_to_fail() -> None:
    schedule = draw(7)
    guilty = {schedule.entries[3].number, schedule.entries[40].number}

    def play(tried: Schedule) -> Result:
        there = {entry.number for entry in tried.entries}
        return Result(tried.seed, wrong="both are there" if guilty <= there else "")

    shortest, result = shrink(schedule, play(schedule), play, seconds=20.0)
    assert {entry.number for entry in shortest.entries} == guilty
    assert not result.held


def test_shrinking_does_not_settle_for_another_failure() -> None:
    schedule = draw(7)
    last = schedule.entries[-1].number

    def play(tried: Schedule) -> Result:
        there = {entry.number for entry in tried.entries}
        return Result(tried.seed, wrong="the last one is there" if last in there else "something else")

    shortest, _ = shrink(schedule, play(schedule), play, seconds=20.0)
    assert [entry.number for entry in shortest.entries] == [last]
