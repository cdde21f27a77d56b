"""Values of expressions at run time, with CEL's equality and order.

Bool, int, double, string, bytes, null and lists are Python's own values; unsigned integers are a subclass of int.
Errors are values as well, because `&&` and `||` absorb them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from typing import TypeGuard

from shared.cel import types
from shared.cel.quantity import QuantityValue
from shared.cel.types import CelType

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
MAX_UINT = 2**64 - 1
SECOND = 10**9
FIRST_SECOND, LAST_SECOND = -62135596800, 253402300799
"""The range of timestamps: years 1 to 9999, in seconds since 1970."""

Value = object


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class CelError:
    """An error at run time."""

    message: str


NO_SUCH_OVERLOAD = CelError("no such overload")
INTEGER_OVERFLOW = CelError("integer overflow")


def integer(value: int) -> Value:
    return value if MIN_INT <= value <= MAX_INT else INTEGER_OVERFLOW


def unsigned(value: int) -> Value:
    return Uint(value) if 0 <= value <= MAX_UINT else CelError("unsigned integer overflow")


@dataclass(frozen=True, slots=True)
class DurationValue:
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class TimestampValue:
    """A time in nanoseconds since 1970, and the offset of the zone in which it was written, in seconds."""

    nanoseconds: int
    zone: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class OptionalValue:
    value: Value = None
    present: bool = True


NONE = OptionalValue(present=False)


@dataclass(frozen=True, slots=True)
class Semver:
    major: int
    minor: int
    patch: int
    prerelease: tuple[int | str, ...] = ()
    build: str = field(default="", compare=False)

    def __str__(self) -> str:
        prerelease = f"-{'.'.join(map(str, self.prerelease))}" if self.prerelease else ""
        return f"{self.major}.{self.minor}.{self.patch}{prerelease}{f'+{self.build}' if self.build else ''}"

    def order(self) -> tuple[object, ...]:
        # A release comes after its prereleases; numbers come before words.
        parts = tuple((isinstance(part, str), part) for part in self.prerelease)
        return (self.major, self.minor, self.patch, not self.prerelease, parts)


@dataclass(frozen=True, slots=True)
class Ip:
    address: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Cidr:
    address: IPv4Address | IPv6Address
    bits: int


@dataclass(frozen=True, slots=True)
class Url:
    text: str
    """What two equal URLs have in common."""
    scheme: str = field(compare=False)
    host: str = field(compare=False)
    path: str = field(compare=False)
    """Escaped."""
    query: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class NamedFormat:
    name: str
    problems: Callable[[str], list[str]] = field(compare=False)
    regex_size: int = field(compare=False)


def _key(value: Value) -> object:
    """A hashable stand-in for a key of a map. Keys of different types differ."""
    if type(value) is str:
        return value
    if isinstance(value, bool | int | float | bytes):
        return type(value), value
    return "other", id(value)


class CelMap:
    """A map in the order of insertion."""

    __slots__ = ("_entries",)

    def __init__(self, entries: dict[str, Value] | None = None) -> None:
        self._entries: dict[object, tuple[Value, Value]] = {}
        if entries:
            self._entries = {key: (key, value) for key, value in entries.items()}

    def __len__(self) -> int:
        return len(self._entries)

    def insert(self, key: Value, value: Value) -> None:
        self._entries[_key(key)] = (key, value)

    def remove(self, key: Value) -> None:
        self._entries.pop(_key(key), None)

    def items(self) -> Iterator[tuple[Value, Value]]:
        return iter(self._entries.values())

    def find(self, key: Value) -> tuple[Value, bool]:
        """The value of a key, and whether there is one. Numbers find equal numbers of other types."""
        found = self._entries.get(_key(key))
        if found is None and isinstance(key, int | float) and type(key) is not bool:
            for other in (int, Uint):
                if type(key) is not other and _is_whole(key):
                    found = found or self._entries.get((other, other(key)))
        return (None, False) if found is None else (found[1], True)

    def select(self, key: Value) -> tuple[Value, bool]:
        """`find`, for indexing."""
        return self.find(key)


def _is_whole(number: float) -> bool:
    return isinstance(number, int) or (abs(number) < 2**64 and number == int(number))


class Accumulated(list[Value]):
    """The list that a macro builds: adding to it changes it, so that building it takes linear time."""

    __slots__ = ()


class DomainMap(CelMap):
    """Attributes or capacities of a device by domain: an unknown domain selects an empty map."""

    __slots__ = ()

    def select(self, key: Value) -> tuple[Value, bool]:
        value, found = self.find(key)
        return (value, True) if found else (CelMap(), True)


_TYPES: dict[type, tuple[CelType, str]] = {
    bool: (types.BOOL, "types.Bool"),
    int: (types.INT, "types.Int"),
    Uint: (types.UINT, "types.Uint"),
    float: (types.DOUBLE, "types.Double"),
    str: (types.STRING, "types.String"),
    bytes: (types.BYTES, "types.Bytes"),
    type(None): (types.NULL, "types.Null"),
    list: (types.LIST, "*types.baseList"),
    Accumulated: (types.LIST, "cel.list"),
    CelMap: (types.MAP, "*types.baseMap"),
    DomainMap: (types.MAP, "cel.mapper"),
    DurationValue: (types.DURATION, "types.Duration"),
    TimestampValue: (types.TIMESTAMP, "types.Timestamp"),
    CelType: (types.TYPE, "*types.Type"),
    OptionalValue: (types.OPTIONAL, "*types.Optional"),
    QuantityValue: (types.QUANTITY, "cel.Quantity"),
    Semver: (types.SEMVER, "cel.Semver"),
    Ip: (types.IP, "cel.IP"),
    Cidr: (types.CIDR, "cel.CIDR"),
    Url: (types.URL, "cel.URL"),
    NamedFormat: (types.NAMED_FORMAT, "cel.NamedFormat"),
    CelError: (types.ERROR, "cel.!error!"),
}
"""The types of values in CEL and in Go; some errors mention the latter."""


def type_of(value: Value) -> CelType:
    return _TYPES[type(value)][0]


def go_type_name(value: Value) -> str:
    return _TYPES[type(value)][1]


def is_number(value: Value) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and type(value) is not bool


MAX_PARTS = 2_000_000
"""Parts of a value, each counted as often as it is reached. Values that share parts may have any number of them."""


class CostExceededError(Exception):
    """The evaluation costs more than it may."""


def bounded(value: Value) -> Value:
    """The value, unless going through all its parts would take too long: then CostExceededError."""
    pending, parts = [value], 0
    while pending:
        current = pending.pop()
        if isinstance(current, OptionalValue):
            pending.append(current.value)
        elif isinstance(current, list):
            parts += len(current)
            pending += [each for each in current if isinstance(each, list | CelMap | OptionalValue)]
        elif isinstance(current, CelMap):
            parts += len(current)
            pending += [each for pair in current.items() for each in pair if isinstance(each, list | CelMap)]
        if parts > MAX_PARTS:
            raise CostExceededError
    return value


def equal(one: Value, other: Value) -> bool | CelError:
    """CEL's `==`: numbers compare by value, values of different types are unequal."""
    if isinstance(one, list | CelMap | OptionalValue):
        bounded(one)
    return _equal(one, other)


