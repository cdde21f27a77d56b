"""Quantities with the arithmetic of Kubernetes' `resource.QuantityValue`.

An amount is a 64-bit integer times a power of ten as long as it fits, and a decimal of any size otherwise. Expressions
see the difference: only the first kind can be turned into an integer.
"""

import re
from dataclasses import dataclass, field

WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
WRONG_NUMBER = "unable to parse numeric part of quantity"
WRONG_SUFFIX = "unable to parse quantity's suffix"

_TEXT = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SMALLEST = -9
_FAST_DIGITS = 18
_MAX_INT = 2**63 - 1
_MAX_EXPONENT = 2000
"""Larger exponents are cut: numbers with more digits would take long, and order the same."""
_MAX_DIGITS = 2000


@dataclass(frozen=True, slots=True)
class QuantityValue:
    """`unscaled` times 10 to the power of `scale`. `big` amounts are beyond 64 bits, or were at some time.

    `computed` quantities are results of arithmetic; cel-go does not take them on the right of `==`.
    """

    unscaled: int
    scale: int
    big: bool = False
    computed: bool = False
    format: str = field(default="decimal", compare=False)
    """How it is written: `decimal`, `binary`, or with an `exponent`."""

    def compare(self, other: "QuantityValue") -> int:
        scale = min(self.scale, other.scale)
        one, two = self._at_scale(scale), other._at_scale(scale)
        return (one > two) - (one < two)

    @property
    def sign(self) -> int:
        return (self.unscaled > 0) - (self.unscaled < 0)

    @property
    def integer(self) -> int | None:
        if self.big or self.scale < 0:
            return None
        value = self._at_scale(0)
        return value if _fits(value) else None

    @property
    def approximate(self) -> float:
        try:
            return float(self.unscaled) * 10.0**self.scale if self.scale else float(self.unscaled)
        except OverflowError:
            return float("inf") if self.unscaled > 0 else float("-inf")

    @property
    def text(self) -> str:
        """As Kubernetes writes it, with the largest suffix that leaves whole numbers."""
        if not self.unscaled:
            return "0"
        whole = self._at_scale(0) if self.scale >= 0 else self.unscaled // 10**-self.scale
        if self.format == "binary" and self._is_whole and abs(whole) >= 1024:
            power = 0
            while whole % 1024 == 0:
                whole, power = whole // 1024, power + 1
            return f"{whole}{('', *_BINARY)[power]}"
        amount, exponent = self.unscaled, self.scale
        while amount % 10 == 0:
            amount, exponent = amount // 10, exponent + 1
        amount, exponent = amount * 10 ** (exponent % 3), exponent - exponent % 3
        if self.format == "exponent":
            return f"{amount}e{exponent}" if exponent else str(amount)
        return str(amount) + next((suffix for suffix, of in _DECIMAL.items() if of == exponent), "")

    @property
    def _is_whole(self) -> bool:
        return self.scale >= 0 or self.unscaled % 10**-self.scale == 0

    def add(self, other: "QuantityValue") -> "QuantityValue":
        written = self.format if self.unscaled else other.format
        if not self.big and not other.big:
            if not other.unscaled:
                return QuantityValue(self.unscaled, self.scale, computed=True, format=self.format)
            if not self.unscaled:
                return QuantityValue(other.unscaled, other.scale, computed=True, format=written)
        scale = min(self.scale, other.scale)
        one, two = self._at_scale(scale), other._at_scale(scale)
        big = self.big or other.big or not all(map(_fits, (one, two, one + two)))
        return QuantityValue(one + two, scale, big, computed=True, format=written)

    def subtract(self, other: "QuantityValue") -> "QuantityValue":
        if not self.big and not other.big and other.unscaled == -_MAX_INT - 1:
            wrapped = self.add(other)  # negated in 64 bits, the smallest number is itself
            if not wrapped.big:
                return wrapped
        return self.add(QuantityValue(-other.unscaled, other.scale, other.big, format=other.format))

    def _at_scale(self, scale: int) -> int:
        factor: int = 10 ** (self.scale - scale)
        return self.unscaled * factor


def _fits(value: int) -> bool:
    return -_MAX_INT - 1 <= value <= _MAX_INT


def parse(text: str) -> QuantityValue:
    """The quantity that a text denotes; ValueError with Kubernetes' reason if it denotes none."""
    if not text:
        raise ValueError(WRONG_FORMAT)
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(WRONG_FORMAT)
    sign, whole, fraction, suffix = match.groups(default="")
    if len(whole) + len(fraction) > _MAX_DIGITS:
        raise ValueError(WRONG_NUMBER)
    minus = -1 if sign == "-" else 1
    unscaled, decimals = int((whole or "0") + fraction), len(fraction)
    if suffix in _BINARY:
        return _binary(minus, whole, unscaled, decimals, _BINARY[suffix])
    exponent = _exponent(suffix)
    scale = exponent - decimals
    if len(whole or "0") + decimals <= _FAST_DIGITS and scale >= _SMALLEST:
        return QuantityValue(minus * unscaled, scale, format=_format(suffix))
    return _rounded(minus, unscaled, scale, _format(suffix))


def _format(suffix: str) -> str:
    return "decimal" if suffix in _DECIMAL else "exponent"


def _exponent(suffix: str) -> int:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    if suffix[0] not in "eE" or not re.fullmatch(r"[-+]?[0-9]{1,18}", suffix[1:]):
        raise ValueError(WRONG_SUFFIX)
    return max(-_MAX_EXPONENT, min(int(suffix[1:]), _MAX_EXPONENT))


def _binary(minus: int, whole: str, unscaled: int, decimals: int, exponent: int) -> QuantityValue:
    # Estimates, as Kubernetes makes them, whether the product fits 64 bits.
    precision = 15 - len(whole or "0") - exponent * 3 // 10 - 1
    product = unscaled << exponent
    if not decimals and precision >= 0 and _fits(product):
        return QuantityValue(minus * product, 0, format="binary")
    return _rounded(minus, product, -decimals, "binary", most=_MAX_INT)


def _rounded(minus: int, unscaled: int, scale: int, written: str, most: int | None = None) -> QuantityValue:
    """A big amount, rounded away from zero to billionths."""
    if scale < _SMALLEST:
        unscaled, scale = -(-unscaled // 10 ** (_SMALLEST - scale)), _SMALLEST
    if most is not None and unscaled > most * 10 ** max(0, -scale):
        unscaled, scale = most, 0
    return QuantityValue(minus * unscaled, scale, big=True, format=written)
