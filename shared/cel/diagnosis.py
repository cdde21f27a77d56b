"""Words the syntax errors of a wrong expression, as cel-go's generated parser does.

That parser recovers from errors: it drops or invents a single token, or skips tokens until some rule in progress can go
on. To find the same errors, the grammar is kept as data, and a small interpreter follows it with ANTLR's strategy.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.cel.errors import MOST_NESTING, NOWHERE, ExpressionSource, TooDeepError
from shared.cel.lexer import Token, TokenKind, shown, text_between

MOST_RECOVERIES = 30
"""Recoveries before the parser gives up on an expression."""

Kinds = frozenset[TokenKind]


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
    predict: "Callable[[Recovery], int | None]"


class _Failed(Exception):
    """The rule in progress cannot go on."""


class _GivenUp(Exception):
    pass


def report_syntax_errors(source: ExpressionSource, tokens: list[Token]) -> None:
    Recovery(source, tokens).run()


class Recovery:
    def __init__(self, source: ExpressionSource, tokens: list[Token]) -> None:
        self._source = source
        self._tokens = tokens
        self._at = 0
        self._callers: list[RulePart] = []
        self._depths: Counter[str] = Counter()
        self._recovering = False
        self._recoveries = 0
        self._last_failure: tuple[int, set[int]] = (-1, set())

    def run(self) -> None:
        try:
            self._rule(RulePart("start"))
        except _GivenUp:
            self._report(f"error recovery attempt limit exceeded: {MOST_RECOVERIES}")
        except TooDeepError as cause:
            self._source.report(NOWHERE, str(cause))

    def kind(self, ahead: int = 0) -> TokenKind:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)].kind

    # Following the grammar.

    def _rule(self, call: RulePart) -> None:
        self._depths[call.rule] += 1
        if self._depths[call.rule] > MOST_NESTING:
            raise TooDeepError(f"expression recursion limit exceeded: {MOST_NESTING}")
        try:
            self._sequence(GRAMMAR[call.rule], call)
        except _Failed as failure:
            self._recover(failure.args[0])
        self._depths[call.rule] -= 1

    def _sequence(self, elements: list[GrammarPart], rule: RulePart) -> None:
        for element in elements:
            match element:
                case TokenPart():
                    self._match(element)
                case RulePart():
                    self._callers.append(element)
                    self._rule(element)
                    self._callers.pop()
                case OptionalPart():
                    self._synchronize(element, _first(element.body)[0] | element.follow, element.ends)
                    if self.kind() in _first(element.body)[0] and self._enters(element.body):
                        self._sequence(element.body, rule)
                case ChoicePart():
                    self._choose(element, rule)
                case RepeatedPart():
                    self._repeat(element, rule)

    def _choose(self, choice: ChoicePart, rule: RulePart) -> None:
        kinds: Kinds = frozenset().union(*(_first(each)[0] for each in choice.alternatives))
        self._synchronize(choice, kinds, ends=False)
        chosen = choice.predict(self)
        if chosen is None:
            raise self._no_alternative(choice)
        self._sequence(choice.alternatives[chosen], rule)

    def _no_alternative(self, decision: GrammarPart) -> _Failed:
        """Report that the next two tokens fit none of the alternatives."""
        offending = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        text = text_between(self._source, self._tokens[self._at], offending)
        if not self._recovering:
            self._recovering = True
            if text in (".true", ".false", ".null"):
                message = f"mismatched input '{text[1:]}' expecting IDENTIFIER"
            else:
                message = f"no viable alternative at input '{_escaped(text)}'"
            self._syntax_error(offending.offset, message)
        return _Failed(id(decision))

    def _repeat(self, loop: RepeatedPart, rule: RulePart) -> None:
        first = _first(loop.body)[0]
        entered = loop.minimum > 0
        if not entered:
            self._synchronize(loop, first | loop.follow, loop.ends)
        while entered or (self.kind() in first and self._continues(loop, rule.precedence)):
            entered = False
            self._iteration(loop, rule)
            if not (self._recovering or loop.ends or self.kind() in first | loop.follow):
                # What follows an iteration must be another one or what comes after the loop.
                self._unwanted(first | loop.follow)
                self._skip_until(first | loop.follow | self._recovery_set())

    def _iteration(self, loop: RepeatedPart, rule: RulePart) -> None:
        if not loop.operators:
            self._sequence(loop.body, rule)
            return
        # An operator and its right side, which binds tighter.
        self._at += 1
        self._recovering = False
        right = loop.body[1]
        assert isinstance(right, RulePart)
        binding = BINDING[self._tokens[self._at - 1].kind]
        self._callers.append(right)
        self._rule(RulePart(right.rule, binding + 1))
        self._callers.pop()

    def _continues(self, loop: RepeatedPart, precedence: int) -> bool:
        if loop.operators:
            return BINDING[self.kind()] >= precedence
        if self.kind() is TokenKind.MINUS and self.kind(1) not in _first(loop.body)[0] | loop.follow:
            raise self._no_alternative(loop)  # neither another sign nor a negative number
        return self._enters(loop.body)

    def _enters(self, body: list[GrammarPart]) -> bool:
        """Whether a comma starts another element, and does not just end the list."""
        if self.kind() is not TokenKind.COMMA or len(body) < 2:
            return True
        return self.kind(1) in _first(body[1:])[0]

    # ANTLR's strategy for errors.

    def _match(self, terminal: TokenPart) -> None:
        if self.kind() in terminal.kinds:
            self._succeed()
            return
        self._count_recovery()
        if self._drop_one(terminal.kinds):
            self._succeed()
            return
        following = terminal.follow | (self._following() if terminal.ends else frozenset())
        if self.kind() in following:
            if not self._recovering:
                self._recovering = True
                self._report(f"missing {_shown(terminal.kinds)} at {self._current()}")
            return
        self._mismatch(terminal.kinds)
        raise _Failed(id(terminal))

    def _synchronize(self, element: GrammarPart, kinds: Kinds, ends: bool) -> None:
        """Before a decision: the next token must be possible here, or be the only one too many."""
        if self._recovering or ends or self.kind() in kinds:
            return
        if self._drop_one(kinds):
            return
        self._mismatch(kinds)
        raise _Failed(id(element))

    def _drop_one(self, kinds: Kinds) -> bool:
        """Drop a single token if the next one is expected."""
        if self.kind(1) not in kinds or self.kind() is TokenKind.EOF:
            return False
        self._unwanted(kinds)
        self._consume()
        self._succeeded()
        return True

    def _unwanted(self, kinds: Kinds) -> None:
        if not self._recovering:
            self._recovering = True
            self._report(f"extraneous input {self._current()} expecting {_shown(kinds)}")

    def _mismatch(self, kinds: Kinds) -> None:
        if not self._recovering:
            self._recovering = True
            self._report(f"mismatched input {self._current()} expecting {_shown(kinds)}")

    def _recover(self, state: int) -> None:
        self._count_recovery()
        index, states = self._last_failure
        if index == self._at and state in states:
            self._consume()  # the second failure in the same place: go on behind it
        self._last_failure = (self._at, states | {state} if index == self._at else {state})
        self._skip_until(self._recovery_set())

    def _recovery_set(self) -> Kinds:
        return frozenset().union(*(caller.follow for caller in self._callers))

    def _following(self) -> Kinds:
        """What may follow the rule in progress."""
        kinds: Kinds = frozenset()
        for caller in reversed(self._callers):
            kinds |= caller.follow
            if not caller.ends:
                return kinds
        return kinds | {TokenKind.EOF}

    def _skip_until(self, kinds: Kinds) -> None:
        while self.kind() is not TokenKind.EOF and self.kind() not in kinds:
            self._consume()

    def _succeed(self) -> None:
        self._succeeded()
        self._consume()

    def _succeeded(self) -> None:
        self._recovering = False
        self._last_failure = (-1, set())

    def _consume(self) -> None:
        if self.kind() is not TokenKind.EOF:
            self._at += 1

    def _count_recovery(self) -> None:
        self._recoveries += 1
        if self._recoveries > MOST_RECOVERIES:
            raise _GivenUp

    def _current(self) -> str:
        return f"'{_escaped(self._tokens[self._at].text)}'" if self.kind() is not TokenKind.EOF else "'<EOF>'"

    def _report(self, message: str) -> None:
        self._syntax_error(self._tokens[self._at].offset, message)

    def _syntax_error(self, offset: int, message: str) -> None:
        self._source.report(offset, f"Syntax error: {message}")


def _escaped(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def _shown(kinds: Kinds) -> str:
    names = [shown(kind) for kind in sorted(kinds)]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"


# The grammar.


_KINDS = {shown(kind).strip("'"): kind for kind in TokenKind}


def _token(*texts: str) -> TokenPart:
    """One of these tokens."""
    return TokenPart(frozenset(_KINDS[text] for text in texts))


def _expression() -> RulePart:
    return RulePart("expression")


def _separated(element: str) -> list[GrammarPart]:
    return [RulePart(element), RepeatedPart([_token(","), RulePart(element)])]


def _binary(operand: str, operator: str) -> list[GrammarPart]:
    return [RulePart(operand), RepeatedPart([_token(operator), RulePart(operand)])]


def _predict_unary(parser: Recovery) -> int | None:
    match parser.kind():
        case TokenKind.NOT:
            return 1
        case TokenKind.MINUS:
            following = parser.kind(1)
            if following in (TokenKind.INT, TokenKind.FLOAT):
                return 0
            return 2 if following in _first([RulePart("member")])[0] else None
    return 0 if parser.kind() in _first([RulePart("member")])[0] else None


def _predict_primary(parser: Recovery) -> int | None:
    kind = parser.kind()
    if kind not in (TokenKind.DOT, TokenKind.IDENTIFIER):
        others = {TokenKind.LEFT_PARENTHESIS: 2, TokenKind.LEFT_BRACKET: 3, TokenKind.LEFT_BRACE: 4}
        if kind in others:
            return others[kind]
        if kind is TokenKind.MINUS and parser.kind(1) not in (TokenKind.INT, TokenKind.FLOAT):
            return None
        return 6 if kind in _first([RulePart("literal")])[0] else None
    at = 1 if kind is TokenKind.DOT else 0
    if parser.kind(at) is not TokenKind.IDENTIFIER:
        return None
    if parser.kind(at + 1) is TokenKind.LEFT_PARENTHESIS:
        return 1
    while parser.kind(at + 1) is TokenKind.DOT and parser.kind(at + 2) is TokenKind.IDENTIFIER:
        at += 2
    return 5 if parser.kind(at + 1) is TokenKind.LEFT_BRACE else 0


def _predict_suffix(parser: Recovery) -> int | None:
    if parser.kind() is TokenKind.LEFT_BRACKET:
        return 2
    if parser.kind(1) is TokenKind.IDENTIFIER and parser.kind(2) is TokenKind.LEFT_PARENTHESIS:
        return 1
    return 0 if parser.kind(1) in (TokenKind.QUESTION, TokenKind.IDENTIFIER, TokenKind.ESCAPED_IDENTIFIER) else None


def _predict_literal(parser: Recovery) -> int | None:
    sign = 1 if parser.kind() is TokenKind.MINUS else 0
    return {TokenKind.INT: 0, TokenKind.FLOAT: 1}.get(parser.kind(sign), 2)


RELATIONS = ("==", "!=", "in", "<", "<=", ">=", ">")
SUMS, PRODUCTS = ("+", "-"), ("*", "/", "%")
BINDING = {_KINDS[text]: 2 if text in PRODUCTS else 1 for text in (*RELATIONS, *SUMS, *PRODUCTS)}
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


def _first(elements: list[GrammarPart]) -> tuple[Kinds, bool]:
    """The kinds of tokens with which the elements may start, and whether they may be empty."""
    kinds: Kinds = frozenset()
    for element in elements:
        starts, empty = _first_of(element)
        kinds |= starts
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
            return _first(element.body)[0], True
        case RepeatedPart():
            return _first(element.body)[0], element.minimum == 0
        case ChoicePart():
            return frozenset().union(*(_first(each)[0] for each in element.alternatives)), False
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
                _link(element.body, _first(element.body)[0] | element.follow, element.ends)
            case ChoicePart():
                for alternative in element.alternatives:
                    _link(alternative, element.follow, element.ends)


for _elements in GRAMMAR.values():
    _link(_elements, frozenset(), ends=True)
