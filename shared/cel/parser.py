"""Parses an expression into a syntax tree, expanding macros. Size and nesting are bounded as in cel-go.

Of a wrong expression, `diagnosis` words the errors and mends the tokens, which are parsed for what else is wrong.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from shared.cel import lexer
from shared.cel.diagnosis import mended_tokens
from shared.cel.errors import MAX_NESTING, ExpressionSource, LimitError
from shared.cel.lexer import EOF, ESCAPED_IDENTIFIER, FLOAT, IDENTIFIER, INT, MISSING, Token, tokens_of
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

MAX_CODE_POINTS = 100_000

RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"),
        *("package", "namespace", "null", "return", "true", "var", "void", "while"),
    }
)
_RELATIONS = {operator: f"_{operator}_" for operator in ("<", "<=", ">=", ">", "==", "!=")} | {"in": "@in"}
_SUMS = {"+": "_+_", "-": "_-_"}
_PRODUCTS = {"*": "_*_", "/": "_/_", "%": "_%_"}
_VALUES: Mapping[str, Callable[[str], object]] = {
    lexer.INT: lexer.int_value,
    lexer.UINT: lexer.uint_value,
    lexer.FLOAT: lexer.double_value,
    lexer.STRING: lexer.string_value,
    lexer.BYTES: lexer.bytes_value,
    "true": lambda _: True,
    "false": lambda _: False,
    "null": lambda _: None,
    lexer.MISSING: lambda _: None,
}
"""What reads the value of a literal, by its kind."""
_WRONG_NAMES = {ESCAPED_IDENTIFIER: "unsupported syntax: '`'", MISSING: "unsupported ident kind"}
"""What is wrong with a name, by its kind."""


class _Unexpected(Exception):
    """A token that the grammar does not allow here."""


def parse(source: ExpressionSource) -> SyntaxNode:
    """The tree of an expression; CompileError if it is not well-formed."""
    size = len(source.text)
    if size > MAX_CODE_POINTS:
        source.report(None, f"expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}")
        source.raise_errors()
    node: SyntaxNode = LiteralNode(0, None)
    try:
        node = _tree(source, tokens_of(source))
    except LimitError as cause:
        source.report(None, str(cause))
    source.raise_errors()
    return node


def _tree(source: ExpressionSource, tokens: list[Token]) -> SyntaxNode:
    known = source.error_count
    try:
        return _Parser(source, tokens).parse()
    except (_Unexpected, LimitError):
        source.forget_errors(known)
        return _Parser(source, mended_tokens(source, tokens)).parse()


class _Parser:
    def __init__(self, source: ExpressionSource, tokens: list[Token]) -> None:
        self._source = source
        self._tokens = tokens
        self._at = 0
        self._depths: Counter[str] = Counter()

    def parse(self) -> SyntaxNode:
        node = self._expression()
        self._take(EOF)
        return node

    # The rules of the grammar, from the loosest binding to the tightest.

    def _expression(self) -> SyntaxNode:
        self._enter("expression")
        node = self._or()
        if self._kind == "?":
            at = self._next().offset
            first = self._or()
            self._take(":")
            node = self._call(at, "_?_:_", [node, first, self._expression()], counts=True)
        self._depths["expression"] -= 1
        return node

    def _or(self) -> SyntaxNode:
        return self._logical("||", self._and)

    def _and(self) -> SyntaxNode:
        return self._logical("&&", self._relation)

    def _logical(self, operator: str, operand: Callable[[], SyntaxNode]) -> SyntaxNode:
        terms, offsets = [operand()], []
        while self._kind == operator:
            offsets.append(self._next().offset)
            terms.append(operand())
        return _balanced(f"_{operator}_", terms, offsets)

    def _relation(self) -> SyntaxNode:
        return self._chain("relation", _RELATIONS, self._calculation)

    def _calculation(self) -> SyntaxNode:
        return self._chain("calculation", _SUMS, self._product)

    def _product(self) -> SyntaxNode:
        return self._chain("calculation", _PRODUCTS, self._unary, is_rule=False)

    def _chain(
        self, rule: str, operators: Mapping[str, str], operand: Callable[[], SyntaxNode], is_rule: bool = True
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
        negative_number = token.kind == "-" and self._tokens[self._at + 1].kind in (INT, FLOAT)
        if token.kind not in ("!", "-") or negative_number:
            return self._member()
        count = 0
        while self._skip(token.kind):
            count += 1
        operand = self._member()
        return operand if count % 2 == 0 else self._call(token.offset, f"{token.kind}_", [operand])

    def _member(self) -> SyntaxNode:
        self._enter("member")
        node = self._primary()
        while self._kind in (".", "["):
            operator = self._next()
            if operator.kind == "[":
                function = "_[?_]" if self._skip("?") else "_[_]"
                index = self._expression()
                self._take("]")
                node = self._call(operator.offset, function, [node, index], counts=True)
            else:
                node = self._selected(node, operator)
        self._depths["member"] -= 1
        return node

    def _selected(self, node: SyntaxNode, dot: Token) -> SyntaxNode:
        """What follows a dot: a field or a call."""
        optional = self._skip("?")
        name = self._field_name()
        if name.kind in _WRONG_NAMES:
            self._source.report(name.offset, _WRONG_NAMES[name.kind])
        if optional:
            selection: SyntaxNode = CallNode(dot.offset, "_?._", None, [node, LiteralNode(name.offset, name.text)])
            return _raised(selection, [node], counts=True)
        if self._kind == "(" and name.kind == IDENTIFIER:
            opening = self._next()
            return self._call(opening.offset, name.text, self._arguments(), target=node, counts=True)
        return _raised(SelectNode(dot.offset, node, name.text), [node], counts=True)

    def _primary(self) -> SyntaxNode:
        token = self._token
        match token.kind:
            case "(":
                self._next()
                node = self._expression()
                self._take(")")
                return node
            case "[":
                return self._list()
            case "{":
                return self._map()
            case "." | "IDENTIFIER":
                return self._name()
        self._next()
        if token.kind != "-":
            return LiteralNode(token.offset, self._value(token, token.text, token.offset))
        number = self._next()
        if number.kind not in (INT, FLOAT):
            raise _Unexpected
        return LiteralNode(token.offset, self._value(number, f"-{number.text}", token.offset))

    def _name(self) -> SyntaxNode:
        """An identifier, a call of a function, or a message such as `google.protobuf.Duration{seconds: 1}`."""
        start = self._token
        leading_dot = "." if self._skip(".") else ""
        length = self._message_name_length()
        if length:
            names = [self._next().text for _ in range(length)]
            return self._message(leading_dot + "".join(names))
        name = self._take(IDENTIFIER)
        if name.text in RESERVED:
            return self._reserved(start.offset, name.text)
        if self._kind == "(":
            opening = self._next()
            return self._call(opening.offset, leading_dot + name.text, self._arguments())
        return IdentNode(name.offset, leading_dot + name.text)

    def _reserved(self, offset: int, name: str) -> SyntaxNode:
        """Report a reserved word. What is wrong in the arguments of a call does not count besides."""
        self._source.report(offset, f"reserved identifier: {name}")
        known = self._source.error_count
        if self._skip("("):
            self._arguments()
            self._source.forget_errors(known)
        return LiteralNode(offset, None)

    def _message_name_length(self) -> int:
        """Tokens of the name before a `{`; 0 if no message starts here."""
        at = self._at
        while self._tokens[at].kind == IDENTIFIER:
            at += 1
            if self._tokens[at].kind == "{":
                return at - self._at
            if self._tokens[at].kind != ".":
                return 0
            at += 1
        return 0

    def _message(self, name: str) -> SyntaxNode:
        opening = self._take("{")
        start = self._token.offset
        fields: list[MessageField] = []
        while self._more(bool(fields), "}"):
            optional = self._skip("?")
            label = self._field_name()
            colon = self._take(":")
            known = self._source.error_count
            fields.append(MessageField(colon.offset, label.text, self._expression(), optional))
            if label.kind in _WRONG_NAMES:
                # Where it is, and what is wrong in its value besides, does not count.
                self._source.forget_errors(known)
                self._source.report(start, _WRONG_NAMES[label.kind])
        self._take("}")
        return _raised(StructNode(opening.offset, name, fields), [each.value for each in fields])

    def _field_name(self) -> Token:
        name = self._next()
        if name.kind != IDENTIFIER and name.kind not in _WRONG_NAMES:
            raise _Unexpected
        return name

    def _list(self) -> SyntaxNode:
        opening = self._next()
        elements: list[SyntaxNode] = []
        optional: set[int] = set()
        while self._more(bool(elements), "]"):
            if self._skip("?"):
                optional.add(len(elements))
            elements.append(self._expression())
        self._take("]")
        return _raised(ListNode(opening.offset, elements, frozenset(optional)), elements)

    def _map(self) -> SyntaxNode:
        opening = self._next()
        entries: list[MapEntry] = []
        while self._more(bool(entries), "}"):
            optional = self._skip("?")
            key = self._expression()
            colon = self._take(":")
            entries.append(MapEntry(colon.offset, key, self._expression(), optional))
        self._take("}")
        return _raised(MapNode(opening.offset, entries), [part for each in entries for part in (each.key, each.value)])

    def _more(self, any_before: bool, closing: str) -> bool:
        """Whether another element follows, in a list that may end with a comma."""
        comma = self._skip(",")
        if self._kind == closing:
            return False
        if comma is not any_before:
            raise _Unexpected
        return True

    def _arguments(self) -> list[SyntaxNode]:
        arguments: list[SyntaxNode] = []
        while self._kind != ")":
            if arguments:
                self._take(",")
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
            node = LiteralNode(error.offset, None)
        parts = arguments if target is None else [target, *arguments]
        return _raised(node or CallNode(offset, function, target, arguments), parts, counts)

    def _value(self, token: Token, text: str, offset: int) -> object:
        """The value of a literal; an invalid one is reported."""
        if token.kind not in _VALUES:
            raise _Unexpected
        try:
            return _VALUES[token.kind](text)
        except ValueError as cause:
            self._source.report(offset, str(cause))
            return None

    # Tokens, and the limits on nesting.

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    @property
    def _kind(self) -> str:
        return self._tokens[self._at].kind

    def _next(self) -> Token:
        token = self._tokens[self._at]
        if token.kind == EOF:
            raise _Unexpected
        self._at += 1
        return token

    def _take(self, kind: str) -> Token:
        token = self._tokens[self._at]
        if token.kind != kind:
            raise _Unexpected
        self._at += 1
        return token

    def _skip(self, kind: str) -> bool:
        found = self._kind == kind
        self._at += found
        return found

    def _enter(self, rule: str) -> None:
        self._depths[rule] += 1
        if self._depths[rule] > MAX_NESTING:
            raise LimitError(f"expression recursion limit exceeded: {MAX_NESTING}")


def _raised(node: SyntaxNode, parts: Iterable[SyntaxNode], counts: bool = False) -> SyntaxNode:
    """The node, with its height above its parts."""
    node.height = counts + max((each.height for each in parts), default=0)
    if node.height > MAX_NESTING:
        raise LimitError("max recursion depth exceeded")
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
