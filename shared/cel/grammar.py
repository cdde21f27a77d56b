"""The grammar of CEL as data, for the wording of syntax errors: rules, and what may follow each of their parts."""

from collections.abc import Callable
from dataclasses import dataclass, field

from shared.cel.lexer import ESCAPED_IDENTIFIER, FLOAT, IDENTIFIER, INT

Kinds = frozenset[str]
Lookahead = Callable[[int], str]
"""The kind of the next token, or of one that many tokens ahead."""


@dataclass(slots=True, eq=False)
class GrammarPart:
    """A part of a rule. `follow` is what may come next in the rule, and `ends` whether the rule may end there."""

    follow: Kinds = field(default=frozenset(), init=False)
    ends: bool = field(default=True, init=False)


@dataclass(slots=True, eq=False)
class TokenPart(GrammarPart):
    kinds: Kinds


@dataclass(slots=True, eq=False)
class RulePart(GrammarPart):
    rule: str
    precedence: int = 0


@dataclass(slots=True, eq=False)
class OptionalPart(GrammarPart):
    body: list[GrammarPart]


@dataclass(slots=True, eq=False)
class RepeatedPart(GrammarPart):
    """A loop. `minimum` is 0 or 1; `operators` loops check the precedence of the next operator."""

    body: list[GrammarPart]
    minimum: int = 0
    operators: bool = False


@dataclass(slots=True, eq=False)
class ChoicePart(GrammarPart):
    """Alternatives; `predict` picks one by looking ahead, None if none fits."""

    alternatives: list[list[GrammarPart]]
    predict: Callable[[Lookahead], int | None]


def _token(*kinds: str) -> TokenPart:
    """A token of one of these kinds."""
    return TokenPart(frozenset(kinds))


def _expression() -> RulePart:
    return RulePart("expression")


def _separated(element: str) -> list[GrammarPart]:
    return [RulePart(element), RepeatedPart([_token(","), RulePart(element)])]


def _binary(operand: str, operator: str) -> list[GrammarPart]:
    return [RulePart(operand), RepeatedPart([_token(operator), RulePart(operand)])]


def _predict_unary(kind: Lookahead) -> int | None:
    match kind(0):
        case "!":
            return 1
        case "-":
            following = kind(1)
            if following in (INT, FLOAT):
                return 0
            return 2 if following in starts([RulePart("member")]) else None
    return 0 if kind(0) in starts([RulePart("member")]) else None


def _predict_primary(kind: Lookahead) -> int | None:
    first = kind(0)
    if first not in (".", IDENTIFIER):
        others = {"(": 2, "[": 3, "{": 4}
        if first in others:
            return others[first]
        if first == "-" and kind(1) not in (INT, FLOAT):
            return None
        return 6 if first in starts([RulePart("literal")]) else None
    at = 1 if first == "." else 0
    if kind(at) != IDENTIFIER:
        return None
    if kind(at + 1) == "(":
        return 1
    while kind(at + 1) == "." and kind(at + 2) == IDENTIFIER:
        at += 2
    return 5 if kind(at + 1) == "{" else 0


def _predict_suffix(kind: Lookahead) -> int | None:
    if kind(0) == "[":
        return 2
    if kind(1) == IDENTIFIER and kind(2) == "(":
        return 1
    return 0 if kind(1) in ("?", IDENTIFIER, ESCAPED_IDENTIFIER) else None


def _predict_literal(kind: Lookahead) -> int | None:
    sign = 1 if kind(0) == "-" else 0
    return {INT: 0, FLOAT: 1}.get(kind(sign), 2)


RELATIONS = ("==", "!=", "in", "<", "<=", ">=", ">")
SUMS, PRODUCTS = ("+", "-"), ("*", "/", "%")
BINDING = {text: 2 if text in PRODUCTS else 1 for text in (*RELATIONS, *SUMS, *PRODUCTS)}
"""How tightly an operator binds, among those of its rule."""


def _operators(rule: str, *operators: str) -> RepeatedPart:
    return RepeatedPart([_token(*operators), RulePart(rule)], operators=True)


def _name() -> list[GrammarPart]:
    return [OptionalPart([_token(".")]), _token("IDENTIFIER")]


def _call_arguments() -> list[GrammarPart]:
    arguments: list[GrammarPart] = [RulePart("expressions")]
    return [_token("("), OptionalPart(arguments), _token(")")]


def _enclosed(opening: str, contents: str, closing: str) -> list[GrammarPart]:
    trailing_comma = OptionalPart([_token(",")])
    return [_token(opening), OptionalPart([RulePart(contents)]), trailing_comma, _token(closing)]


