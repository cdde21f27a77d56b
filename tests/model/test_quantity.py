from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.quantity import Quantity, parse_quantity

NANO = Fraction(1, 10**9)
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
LIMIT = 2**63 - 1


def away_from_zero(amount: Fraction) -> int:
    return ceil(amount) if amount > 0 else floor(amount)


def exact(text: str) -> Fraction:
    return parse_quantity(text) * NANO


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", Fraction(0)),
        ("-0", Fraction(0)),
        ("1", Fraction(1)),
        ("+1", Fraction(1)),
        ("-1", Fraction(-1)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("5.Mi", Fraction(5 << 20)),
        ("00012", Fraction(12)),
        ("100m", Fraction(1, 10)),
        ("1.5Gi", Fraction(3 << 29)),
        ("0.5Ki", Fraction(512)),
        ("1e3", Fraction(1000)),
        ("1E3", Fraction(1000)),
        ("1E", Fraction(10**18)),
        ("1Ei", Fraction(1 << 60)),
        ("12e-3", Fraction(12, 1000)),
        ("12E+6", Fraction(12 * 10**6)),
        ("1.25k", Fraction(1250)),
        ("100n", Fraction(100, 10**9)),
        ("7u", Fraction(7, 10**6)),
        (" 5 ", Fraction(5)),
        ("1e30", Fraction(10**30)),
    ],
)
def test_parsing(text: str, amount: Fraction) -> None:
    assert exact(text) == amount


@pytest.mark.parametrize("text", ["0.1n", "1e-20", ".0000000001", "0.0000000000001Ki", "1e-1000"])
def test_finer_than_nano_counts_as_one_nano(text: str) -> None:
    assert parse_quantity(text) == 1
    assert parse_quantity(f"-{text}") == -1


def test_binary_amounts_are_capped_and_decimal_ones_are_not() -> None:
    assert parse_quantity("8Ei").value == LIMIT
    assert parse_quantity("-100Ei").value == -LIMIT
    assert parse_quantity("10E").value == 10**19


@pytest.mark.parametrize(("number", "amount"), [(2, Fraction(2)), (0.1, Fraction(1, 10)), (1e22, Fraction(10**22))])
def test_json_numbers(number: float, amount: Fraction) -> None:
    assert parse_quantity(number) * NANO == amount


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no digits"),
        (".", "no digits"),
        ("-", "no digits"),
        ("Mi", "no digits"),
        ("abc", "no digits"),
        ("1.1.1", "is not a quantity"),
        ("1+1", "is not a quantity"),
        ("- 1", "is not a quantity"),
        ("1 Gi", "is not a quantity"),
        ("\uff11", "is not a quantity"),
        ("1K", "unknown suffix 'K'"),
        ("1i", "unknown suffix 'i'"),
        ("1mi", "unknown suffix 'mi'"),
        ("1e", "unknown suffix 'e'"),
        ("1GB", "unknown suffix 'GB'"),
        ("1e+", "is not a quantity"),
        ("1Ki5", "is not a quantity"),
        ("1e1000000000", "exponent out of range"),
        ("1e-1000000000", "exponent out of range"),
        ("1e1001", "exponent out of range"),
        ("1" * 5000, "too long"),
        (float("nan"), "no digits"),
        (float("inf"), "no digits"),
    ],
)
def test_malformed(text: str | float, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("+", r"\+")):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("1", 1, 1000),
        ("1m", 1, 1),
        ("1001m", 2, 1001),
        ("1n", 1, 1),
        ("-1n", -1, -1),
        ("-1500m", -2, -1500),
        ("0", 0, 0),
        ("1Mi", 1 << 20, 1000 << 20),
    ],
)
def test_rounding_goes_away_from_zero(text: str, value: int, milli: int) -> None:
    assert parse_quantity(text).value == value
    assert parse_quantity(text).milli == milli


@given(
    st.integers(-(10**12), 10**12),
    st.text("0123456789", max_size=12),
    st.sampled_from([*DECIMAL, *BINARY, "e5", "E-7", "e+2"]),
)
def test_parsing_is_exact_up_to_nano(whole: int, fraction: str, suffix: str) -> None:
    sign = -1 if whole < 0 else 1
    magnitude = abs(whole) + (Fraction(int(fraction), 10 ** len(fraction)) if fraction else 0)
    if suffix in BINARY:
        magnitude = min(Fraction(ceil(magnitude * 2 ** BINARY[suffix] / NANO)) * NANO, Fraction(LIMIT))
    elif suffix in DECIMAL:
        magnitude *= Fraction(10) ** DECIMAL[suffix]
    else:
        magnitude *= Fraction(10) ** int(suffix[1:])
    text = f"{'-' if whole < 0 else ''}{abs(whole)}.{fraction}{suffix}"
    assert parse_quantity(text) == away_from_zero(sign * magnitude / NANO)


@given(st.integers(-(10**25), 10**25), st.integers(-(10**25), 10**25))
def test_arithmetic_and_rounding_agree_with_fractions(left: int, right: int) -> None:
    a, b = Quantity(left), Quantity(right)
    assert (a + b) * NANO == left * NANO + right * NANO
    assert (a < b) == (left * NANO < right * NANO)
    assert a.value == away_from_zero(left * NANO)
    assert a.milli == away_from_zero(left * NANO * 1000)


@given(st.integers(-(10**30), 10**30))
def test_the_text_of_a_quantity_parses_back(amount: int) -> None:
    assert parse_quantity(str(Quantity(amount))) == amount


@pytest.mark.parametrize(
    ("amount", "text"), [(1500, "1500n"), (2 * 10**9, "2"), (10**8, "100m"), (5000, "5u"), (0, "0")]
)
def test_the_text_is_short(amount: int, text: str) -> None:
    assert str(Quantity(amount)) == text
    assert repr(Quantity(amount)) == f"Quantity('{text}')"
