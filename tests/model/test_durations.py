"""Durations, read and written as Kubernetes does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.durations import LONGEST, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "nanoseconds", "written"),
    [
        ("0", 0, "0s"),
        ("-0", 0, "0s"),
        ("15s", 15 * 10**9, "15s"),
        ("+2m", 120 * 10**9, "2m0s"),
        ("1h", 3600 * 10**9, "1h0m0s"),
        ("1h2m3.5s", 3723_500_000_000, "1h2m3.5s"),
        ("90m", 5400 * 10**9, "1h30m0s"),
        ("1m0.000001s", 60_000_001_000, "1m0.000001s"),
        (".5s", 500_000_000, "500ms"),
        ("1.s", 10**9, "1s"),
        ("1.5us", 1500, "1.5µs"),
        ("1µs", 1000, "1µs"),
        ("1μs", 1000, "1µs"),
        ("3ns", 3, "3ns"),
        ("0.3ns", 0, "0s"),
        ("-1.5h", -5400 * 10**9, "-1h30m0s"),
        ("1s1s", 2 * 10**9, "2s"),
        ("2562047h47m16.854775807s", LONGEST, "2562047h47m16.854775807s"),
        ("-2562047h47m16.854775808s", -LONGEST - 1, "-2562047h47m16.854775808s"),
    ],
)
def test_reading_and_writing(text: str, nanoseconds: int, written: str) -> None:
    assert parse_duration(text).nanoseconds == nanoseconds
    assert format_duration(nanoseconds) == written
    assert str(parse_duration(text)) == written


@pytest.mark.parametrize(
    "text",
    ["", "+", "5", "s", ".s", "1 s", "1d", "1sx", "1.2.3s", "--1s", "1e3s", "१s", "3000000h", "9223372036854775808ns"],
)
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)


@given(st.integers(-LONGEST - 1, LONGEST))
def test_written_values_are_read_back(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)).nanoseconds == nanoseconds
