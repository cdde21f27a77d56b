"""Kubernetes quantities: exact amounts of a resource, as written in `requests`, `limits` and `allocatable`."""

import re
from functools import lru_cache

UNIT = 10**9
MILLI = 10**6

_SUFFIXES = {
    "n": 1,
    "u": 10**3,
    "m": MILLI,
    "": UNIT,
    "k": UNIT * 10**3,
    "M": UNIT * 10**6,
    "G": UNIT * 10**9,
    "T": UNIT * 10**12,
    "P": UNIT * 10**15,
    "E": UNIT * 10**18,
}
_BINARY_SUFFIXES = {
    "Ki": UNIT << 10,
    "Mi": UNIT << 20,
    "Gi": UNIT << 30,
    "Ti": UNIT << 40,
    "Pi": UNIT << 50,
    "Ei": UNIT << 60,
}
_BINARY_LIMIT = (2**63 - 1) * UNIT

_PATTERN = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([A-Za-z]*(?:(?<=[eE])[+-]?[0-9]+)?)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
# far beyond any real amount; without a limit a few characters could ask for gigabytes of digits
_MAX_DIGITS = 1000
_MAX_EXPONENT = 1000


class Quantity(int):
    """An exact amount, counted in billionths (nano-units) of the resource's unit.

    Arithmetic and comparisons are those of int; arithmetic returns plain ints.
    """

    __slots__ = ()

    @property
    def value(self) -> int:
        """The amount in whole units, rounded away from zero."""
        return _divide(self, UNIT)

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero."""
        return _divide(self, MILLI)

    def __str__(self) -> str:
        """The shortest exact decimal form, such as `2`, `100m` or `1500n`; parses back to the same quantity."""
        return _shortest(int(self))

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"


class QuantityText(str):
    """A quantity as its author wrote it: an allocation repeats it in these words."""

    __slots__ = ()

    @property
    def amount(self) -> Quantity:
        return parse_quantity(str(self))


@lru_cache(maxsize=1 << 16)
def _shortest(amount: int) -> str:
    for suffix in ("", "m", "u"):
        if not amount % _SUFFIXES[suffix]:
            return f"{amount // _SUFFIXES[suffix]}{suffix}"
    return f"{amount}n"


@lru_cache(maxsize=1 << 16)
def parse_quantity(text: str | int | float) -> Quantity:
    """Parse a string or a JSON number.

    Fractions finer than a billionth round away from zero, and amounts with a binary suffix are capped at 2^63-1 units.
    Raises ValueError with the reason if the text is no quantity.
    """
    if isinstance(text, int):
        return Quantity(text * UNIT)
    source = text.strip() if isinstance(text, str) else repr(text)
    match = _PATTERN.fullmatch(source)
    if match is None:
        raise ValueError(
            f"{source!r} is not a quantity: expected a number with an optional suffix, such as 500m or 2Gi"
        )
    sign, whole, fraction, suffix = match.groups(default="")
    digits = whole + fraction
    if not digits:
        raise ValueError(f"{source!r} is not a quantity: it has no digits")
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a quantity of {len(digits)} digits is too long: at most {_MAX_DIGITS} are accepted")
    amount = _scale(int(digits), len(fraction), suffix, source)
    return Quantity(-amount if sign == "-" else amount)


def _scale(mantissa: int, decimals: int, suffix: str, source: str) -> int:
    """Nano-units of mantissa / 10**decimals times the suffix, rounded up."""
    if suffix in _BINARY_SUFFIXES:
        return min(_round_up(mantissa * _BINARY_SUFFIXES[suffix], 10**decimals), _BINARY_LIMIT)
    if suffix in _SUFFIXES:
        return _round_up(mantissa * _SUFFIXES[suffix], 10**decimals)
    exponent_text = _EXPONENT.fullmatch(suffix)
    if exponent_text is None:
        raise ValueError(f"{source!r} is not a quantity: unknown suffix {suffix!r}")
    if len(exponent_text[1]) > len(str(_MAX_EXPONENT)) + 1 or abs(int(exponent_text[1])) > _MAX_EXPONENT:
        raise ValueError(f"{source!r} is not a quantity: exponent out of range")
    exponent = int(exponent_text[1])
    if exponent < 0:
        return _round_up(mantissa * UNIT, 10 ** (decimals - exponent))
    return _round_up(mantissa * UNIT * 10**exponent, 10**decimals)


def _round_up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def _divide(amount: int, unit: int) -> int:
    return amount // unit if amount < 0 else -(-amount // unit)