def _equal(one: Value, other: Value) -> bool | CelError:
    if one is None or other is None:
        return one is other
    kind = type(one)
    if kind is str or kind is bytes or kind is bool:
        return type(other) is kind and one == other
    if isinstance(one, int | float):
        return is_number(other) and _same_number(one, other)
    if isinstance(one, list):
        return isinstance(other, list) and _equal_lists(one, other)
    if isinstance(one, CelMap):
        return isinstance(other, CelMap) and _equal_maps(one, other)
    if isinstance(one, CelType):
        return isinstance(other, CelType) and one.name == other.name
    if isinstance(one, OptionalValue):
        if not isinstance(other, OptionalValue) or not (one.present and other.present):
            return isinstance(other, OptionalValue) and one.present == other.present
        return _equal(one.value, other.value)
    if isinstance(one, CelError):
        return one
    if isinstance(one, QuantityValue | Semver | Ip | Cidr | Url | NamedFormat) and type(one) is not type(other):
        if isinstance(other, CelError):
            return other
        return NO_SUCH_OVERLOAD  # values of Kubernetes' own types can only be compared with others of their type
    if isinstance(one, QuantityValue) and isinstance(other, QuantityValue):
        # cel-go recognises only quantities that were not computed on the right.
        return NO_SUCH_OVERLOAD if other.computed else one.compare(other) == 0
    return one == other


