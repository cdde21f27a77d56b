"""Splits an expression into tokens as cel-go's ANTLR lexer does, with its errors, and reads the values of literals.

The kind of an operator or keyword is its text; other kinds have the names that errors mention.
"""

import re
from typing import NamedTuple

from shared.cel.errors import ExpressionSource
from shared.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

EOF = "<EOF>"
FLOAT, INT, UINT, STRING, BYTES = "NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES"
IDENTIFIER, ESCAPED_IDENTIFIER = "IDENTIFIER", "ESC_IDENTIFIER"
MISSING = "<missing>"
"""Stands for an expression or name that a wrong expression lacks."""
KEYWORDS = frozenset({"in", "true", "false", "null"})
NAMED_KINDS = (EOF, FLOAT, INT, UINT, STRING, BYTES, IDENTIFIER, ESCAPED_IDENTIFIER)
KINDS = (
    *(EOF, "==", "!=", "in", "<", "<=", ">=", ">", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?"),
    *(":", "+", "*", "/", "%", "true", "false", "null", *NAMED_KINDS[1:]),
)
"""In the order in which errors list them."""


class Token(NamedTuple):
    kind: str
    text: str
    offset: int


_HIDDEN = re.compile(r"(?:[ \t\r\n\f]+|//[^\n]*)+")
_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_BODIES = {quote: rf"(?:{_ESCAPE}|[^\\{quote}\n\r])*+" for quote in ('"', "'")}
_QUOTED = "|".join(
    rf"{quote * 3}(?:{_ESCAPE}|(?!{quote * 3})[^\\])*+{quote * 3}|{quote}{_BODIES[quote]}{quote}" for quote in _BODIES
)
_RAW = "|".join(
    rf"{quote * 3}(?:(?!{quote * 3})[\s\S])*+{quote * 3}|{quote}[^{quote}\n\r]*+{quote}" for quote in _BODIES
)
_TEXT = rf"(?:[rR](?:{_RAW})|{_QUOTED})"
_PATTERNS = {
    STRING: _TEXT,
    BYTES: f"[bB]{_TEXT}",
    IDENTIFIER: r"[A-Za-z_][A-Za-z0-9_]*",
    FLOAT: r"[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?",
    UINT: r"(?:0x[0-9a-fA-F]+|[0-9]+)[uU]",
    INT: r"0x[0-9a-fA-F]+|[0-9]+",
    ESCAPED_IDENTIFIER: r"`[A-Za-z0-9_./ -]+`",
    "operator": r"[=!<>]=|&&|\|\||[<>\[\]{}().,\-!?:+*/%]",
}
_TOKEN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _PATTERNS.items()))
_PARTIAL_ESCAPE = r"(?:\\(?:[0-3][0-7]?|[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?)?"
_UNFINISHED = re.compile(
    r"[=&|]|`[A-Za-z0-9_./ -]*|" + "|".join(f"{quote}{body}{_PARTIAL_ESCAPE}" for quote, body in _BODIES.items())
)
"""What starts a token; the character behind it cannot be part of one."""


def tokens_of(source: ExpressionSource) -> list[Token]:
    """The tokens, the last of which is EOF. What is no token is reported and left out."""
    text, at = source.text, 0
    tokens: list[Token] = []
    while True:
        hidden = _HIDDEN.match(text, at)
        at = hidden.end() if hidden else at
        if at >= len(text):
            tokens.append(Token(EOF, EOF, len(text)))
            return tokens
        match = _TOKEN.match(text, at)
        if match is None:
            end = _end_of_error(text, at)
            source.report(at, f"Syntax error: token recognition error at: '{text[at:end]}'")
            at = end
        else:
            is_word = match.lastgroup == IDENTIFIER and match[0] not in KEYWORDS
            named = is_word or match.lastgroup not in (IDENTIFIER, "operator")
            tokens.append(Token(str(match.lastgroup) if named else match[0], match[0], at))
            at = match.end()


def _end_of_error(text: str, at: int) -> int:
    """Where the text that is no token ends."""
    unfinished = _UNFINISHED.match(text, at)
    return (unfinished.end() if unfinished else at) + 1


def text_between(source: ExpressionSource, first: Token, last: Token) -> str:
    """The text of two neighbouring tokens and of the spaces and comments between them."""
    if last is first:
        return first.text
    shown, at = first.text, first.offset + len(first.text)
    while at < last.offset:
        hidden = _HIDDEN.match(source.text, at)
        shown += hidden[0] if hidden else ""
        at = hidden.end() if hidden else _end_of_error(source.text, at)
    return shown if last.kind == EOF else shown + last.text


def escaped(text: str) -> str:
    """The text as errors show it."""
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


# Values of literals. ValueError with the reason if they are invalid.

_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_MAX_DIGITS = 30
"""More significant digits are out of every range; the conversion of very many would take long."""


def string_value(token: str) -> str:
    def character(escape: re.Match[str]) -> str:
        code = _code(escape[0])
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise ValueError("invalid unicode code point")
        return chr(code)

    body, raw = _body(token)
    return body if raw else re.sub(_ESCAPE, character, body)


def bytes_value(token: str) -> bytes:
    """Characters as UTF-8, escapes as bytes."""

    def octet(escape: re.Match[bytes]) -> bytes:
        if escape[0][1:2] in b"uU":
            raise ValueError("unable to unescape string")
        return bytes([_code(escape[0].decode())])

    body, raw = _body(token[1:])
    octets = body.encode(errors="surrogatepass")
    return octets if raw else re.sub(_ESCAPE.encode(), octet, octets)


def int_value(text: str) -> int:
    """The value of digits with an optional sign."""
    value = -_whole(text[1:]) if text.startswith("-") else _whole(text)
    if not MIN_INT <= value <= MAX_INT:
        raise ValueError("invalid int literal")
    return value


def uint_value(text: str) -> Uint:
    value = _whole(text[:-1])
    if value > MAX_UINT:
        raise ValueError("invalid uint literal")
    return Uint(value)


def double_value(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("invalid double literal")
    return value


def _whole(digits: str) -> int:
    base = 16 if digits.startswith("0x") else 10
    significant = digits.removeprefix("0x").lstrip("0") or "0"
    return MAX_UINT + 1 if len(significant) > _MAX_DIGITS else int(significant, base)


def _body(token: str) -> tuple[str, bool]:
    """What is between the quotes, and whether backslashes stand for themselves."""
    token = token.replace("\r\n", "\n").replace("\r", "\n")
    raw = token[0] in "rR"
    token = token[1:] if raw else token
    quotes = 3 if token[:3] in ('"""', "'''") and len(token) >= 6 else 1
    return token[quotes:-quotes], raw


def _code(escape: str) -> int:
    """The number of the character or byte that an escape denotes."""
    letter = escape[1]
    if letter in "xXuU":
        return int(escape[2:], 16)
    return int(escape[1:], 8) if letter in "0123" else ord(_CONTROL.get(letter, letter))
