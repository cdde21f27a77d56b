"""Words the syntax errors of a wrong expression, as cel-go's generated parser does, and mends its tokens.

That parser recovers from errors: it drops or invents a single token, or skips tokens until some rule in progress can go
on. To find the same errors, the grammar is kept as data, and a small interpreter follows it with ANTLR's strategy.
The mended tokens are those of a correct expression, whose tree is the one that cel-go goes on with.
"""

from collections import Counter

from shared.cel.errors import MAX_NESTING, MISSING_PART, ExpressionSource, LimitError
from shared.cel.grammar import (
    BINDING,
    GRAMMAR,
    ChoicePart,
    GrammarPart,
    Kinds,
    OptionalPart,
    RepeatedPart,
    RulePart,
    TokenPart,
    starts,
)
from shared.cel.lexer import EOF, KINDS, MISSING, NAMED_KINDS, Token, escaped, text_between

MAX_RECOVERIES = 30
"""Recoveries before the parser gives up on an expression."""
MAX_SKIPPED = 256
"""Tokens that one recovery may skip."""
ARGUMENTS = [part for loop in GRAMMAR["expressions"] if isinstance(loop, RepeatedPart) for part in loop.body]
"""What may come after the first argument of a call."""
_INDISPENSABLE = ("unary", "primary", "field-name")
"""Rules that match at least a token, and in whose place a missing part may stand."""


class _Failed(Exception):
    """The rule in progress cannot go on."""


class _GivenUp(Exception):
    pass


def mended_tokens(source: ExpressionSource, tokens: list[Token]) -> list[Token]:
    """Report the errors of syntax; the tokens with what they lack, and without those too many."""
    return _Recovery(source, tokens).run()


