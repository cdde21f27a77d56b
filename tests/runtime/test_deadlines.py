"""The earliest of deadlines that may be absent."""

from shared.deadlines import earliest


def test_the_first_of_those_that_are_there() -> None:
    assert earliest(3.0, None, 2.0, 4.0) == 2.0
    assert earliest(0.0, 1.0) == 0.0
    assert earliest(None, None) is None
    assert earliest() is None
