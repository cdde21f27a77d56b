"""Parses an expression into a syntax tree, expanding macros. Size and nesting are bounded as in cel-go.

A wrong expression is parsed a second time, by `diagnosis`, which words the errors.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from shared.cel import literals
from shared.cel.diagnosis import report_syntax_errors
from shared.cel.errors import MOST_NESTING, NOWHERE, ExpressionSource, TooDeepError
from shared.cel.lexer import Token, TokenKind, tokens_of
from shared.cel.macros import MacroError, expand
from shared.cel.syntax import (
    CallNode,
    IdentNode,
    ListNode,
    LiteralNode,
    MapEntry,
    MapNode,
    MessageField,
    SelectNode,
    StructNode,
    SyntaxNode,
)

MOST_CODE_POINTS = 100_000

RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"),
        *("package", "namespace", "null", "return", "true", "var", "void", "while"),
    }
)
_RELATIONS = {
    TokenKind.LESS: "_<_",
    TokenKind.LESS_EQUAL: "_<=_",
    TokenKind.GREATER_EQUAL: "_>=_",
    TokenKind.GREATER: "_>_",
    TokenKind.EQUAL: "_==_",
    TokenKind.NOT_EQUAL: "_!=_",
    TokenKind.IN: "@in",
}
_SUMS = {TokenKind.PLUS: "_+_", TokenKind.MINUS: "_-_"}
_PRODUCTS = {TokenKind.STAR: "_*_", TokenKind.SLASH: "_/_", TokenKind.PERCENT: "_%_"}


class _Unexpected(Exception):
    """A token that the grammar does not allow here."""


def parse(source: ExpressionSource) -> SyntaxNode:
    """The tree of an expression; CompileError if it is not well-formed."""
    size = len(source.text)
    if size > MOST_CODE_POINTS:
        source.report(NOWHERE, f"expression code point size exceeds limit: size: {size}, limit {MOST_CODE_POINTS}")
        source.raise_errors()
    tokens = tokens_of(source)
    parser = _Parser(source, tokens)
    try:
        node = parser.parse()
    except _Unexpected:
        source.forget_errors()
        tokens = tokens_of(source)
        report_syntax_errors(source, tokens)
        parser.report_values(tokens)
        node = LiteralNode(0, None)
    except TooDeepError as cause:
        source.report(NOWHERE, str(cause))
        node = LiteralNode(0, None)
    source.raise_errors()
    return node


class _Parser:
    def __init__(self, source: ExpressionSource, tokens: list[Token]) -> None:
        self._source = source
        self._tokens = tokens
        self._at = 0
        self._depths: Counter[str] = Counter()

    def parse(self) -> SyntaxNode:
        node = self._expression()
        self._take(TokenKind.EOF)
        return node

    def report_values(self, tokens: list[Token]) -> None:
        """Report what is wrong with the values of tokens, after an error of syntax."""
        for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
            selected = before is not None and before.kind is TokenKind.DOT
            if token.kind is TokenKind.IDENTIFIER and token.text in RESERVED and not selected:
                self._source.report(token.offset, f"reserved identifier: {token.text}")
            elif after is not None:
                self._constant(token, token.text)

    # The rules of the grammar, from the loosest binding to the tightest.

    def _expression(self) -> SyntaxNode:
        self._enter("expression")
        node = self._or()
        if self._kind is TokenKind.QUESTION:
            at = self._next().offset
            first = self._or()
            self._take(TokenKind.COLON)
            node = self._call(at, "_?_:_", [node, first, self._expression()], counts=True)
        self._depths["expression"] -= 1
        return node

    def _or(self) -> SyntaxNode:
        terms, offsets = [self._and()], []
        while self._kind is TokenKind.OR:
            offsets.append(self._next().offset)
            terms.append(self._and())
        return _balanced("_||_", terms, offsets)

    def _and(self) -> SyntaxNode:
        terms, offsets = [self._relation()], []
        while self._kind is TokenKind.AND:
            offsets.append(self._next().offset)
            terms.append(self._relation())
        return _balanced("_&&_", terms, offsets)

    def _relation(self) -> SyntaxNode:
        return self._chain("relation", _RELATIONS, self._calculation)

    def _calculation(self) -> SyntaxNode:
        return self._chain("calculation", _SUMS, self._product)

    def _product(self) -> SyntaxNode:
        return self._chain("calculation", _PRODUCTS, self._unary, is_rule=False)

    def _chain(
        self, rule: str, operators: Mapping[TokenKind, str], operand: Callable[[], SyntaxNode], is_rule: bool = True
    ) -> SyntaxNode:
        """Operators of the same binding, from left to right. Right operands are rules of their own."""
        if is_rule:
            self._enter(rule)
        node = operand()
        while self._kind in operators:
            operator = self._next()
            self._enter(rule)
            right = operand()
            self._depths[rule] -= 1
            node = self._call(operator.offset, operators[operator.kind], [node, right], counts=True)
        if is_rule:
            self._depths[rule] -= 1
        return node

    def _unary(self) -> SyntaxNode:
        token = self._token
        if token.kind is TokenKind.NOT:
            count = self._skip_all(TokenKind.NOT)
            operand = self._member()
            return operand if count % 2 == 0 else self._call(token.offset, "!_", [operand])
        if token.kind is TokenKind.MINUS and self._tokens[self._at + 1].kind not in (TokenKind.INT, TokenKind.FLOAT):
            count = self._skip_all(TokenKind.MINUS)
            operand = self._member()
            return operand if count % 2 == 0 else self._call(token.offset, "-_", [operand])
        return self._member()

    def _member(self) -> SyntaxNode:
        self._enter("member")
        node = self._primary()
        while self._kind in (TokenKind.DOT, TokenKind.LEFT_BRACKET):
            operator = self._next()
            if operator.kind is TokenKind.LEFT_BRACKET:
                function = "_[?_]" if self._skip(TokenKind.QUESTION) else "_[_]"
                index = self._expression()
                self._take(TokenKind.RIGHT_BRACKET)
                node = self._call(operator.offset, function, [node, index], counts=True)
            else:
                node = self._selected(node, operator)
        self._depths["member"] -= 1
        return node

    def _selected(self, node: SyntaxNode, dot: Token) -> SyntaxNode:
        """What follows a dot: a field or a call."""
        optional = self._skip(TokenKind.QUESTION)
        name = self._next()
        if name.kind is TokenKind.ESCAPED_IDENTIFIER:
            self._source.report(name.offset, "unsupported syntax: '`'")
        elif name.kind is not TokenKind.IDENTIFIER:
            raise _Unexpected
        if optional:
            selection: SyntaxNode = CallNode(dot.offset, "_?._", None, [node, LiteralNode(name.offset, name.text)])
            return _raised(selection, [node], counts=True)
        if self._kind is TokenKind.LEFT_PARENTHESIS and name.kind is TokenKind.IDENTIFIER:
            opening = self._next()
            return self._call(opening.offset, name.text, self._arguments(), target=node, counts=True)
        return _raised(SelectNode(dot.offset, node, name.text), [node], counts=True)

    def _primary(self) -> SyntaxNode:
        token = self._token
        match token.kind:
            case TokenKind.LEFT_PARENTHESIS:
                self._next()
                node = self._expression()
                self._take(TokenKind.RIGHT_PARENTHESIS)
                return node
            case TokenKind.LEFT_BRACKET:
                return self._list()
            case TokenKind.LEFT_BRACE:
                return self._map()
            case TokenKind.DOT | TokenKind.IDENTIFIER:
                return self._name()
            case TokenKind.MINUS:
                self._next()
                number = self._next()
                if number.kind not in (TokenKind.INT, TokenKind.FLOAT):
                    raise _Unexpected
                return LiteralNode(token.offset, self._constant(number, f"-{number.text}", token.offset))
        if token.kind not in _CONSTANTS:
            raise _Unexpected
        self._next()
        return LiteralNode(token.offset, self._constant(token, token.text))

    def _name(self) -> SyntaxNode:
        """An identifier, a call of a function, or a message such as `google.protobuf.Duration{seconds: 1}`."""
        start = self._token
        leading_dot = "." if self._skip(TokenKind.DOT) else ""
        length = self._message_name_length()
        if length:
            names = [self._next().text for _ in range(length)]
            return self._message(leading_dot + "".join(names))
        name = self._take(TokenKind.IDENTIFIER)
        if name.text in RESERVED:
            return self._reserved(start.offset, name.text)
        if self._kind is TokenKind.LEFT_PARENTHESIS:
            opening = self._next()
            return self._call(opening.offset, leading_dot + name.text, self._arguments())
        return IdentNode(name.offset, leading_dot + name.text)

    def _reserved(self, offset: int, name: str) -> SyntaxNode:
        """Report a reserved word. What is wrong in the arguments of a call does not count besides."""
        self._source.report(offset, f"reserved identifier: {name}")
        if self._skip(TokenKind.LEFT_PARENTHESIS):
            with self._source.errors_ignored():
                self._arguments()
        return LiteralNode(offset, None)

    def _message_name_length(self) -> int:
        """Tokens of the name before a `{`; 0 if no message starts here."""
        at = self._at
        while self._tokens[at].kind is TokenKind.IDENTIFIER:
            at += 1
            if self._tokens[at].kind is TokenKind.LEFT_BRACE:
                return at - self._at
            if self._tokens[at].kind is not TokenKind.DOT:
                return 0
            at += 1
        return 0

    def _message(self, name: str) -> SyntaxNode:
        opening = self._take(TokenKind.LEFT_BRACE)
        fields: list[MessageField] = []
        while self._more(bool(fields), TokenKind.RIGHT_BRACE):
            optional = self._skip(TokenKind.QUESTION)
            label = self._next()
            if label.kind is TokenKind.ESCAPED_IDENTIFIER:
                self._source.report(label.offset, "unsupported syntax: '`'")
            elif label.kind is not TokenKind.IDENTIFIER:
                raise _Unexpected
            colon = self._take(TokenKind.COLON)
            fields.append(MessageField(colon.offset, label.text, self._expression(), optional))
        self._take(TokenKind.RIGHT_BRACE)
        return _raised(StructNode(opening.offset, name, fields), [each.value for each in fields])

    def _list(self) -> SyntaxNode:
        opening = self._next()
        elements: list[SyntaxNode] = []
        optional: set[int] = set()
        while self._more(bool(elements), TokenKind.RIGHT_BRACKET):
            if self._skip(TokenKind.QUESTION):
                optional.add(len(elements))
            elements.append(self._expression())
        self._take(TokenKind.RIGHT_BRACKET)
        return _raised(ListNode(opening.offset, elements, frozenset(optional)), elements)

    def _map(self) -> SyntaxNode:
        opening = self._next()
        entries: list[MapEntry] = []
        while self._more(bool(entries), TokenKind.RIGHT_BRACE):
            optional = self._skip(TokenKind.QUESTION)
            key = self._expression()
            colon = self._take(TokenKind.COLON)
            entries.append(MapEntry(colon.offset, key, self._expression(), optional))
        self._take(TokenKind.RIGHT_BRACE)
        return _raised(MapNode(opening.offset, entries), [part for each in entries for part in (each.key, each.value)])

    def _more(self, any_before: bool, closing: TokenKind) -> bool:
        """Whether another element follows, in a list that may end with a comma."""
        comma = self._skip(TokenKind.COMMA)
        if self._kind is closing:
            return False
        if comma is not any_before:
            raise _Unexpected
        return True

    def _arguments(self) -> list[SyntaxNode]:
        arguments: list[SyntaxNode] = []
        while self._kind is not TokenKind.RIGHT_PARENTHESIS:
            if arguments:
                self._take(TokenKind.COMMA)
            arguments.append(self._expression())
        self._next()
        return arguments

    def _call(
        self,
        offset: int,
        function: str,
        arguments: list[SyntaxNode],
        target: SyntaxNode | None = None,
        counts: bool = False,
    ) -> SyntaxNode:
        """A call, or what the macro of this name expands to; `counts` tells whether it is a level of its own."""
        node: SyntaxNode | None
        try:
            node = expand(offset, function, target, arguments)
        except MacroError as error:
            self._source.report(error.offset, error.message)
            node = LiteralNode(offset, None)
        parts = arguments if target is None else [target, *arguments]
        return _raised(node or CallNode(offset, function, target, arguments), parts, counts)

    def _constant(self, token: Token, text: str, offset: int | None = None) -> object:
        """The value of a literal; an invalid one is reported."""
        try:
            match token.kind:
                case TokenKind.INT:
                    return literals.int_value(text)
                case TokenKind.UINT:
                    return literals.uint_value(text)
                case TokenKind.FLOAT:
                    return literals.double_value(text)
                case TokenKind.STRING:
                    return literals.string_value(text)
                case TokenKind.BYTES:
                    return literals.bytes_value(text[1:])
        except ValueError as cause:
            self._source.report(token.offset if offset is None else offset, str(cause))
        return {TokenKind.TRUE: True, TokenKind.FALSE: False}.get(token.kind)

    # Tokens, and the limits on nesting.

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    @property
    def _kind(self) -> TokenKind:
        return self._tokens[self._at].kind

    def _next(self) -> Token:
        token = self._tokens[self._at]
        if token.kind is TokenKind.EOF:
            raise _Unexpected
        self._at += 1
        return token

    def _take(self, kind: TokenKind) -> Token:
        token = self._tokens[self._at]
        if token.kind is not kind:
            raise _Unexpected
        self._at += 1
        return token

    def _skip(self, kind: TokenKind) -> bool:
        found = self._kind is kind
        self._at += found
        return found

    def _skip_all(self, kind: TokenKind) -> int:
        start = self._at
        while self._kind is kind:
            self._at += 1
        return self._at - start

    def _enter(self, rule: str) -> None:
        self._depths[rule] += 1
        if self._depths[rule] > MOST_NESTING:
            raise TooDeepError(f"expression recursion limit exceeded: {MOST_NESTING}")


_CONSTANTS = frozenset(
    {
        TokenKind.INT,
        TokenKind.UINT,
        TokenKind.FLOAT,
        TokenKind.STRING,
        TokenKind.BYTES,
        TokenKind.TRUE,
        TokenKind.FALSE,
        TokenKind.NULL,
    }
)


def _raised(node: SyntaxNode, parts: Iterable[SyntaxNode], counts: bool = False) -> SyntaxNode:
    """The node, with its height above its parts."""
    node.height = counts + max((each.height for each in parts), default=0)
    if node.height > MOST_NESTING:
        raise TooDeepError("max recursion depth exceeded")
    return node


def _balanced(function: str, terms: list[SyntaxNode], offsets: list[int]) -> SyntaxNode:
    """A chain of `&&` or `||` as a balanced tree, so that long chains nest little."""
    if not offsets:
        return terms[0]

    def tree(low: int, high: int) -> SyntaxNode:
        middle = (low + high + 1) // 2
        left = terms[middle] if middle == low else tree(low, middle - 1)
        right = terms[middle + 1] if middle == high else tree(middle + 1, high)
        return _raised(CallNode(offsets[middle], function, None, [left, right]), [left, right])

    return tree(0, len(offsets) - 1)