class _Recovery:
    def __init__(self, source: ExpressionSource, tokens: list[Token]) -> None:
        self._source = source
        self._tokens = tokens
        self._mended: list[Token] = []
        self._at = 0
        self._callers: list[RulePart] = []
        self._depths: Counter[str] = Counter()
        self._recovering = False
        self._recoveries = 0
        self._last_failure: tuple[int, set[int]] = (-1, set())

    def run(self) -> list[Token]:
        try:
            self._rule(RulePart("start"))
        except _GivenUp:
            self._report(f"error recovery attempt limit exceeded: {MAX_RECOVERIES}")
            self._mended = [Token(MISSING, "", MISSING_PART), self._tokens[-1]]
        return self._mended

    def kind(self, ahead: int = 0) -> str:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)].kind

    # Following the grammar.

    def _rule(self, call: RulePart) -> None:
        self._depths[call.rule] += 1
        if self._depths[call.rule] > MAX_NESTING:
            raise LimitError(f"expression recursion limit exceeded: {MAX_NESTING}")
        first, length = self._tokens[self._at], len(self._mended)
        try:
            self._sequence(GRAMMAR[call.rule], call)
        except _Failed as failure:
            if len(self._mended) == length and call.rule in _INDISPENSABLE:
                self._mended.append(Token(MISSING, "", MISSING_PART if call.rule == "primary" else first.offset))
            self._recover(failure.args[0])
        self._depths[call.rule] -= 1

    def _sequence(self, elements: list[GrammarPart], rule: RulePart) -> None:
        length = len(self._mended)
        for index, element in enumerate(elements):
            try:
                match element:
                    case TokenPart():
                        self._match(element)
                    case RulePart():
                        self._callers.append(element)
                        self._rule(element)
                        self._callers.pop()
                    case OptionalPart():
                        self._synchronize(element, starts(element.body) | element.follow, element.ends)
                        if self.kind() in starts(element.body) and self._enters(element.body):
                            self._sequence(element.body, rule)
                    case ChoicePart():
                        self._choose(element, rule)
                    case RepeatedPart():
                        self._repeat(element, rule)
            except _Failed:
                if isinstance(element, TokenPart) and rule.rule in ("entries", "fields"):
                    del self._mended[length:]  # an entry without a colon counts for nothing
                else:
                    self._complete(elements[index:])
                raise

    def _complete(self, elements: list[GrammarPart]) -> None:
        """Add the least that the elements of a rule stand for."""
        for element in elements:
            if isinstance(element, TokenPart):
                self._mended.append(Token(min(element.kinds), "", self._tokens[self._at].offset))
            elif isinstance(element, RulePart):
                self._mended.append(Token(MISSING, "", MISSING_PART))

    def _choose(self, choice: ChoicePart, rule: RulePart) -> None:
        kinds: Kinds = frozenset().union(*(starts(each) for each in choice.alternatives))
        self._synchronize(choice, kinds, ends=False)
        chosen = choice.predict(self.kind)
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
                message = f"no viable alternative at input '{escaped(text)}'"
            self._syntax_error(offending.offset, message)
        return _Failed(id(decision))

    def _repeat(self, loop: RepeatedPart, rule: RulePart) -> None:
        first = starts(loop.body)
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
        self._mended.append(self._tokens[self._at])
        self._at += 1
        self._recovering = False
        right = loop.body[1]
        assert isinstance(right, RulePart)
        binding = BINDING[self._mended[-1].kind]
        self._callers.append(right)
        self._rule(RulePart(right.rule, binding + 1))
        self._callers.pop()

    def _continues(self, loop: RepeatedPart, precedence: int) -> bool:
        if loop.operators:
            return BINDING[self.kind()] >= precedence
        if self.kind() == "-" and self.kind(1) not in starts(loop.body) | loop.follow:
            raise self._no_alternative(loop)  # neither another sign nor a negative number
        return self._enters(loop.body)

    def _enters(self, body: list[GrammarPart]) -> bool:
        """Whether a comma starts another element, and does not just end the list; arguments never end with one."""
        if self.kind() != "," or len(body) < 2 or body[1] in ARGUMENTS:
            return True
        return self.kind(1) in starts(body[1:])

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
            self._complete([terminal])
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
        if self.kind(1) not in kinds or self.kind() == EOF:
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
        start = self._at
        index, states = self._last_failure
        if index == self._at and state in states:
            self._consume()  # the second failure in the same place: go on behind it
        self._last_failure = (self._at, states | {state} if index == self._at else {state})
        self._skip_until(self._recovery_set())
        if self._at - start > MAX_SKIPPED:
            raise LimitError(f"error recovery token lookahead limit exceeded: {MAX_SKIPPED}")

    def _recovery_set(self) -> Kinds:
        return frozenset().union(*(caller.follow for caller in self._callers))

    def _following(self) -> Kinds:
        """What may follow the rule in progress."""
        kinds: Kinds = frozenset()
        for caller in reversed(self._callers):
            kinds |= caller.follow
            if not caller.ends:
                return kinds
        return kinds | {EOF}

    def _skip_until(self, kinds: Kinds) -> None:
        while self.kind() != EOF and self.kind() not in kinds:
            self._consume()

    def _succeed(self) -> None:
        self._succeeded()
        self._mended.append(self._tokens[self._at])
        self._consume()

    def _succeeded(self) -> None:
        self._recovering = False
        self._last_failure = (-1, set())

    def _consume(self) -> None:
        if self.kind() != EOF:
            self._at += 1

    def _count_recovery(self) -> None:
        self._recoveries += 1
        if self._recoveries > MAX_RECOVERIES:
            raise _GivenUp

    def _current(self) -> str:
        return f"'{escaped(self._tokens[self._at].text)}'" if self.kind() != EOF else "'<EOF>'"

    def _report(self, message: str) -> None:
        self._syntax_error(self._tokens[self._at].offset, message)

    def _syntax_error(self, offset: int, message: str) -> None:
        self._source.report(offset, f"Syntax error: {message}")


def _shown(kinds: Kinds) -> str:
    names = [kind if kind in NAMED_KINDS else f"'{kind}'" for kind in sorted(kinds, key=KINDS.index)]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