def _same_number(one: float, other: float) -> bool:
    """An integer and a double are compared as doubles."""
    if isinstance(one, float) or isinstance(other, float):
        return float(one) == float(other)
    return one == other


def _equal_lists(one: list[Value], other: list[Value]) -> bool | CelError:
    """Errors of elements count as equal."""
    return len(one) == len(other) and all(_equal(*pair) is not False for pair in zip(one, other, strict=True))


def _equal_maps(one: CelMap, other: CelMap) -> bool:
    if len(one) != len(other):
        return False
    for key, value in one.items():
        counterpart, found = other.select(key)
        if not found or _equal(value, counterpart) is False:
            return False
    return True


def compare(one: Value, other: Value) -> int | CelError:
    """-1, 0 or 1 for values that have an order; else an error."""
    if is_number(one) and is_number(other):
        if one != one or other != other:
            return CelError("NaN values cannot be ordered")
        doubles = isinstance(one, float) or isinstance(other, float)
        return _sign(float(one), float(other)) if doubles else _sign(one, other)
    match one, other:
        case (str(), str()) | (bool(), bool()) | (bytes(), bytes()):
            return _sign(one, other)
        case TimestampValue(), TimestampValue():
            return _sign(one.nanoseconds, other.nanoseconds)
        case DurationValue(), DurationValue():
            return _sign(one.nanoseconds, other.nanoseconds)
    return NO_SUCH_OVERLOAD


def _sign(one: object, other: object) -> int:
    return int(one > other) - int(one < other)  # type: ignore[operator]


class PanickedError(Exception):
    """Kubernetes' implementation ends the whole evaluation with this error: `||` does not absorb it."""


def through_go(value: Value) -> Value:
    """A value that cel-go turns into Go's own and back, as it does with the content of an optional variable.

    Values of Kubernetes' types do not survive that, nor do types and nested optionals.
    """
    match value:
        case OptionalValue():
            return through_go(value.value) if value.present else None
        case CelType():
            return value.name
        case QuantityValue():
            kind, text = "*resource.Quantity", value.text
        case Semver():
            kind, text = "semver.Version", str(value)
        case Ip():
            kind, text = "netip.Addr", str(value.address)
        case Cidr():
            kind, text = "netip.Prefix", f"{value.address}/{value.bits}"
        case Url():
            kind, text = "*url.URL", value.text
        case CelError():
            kind, text = "*errors.errorString", value.message
        case _:
            return value
    return CelError(f"unsupported conversion to ref.Val: ({kind}){text}")


def go_double(value: float) -> str:
    """A double as Go's `%g` writes it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    exponent += len(digits) - 1
    minus = "-" if sign else ""
    if value == 0:
        return f"{minus}0"
    if exponent < -4 or exponent >= 6:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        return f"{minus}{text[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    return decimal_text(value)


def decimal_text(value: float) -> str:
    """A double without an exponent, with as few digits as identify it."""
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def go_text(value: Value) -> str:
    """A value as Go's `%v` writes it in errors."""
    return _go_text(bounded(value))


def _go_text(value: Value) -> str:
    match value:
        case None:
            return "NULL_VALUE"
        case bool():
            return "true" if value else "false"
        case float():
            return go_double(value)
        case bytes():
            return f"[{' '.join(map(str, value))}]"
        case list():
            return f"[{', '.join(map(_go_text, value))}]"
        case CelMap():
            return f"{{{', '.join(f'{_go_text(key)}: {_go_text(each)}' for key, each in value.items())}}}"
        case CelError():
            return value.message
        case OptionalValue():
            return f"optional({_go_text(value.value)})" if value.present else "optional.none()"
    return str(value)


ESCAPES = str.maketrans(
    {**dict(zip("\a\b\f\n\r\t\v", (f"\\{letter}" for letter in "abfnrtv"), strict=True)), "\\": "\\\\", '"': '\\"'}
)


def go_quote(text: str) -> str:
    """A string in quotes, as Go's `%q` writes it."""
    return f'"{"".join(map(_quoted_character, text))}"'


def _quoted_character(character: str) -> str:
    code = ord(character)
    if code in ESCAPES:
        return ESCAPES[code]
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
