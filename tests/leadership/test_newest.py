"""What followers make of terms: which are possible, and when the newest is left for an older one."""

import pytest

from shared.terms import MAX_AHEAD, OLDER_TO_REFUTE, REFUTED_AFTER, TERMS_BEGIN, Heard, Newest, is_possible


def test_older_positions_are_refused_while_the_newest_is_heard() -> None:
    newest = Newest((0, 0))
    assert newest.hear((7, 3), 0.0) is Heard.CURRENT
    for second in range(100):
        assert newest.hear((7, 2), second) is Heard.OLD
        assert newest.hear((6, 9), second) is Heard.OLD
        assert newest.hear((7, 3), second) is Heard.CURRENT
    assert newest.position == (7, 3)


def test_a_newest_position_that_is_not_heard_again_is_left_for_one_that_is() -> None:
    newest = Newest(0)
    newest.hear(1000, 0.0)
    assert newest.hear(7, 1.0) is Heard.OLD
    assert newest.hear(7, 2.0) is Heard.OLD
    assert newest.hear(7, 1.0 + REFUTED_AFTER - 0.1) is Heard.OLD
    assert newest.hear(7, 1.0 + REFUTED_AFTER) is Heard.REFUTED
    assert newest.hear(7, 1.0 + REFUTED_AFTER) is Heard.CURRENT
    assert newest.hear(6, 1.0 + REFUTED_AFTER) is Heard.OLD


def test_a_few_late_messages_refute_nothing() -> None:
    newest = Newest(1000)
    for number in range(OLDER_TO_REFUTE - 1):
        assert newest.hear(7, 1e3 * number) is Heard.OLD
    assert newest.hear(1000, 1e6) is Heard.CURRENT
    assert newest.hear(7, 2e6) is Heard.OLD


@pytest.mark.parametrize("years", [0, 1, 30])
def test_terms_are_possible_up_to_two_years_ahead(years: int) -> None:
    minutes = years * 365 * 24 * 60
    wall = TERMS_BEGIN + 60.0 * minutes
    assert is_possible(minutes + MAX_AHEAD, wall)
    assert not is_possible(minutes + MAX_AHEAD + 1, wall)


def test_a_clock_that_was_never_set_makes_no_present_term_impossible() -> None:
    assert is_possible(500_000, 0.0)