_MORE_NAMES = RepeatedPart([_token("."), _token("IDENTIFIER")])
_SELECTION: list[GrammarPart] = [
    _token("."),
    OptionalPart([_token("?")]),
    RulePart("field name"),
]
_MEMBER_CALL: list[GrammarPart] = [_token("."), _token("IDENTIFIER"), *_call_arguments()]
_INDEX: list[GrammarPart] = [
    _token("["),
    OptionalPart([_token("?")]),
    _expression(),
    _token("]"),
]

GRAMMAR: dict[str, list[GrammarPart]] = {
    "start": [_expression(), _token("<EOF>")],
    "expression": [
        RulePart("or"),
        OptionalPart([_token("?"), RulePart("or"), _token(":"), _expression()]),
    ],
    "or": _binary("and", "||"),
    "and": _binary("relation", "&&"),
    "relation": [RulePart("calculation"), _operators("relation", *RELATIONS)],
    "calculation": [
        RulePart("unary"),
        _operators("calculation", *SUMS, *PRODUCTS),
    ],
    "unary": [
        ChoicePart(
            [
                [RulePart("member")],
                [RepeatedPart([_token("!")], minimum=1), RulePart("member")],
                [RepeatedPart([_token("-")], minimum=1), RulePart("member")],
            ],
            _predict_unary,
        )
    ],
    "member": [
        RulePart("primary"),
        RepeatedPart([ChoicePart([_SELECTION, _MEMBER_CALL, _INDEX], _predict_suffix)]),
    ],
    "primary": [
        ChoicePart(
            [
                _name(),
                [*_name(), *_call_arguments()],
                [_token("("), _expression(), _token(")")],
                _enclosed("[", "elements", "]"),
                _enclosed("{", "entries", "}"),
                [*_name(), _MORE_NAMES, *_enclosed("{", "fields", "}")],
                [RulePart("literal")],
            ],
            _predict_primary,
        )
    ],
    "expressions": _separated("expression"),
    "elements": _separated("optional expression"),
    "fields": [
        RulePart("optional field"),
        _token(":"),
        _expression(),
        RepeatedPart([_token(","), RulePart("optional field"), _token(":"), _expression()]),
    ],
    "optional field": [OptionalPart([_token("?")]), RulePart("field name")],
    "entries": [
        RulePart("optional expression"),
        _token(":"),
        _expression(),
        RepeatedPart([_token(","), RulePart("optional expression"), _token(":"), _expression()]),
    ],
    "field name": [_token("IDENTIFIER", "ESC_IDENTIFIER")],
    "optional expression": [OptionalPart([_token("?")]), _expression()],
    "literal": [
        ChoicePart(
            [
                [OptionalPart([_token("-")]), _token("NUM_INT")],
                [OptionalPart([_token("-")]), _token("NUM_FLOAT")],
                [_token("NUM_UINT", "STRING", "BYTES", "true", "false", "null")],
            ],
            _predict_literal,
        )
    ],
}


def starts(elements: list[GrammarPart]) -> Kinds:
    """The kinds of tokens with which the elements may start."""
    return _first(elements)[0]


def _first(elements: list[GrammarPart]) -> tuple[Kinds, bool]:
    """The kinds of tokens with which the elements may start; whether they may be empty."""
    kinds: Kinds = frozenset()
    for element in elements:
        kinds_of_element, empty = _first_of(element)
        kinds |= kinds_of_element
        if not empty:
            return kinds, False
    return kinds, True


_FIRST_OF_RULES: dict[str, tuple[Kinds, bool]] = {}


def _first_of(element: GrammarPart) -> tuple[Kinds, bool]:
    match element:
        case TokenPart():
            return element.kinds, False
        case RulePart():
            if element.rule not in _FIRST_OF_RULES:
                _FIRST_OF_RULES[element.rule] = _first(GRAMMAR[element.rule])
            return _FIRST_OF_RULES[element.rule]
        case OptionalPart():
            return starts(element.body), True
        case RepeatedPart():
            return starts(element.body), element.minimum == 0
        case ChoicePart():
            return frozenset().union(*(starts(each) for each in element.alternatives)), False
    raise TypeError(f"unknown element {type(element).__name__}")


def _link(elements: list[GrammarPart], after: Kinds, ends: bool) -> None:
    """Fill in what may follow each element of a rule."""
    for index, element in enumerate(elements):
        rest, empty = _first(elements[index + 1 :])
        element.follow = rest | after if empty else rest
        element.ends = empty and ends
        match element:
            case OptionalPart():
                _link(element.body, element.follow, element.ends)
            case RepeatedPart():
                _link(element.body, starts(element.body) | element.follow, element.ends)
            case ChoicePart():
                for alternative in element.alternatives:
                    _link(alternative, element.follow, element.ends)


for _elements in GRAMMAR.values():
    _link(_elements, frozenset(), ends=True)
