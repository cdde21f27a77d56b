"""The grammar of CEL as data, for the wording of syntax errors: rules, and what may follow each of their parts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from shared.cel.lexer import BYTES, ESCAPED_IDENTIFIER, FLOAT, IDENTIFIER, INT, STRING, UINT

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

_RULES = {
    "start": "expression <EOF>",
    "expression": "or [ '?' or ':' expression ]",
    "or": "and { '||' and }",
    "and": "relation { '&&' relation }",
    "relation": "calculation { RELATION relation }",
    "calculation": "unary { CALCULATION calculation }",
    "unary": "( member | '!' + member | '-' + member )",
    "member": "primary { ( '.' [ '?' ] field-name | '.' IDENTIFIER '(' [ expressions ] ')'"
    " | '[' [ '?' ] expression ']' ) }",
    "primary": "( [ '.' ] IDENTIFIER | [ '.' ] IDENTIFIER '(' [ expressions ] ')' | '(' expression ')'"
    " | '[' [ elements ] [ ',' ] ']' | '{' [ entries ] [ ',' ] '}'"
    " | [ '.' ] IDENTIFIER { '.' IDENTIFIER } '{' [ fields ] [ ',' ] '}' | literal )",
    "expressions": "expression { ',' expression }",
    "elements": "optional-expression { ',' optional-expression }",
    "entries": "optional-expression ':' expression { ',' optional-expression ':' expression }",
    "optional-expression": "[ '?' ] expression",
    "fields": "optional-field ':' expression { ',' optional-field ':' expression }",
    "optional-field": "[ '?' ] field-name",
    "field-name": "( IDENTIFIER | ESC_IDENTIFIER )",
    "literal": "( [ '-' ] NUM_INT | [ '-' ] NUM_FLOAT | VALUE )",
}
"""Tokens are quoted, or named if their text varies; [] are optional, {} are repeated, + is once or more."""
_TOKEN_SETS = {
    "RELATION": frozenset(RELATIONS),
    "CALCULATION": frozenset((*SUMS, *PRODUCTS)),
    "VALUE": frozenset((UINT, STRING, BYTES, "true", "false", "null")),
}
_PREDICTIONS = {
    "unary": _predict_unary,
    "member": _predict_suffix,
    "primary": _predict_primary,
    "field-name": lambda kind: {IDENTIFIER: 0, ESCAPED_IDENTIFIER: 1}.get(kind(0)),
    "literal": _predict_literal,
}


def _parts(rule: str, words: list[str]) -> list[GrammarPart]:
    """The parts that words describe, up to a closing bracket or another alternative."""
    parts: list[GrammarPart] = []
    while words and words[0] not in ("]", "}", ")", "|"):
        match words.pop(0):
            case "[":
                parts += [OptionalPart(body) for body in _enclosed(rule, words)]
            case "{":
                operators = words[0] in ("RELATION", "CALCULATION")
                parts += [RepeatedPart(body, operators=operators) for body in _enclosed(rule, words)]
            case "(":
                parts.append(ChoicePart(_enclosed(rule, words), _PREDICTIONS[rule]))
            case "+":
                parts.append(RepeatedPart([parts.pop()], minimum=1))
            case word if word in _RULES:
                parts.append(RulePart(word))
            case word:
                parts.append(TokenPart(_TOKEN_SETS.get(word) or frozenset({word.strip("'")})))
    return parts


def _enclosed(rule: str, words: list[str]) -> list[list[GrammarPart]]:
    """The alternatives between brackets."""
    alternatives = [_parts(rule, words)]
    while words.pop(0) == "|":
        alternatives.append(_parts(rule, words))
    return alternatives


GRAMMAR = {rule: _parts(rule, text.split()) for rule, text in _RULES.items()}


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


def _first_of(element: GrammarPart) -> tuple[Kinds, bool]:
    match element:
        case TokenPart():
            return element.kinds, False
        case RulePart():
            return _first_of_rule(element.rule)
        case OptionalPart():
            return starts(element.body), True
        case RepeatedPart():
            return starts(element.body), element.minimum == 0
        case ChoicePart():
            return frozenset().union(*(starts(each) for each in element.alternatives)), False
    raise TypeError(f"unknown element {type(element).__name__}")


@cache
def _first_of_rule(rule: str) -> tuple[Kinds, bool]:
    return _first(GRAMMAR[rule])


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
