"""`"...".format([...])`: the clauses of format strings, checked at compile time where possible."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shared.cel.library.conversions import text_of
from shared.cel.syntax import ListNode, MapNode, SyntaxNode
from shared.cel.types import CelType, TypeKind
from shared.cel.values import CelError, CelMap, DurationValue, TimestampValue, Uint, Value, bounded, go_quote, type_of

DEFAULT_PRECISION = 6
MAX_PRECISION = 1000
"""More digits than any double has; a larger precision is cut to this."""

_WANTED = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
    "timestamps, was given",
    "d": "decimal clause can only be used on integers, was given",
    "f": "fixed-point clause can only be used on doubles, was given",
    "e": "scientific clause can only be used on doubles, was given",
    "b": "only integers and bools can be formatted as binary, was given",
    "x": "only integers, byte buffers, and strings can be formatted as hex, was given",
    "o": "octal clause can only be used on integers, was given",
}
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class FormatError(Exception):
    """A format string or an argument that is wrong; with the node to blame, if that is known."""

    def __init__(self, message: str, node: SyntaxNode | None = None) -> None:
        super().__init__(message)
        self.node = node


@dataclass(frozen=True, slots=True)
class Clause:
    verb: str
    precision: int | None

    @property
    def wanted(self) -> str:
        return _WANTED[self.verb.lower()]


def parse_format(text: str, arguments: int, before_run: bool = False) -> Iterator[str | Clause]:
    """Literal text and clauses in turn. FormatError if a clause is wrong or lacks an argument."""
    at = used = 0
    while at < len(text):
        percent = text.find("%", at)
        if percent < 0:
            yield text[at:]
            break
        yield text[at:percent]
        if text.startswith("%%", percent):
            yield "%"
            at = percent + 2
            continue
        missing, ends = used >= arguments, percent + 1 >= len(text)
        if ends and (before_run or not missing):
            raise FormatError("unexpected end of string")
        if missing:
            raise FormatError(f"index {used} out of range")
        clause, at = _clause(text, percent + 1)
        yield clause
        used += 1


def _clause(text: str, at: int) -> tuple[Clause, int]:
    precision = None
    if text[at] == ".":
        end = at + 1
        while end < len(text) and text[end] in "0123456789":
            end += 1
        if end == len(text):
            raise FormatError(_unparsable("error while parsing precision: could not find end of precision specifier"))
        if end == at + 1:
            reason = 'error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
            raise FormatError(_unparsable(f"error while parsing precision: {reason}"))
        precision = min(int(text[at + 1 : end][:10]), MAX_PRECISION)
        at = end
    verb = text[at]
    if verb not in "sdfebxXo":
        raise FormatError(_unparsable(f'unrecognized formatting clause "{verb}"'))
    return Clause(verb, precision), at + 1


def _unparsable(reason: str) -> str:
    return f"could not parse formatting clause: {reason}"


def format_string(text: str, arguments: list[Value]) -> Value:
    try:
        bounded(arguments)
        remaining = iter(arguments)
        parts = parse_format(text, len(arguments))
        return "".join(part if isinstance(part, str) else _apply(part, next(remaining)) for part in parts)
    except FormatError as error:
        return CelError(str(error))


def _apply(clause: Clause, value: Value) -> str:
    try:
        return _VERBS[clause.verb.lower()](clause, value)
    except FormatError as error:
        raise FormatError(f"error during formatting: {error}") from None


def _unfit(clause: Clause, value: Value) -> FormatError:
    return FormatError(f"{clause.wanted} {type_of(value).name}")


def _string(clause: Clause, value: Value) -> str:
    if isinstance(value, list):
        return _list(value)
    if isinstance(value, CelMap):
        return _map(value)
    if value is None:
        return "null"
    text = text_of(value)
    if text is None:
        raise _unfit(clause, value)
    return text


_STRING = Clause("s", None)


def _double(clause: Clause, value: Value) -> float:
    number = _SPECIAL.get(value) if isinstance(value, str) else value
    if not isinstance(number, float):
        raise _unfit(clause, value)
    return number


def _fixed(clause: Clause, value: Value) -> str:
    number = _double(clause, value)
    precision = DEFAULT_PRECISION if clause.precision is None else clause.precision
    return _without_digits(number) or f"{number or 0.0:,.{precision}f}"  # a zero has no sign


def _scientific(clause: Clause, value: Value) -> str:
    number = _double(clause, value)
    special = _without_digits(number)
    if special:
        return special
    mantissa, exponent = f"{number:.{DEFAULT_PRECISION}e}".split("e")
    digits = f"{'-' if exponent.startswith('-') else ''}{exponent[1:]}".translate(_SUPERSCRIPTS)
    return f"{mantissa}\u202f\u00d7\u202f10{digits}"


def _without_digits(number: float) -> str:
    if number != number:
        return "NaN"
    return {float("inf"): "∞", float("-inf"): "-∞"}.get(number, "")


def _whole(clause: Clause, value: Value) -> str:
    """Decimal, octal or binary, the last of which bools have as well."""
    if not isinstance(value, int) or (isinstance(value, bool) and clause.verb != "b"):
        raise _unfit(clause, value)
    return format(int(value), clause.verb)


def _hexadecimal(clause: Clause, value: Value) -> str:
    match value:
        case bool():
            raise _unfit(clause, value)
        case int():
            digits = f"{int(value):x}"
        case str():
            digits = value.encode(errors="surrogatepass").hex()
        case bytes():
            digits = value.hex()
        case _:
            raise _unfit(clause, value)
    return digits.upper() if clause.verb == "X" else digits


_VERBS: dict[str, Callable[[Clause, Value], str]] = {
    "s": _string,
    "d": _whole,
    "f": _fixed,
    "e": _scientific,
    "b": _whole,
    "x": _hexadecimal,
    "o": _whole,
}


def _list(values: list[Value]) -> str:
    return f"[{', '.join(map(_element, values))}]"


def _map(values: CelMap) -> str:
    pairs: list[tuple[str, str]] = []
    for key, value in values.items():
        if not isinstance(key, str | bool | int | Uint):
            raise FormatError(f"no formatting function for map key of type {type_of(key).name}")
        pairs.append((_element(key), _element(value)))
    return f"{{{', '.join(f'{key}:{value}' for key, value in sorted(pairs, key=lambda pair: pair[0]))}}}"


def _element(value: Value) -> str:
    """A value inside a list or map, where strings are quoted."""
    match value:
        case str():
            return go_quote(value)
        case bytes():
            return f"b{go_quote(_string(_STRING, value))}"
        case float():
            special = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(str(value))
            return f'"{special}"' if special else f"{value:.{DEFAULT_PRECISION}f}"
        case TimestampValue():
            return f'timestamp("{text_of(value)}")'
        case DurationValue():
            return f'duration("{text_of(value)}")'
        case None | bool() | int() | CelType() | list() | CelMap():
            return _string(_STRING, value)
    raise FormatError(f"no formatting function for {type_of(value).name}")


# Checks at compile time, of constant format strings with a list of arguments.

_WHOLE_KINDS = frozenset({TypeKind.INT, TypeKind.UINT})
_UNKNOWN_KINDS = frozenset(
    {TypeKind.ANY, TypeKind.DYN, TypeKind.ERROR, TypeKind.OPAQUE, TypeKind.PARAMETER, TypeKind.STRUCT}
)
_FITTING_KINDS = {
    "s": frozenset(TypeKind) - _UNKNOWN_KINDS,
    "d": _WHOLE_KINDS,
    "f": frozenset({TypeKind.DOUBLE, TypeKind.STRING}),
    "e": frozenset({TypeKind.DOUBLE, TypeKind.STRING}),
    "b": _WHOLE_KINDS | {TypeKind.BOOL},
    "x": _WHOLE_KINDS | {TypeKind.STRING, TypeKind.BYTES},
    "o": _WHOLE_KINDS,
}


def check_format(text: str, arguments: Sequence[SyntaxNode]) -> None:
    """Raise FormatError if the arguments do not fit the format string; the first fault from the left counts."""
    remaining = iter(arguments)
    count = 0
    for part in parse_format(text, len(arguments), before_run=True):
        if isinstance(part, Clause):
            count += 1
            unfit = _unfit_node(part.verb.lower(), next(remaining))
            if unfit is not None:
                raise FormatError(f"error during formatting: {part.wanted} {unfit.type.name}", unfit)
    if len(arguments) > count:
        raise FormatError(f"too many arguments supplied to string.format (expected {count}, got {len(arguments)})")


def _unfit_node(verb: str, node: SyntaxNode) -> SyntaxNode | None:
    """The node whose type does not fit: the argument itself, or an element of it."""
    if node.type.kind is not TypeKind.DYN and node.type.kind not in _FITTING_KINDS[verb]:
        return node
    if verb == "s":
        elements: list[SyntaxNode] = []
        if isinstance(node, ListNode):
            elements = node.elements
        elif isinstance(node, MapNode):
            elements = [part for entry in node.entries for part in (entry.key, entry.value)]
        for each in elements:
            unfit = _unfit_node(verb, each)
            if unfit is not None:
                return unfit
    return None
