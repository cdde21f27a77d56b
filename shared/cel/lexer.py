"""Splits an expression into tokens as cel-go's ANTLR lexer does, with its errors."""

import re
from enum import IntEnum
from typing import NamedTuple

from shared.cel.errors import ExpressionSource


class TokenKind(IntEnum):
    """Kinds of tokens, in the order in which errors list them."""

    EOF = -1
    EQUAL = 1
    NOT_EQUAL = 2
    IN = 3
    LESS = 4
    LESS_EQUAL = 5
    GREATER_EQUAL = 6
    GREATER = 7
    AND = 8
    OR = 9
    LEFT_BRACKET = 10
    RIGHT_BRACKET = 11
    LEFT_BRACE = 12
    RIGHT_BRACE = 13
    LEFT_PARENTHESIS = 14
    RIGHT_PARENTHESIS = 15
    DOT = 16
    COMMA = 17
    MINUS = 18
    NOT = 19
    QUESTION = 20
    COLON = 21
    PLUS = 22
    STAR = 23
    SLASH = 24
    PERCENT = 25
    TRUE = 26
    FALSE = 27
    NULL = 28
    FLOAT = 31
    INT = 32
    UINT = 33
    STRING = 34
    BYTES = 35
    IDENTIFIER = 36
    ESCAPED_IDENTIFIER = 37


OPERATORS = {
    "==": TokenKind.EQUAL,
    "!=": TokenKind.NOT_EQUAL,
    "<": TokenKind.LESS,
    "<=": TokenKind.LESS_EQUAL,
    ">=": TokenKind.GREATER_EQUAL,
    ">": TokenKind.GREATER,
    "&&": TokenKind.AND,
    "||": TokenKind.OR,
    "[": TokenKind.LEFT_BRACKET,
    "]": TokenKind.RIGHT_BRACKET,
    "{": TokenKind.LEFT_BRACE,
    "}": TokenKind.RIGHT_BRACE,
    "(": TokenKind.LEFT_PARENTHESIS,
    ")": TokenKind.RIGHT_PARENTHESIS,
    ".": TokenKind.DOT,
    ",": TokenKind.COMMA,
    "-": TokenKind.MINUS,
    "!": TokenKind.NOT,
    "?": TokenKind.QUESTION,
    ":": TokenKind.COLON,
    "+": TokenKind.PLUS,
    "*": TokenKind.STAR,
    "/": TokenKind.SLASH,
    "%": TokenKind.PERCENT,
}
KEYWORDS = {"in": TokenKind.IN, "true": TokenKind.TRUE, "false": TokenKind.FALSE, "null": TokenKind.NULL}


def shown(kind: TokenKind) -> str:
    """The kind as errors write it."""
    for texts in (OPERATORS, KEYWORDS):
        for text, each in texts.items():
            if each is kind:
                return f"'{text}'"
    return _NAMES[kind]


_NAMES = {
    TokenKind.EOF: "<EOF>",
    TokenKind.FLOAT: "NUM_FLOAT",
    TokenKind.INT: "NUM_INT",
    TokenKind.UINT: "NUM_UINT",
    TokenKind.STRING: "STRING",
    TokenKind.BYTES: "BYTES",
    TokenKind.IDENTIFIER: "IDENTIFIER",
    TokenKind.ESCAPED_IDENTIFIER: "ESC_IDENTIFIER",
}


class Token(NamedTuple):
    kind: TokenKind
    text: str
    offset: int


_HIDDEN = re.compile(r"(?:[ \t\r\n\f]+|//[^\n]*)+")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPED_WORD = re.compile(r"`[A-Za-z0-9_./ -]+`")
_FLOAT = re.compile(r"[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?")
_UINT = re.compile(r"(?:0x[0-9a-fA-F]+|[0-9]+)[uU]")
_INT = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")
_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_PARTIAL_ESCAPE = re.compile(r"\\(?:[0-3][0-7]?|[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?")
_BODIES = {
    # What may stand between the quotes, by quote and whether the string is raw.
    ('"', False): re.compile(rf'(?:{_ESCAPE}|[^\\"\n\r])*'),
    ("'", False): re.compile(rf"(?:{_ESCAPE}|[^\\'\n\r])*"),
    ('"', True): re.compile(r'[^"\n\r]*'),
    ("'", True): re.compile(r"[^'\n\r]*"),
}
_LONG_BODIES = {
    ('"""', False): re.compile(rf'(?:{_ESCAPE}|(?!""")[^\\])*', re.DOTALL),
    ("'''", False): re.compile(rf"(?:{_ESCAPE}|(?!''')[^\\])*", re.DOTALL),
    ('"""', True): re.compile(r'(?:(?!""").)*', re.DOTALL),
    ("'''", True): re.compile(r"(?:(?!''').)*", re.DOTALL),
}
_STRING_START = re.compile(r"""([bB]?)([rR]?)('''|\"\"\"|'|")""")


def tokens_of(source: ExpressionSource) -> list[Token]:
    """The tokens, the last of which is EOF. What is no token is reported and left out."""
    text, at = source.text, 0
    tokens: list[Token] = []
    while True:
        hidden = _HIDDEN.match(text, at)
        at = hidden.end() if hidden else at
        if at >= len(text):
            tokens.append(Token(TokenKind.EOF, "<EOF>", len(text)))
            return tokens
        token = _token(text, at)
        if token is None:
            end = _failing_index(text, at)
            wrong = text[at : end + 1].replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
            source.report(at, f"Syntax error: token recognition error at: '{wrong}'")
            at = end + 1
        else:
            tokens.append(token)
            at += len(token.text)


def text_between(source: ExpressionSource, first: Token, last: Token) -> str:
    """The text of two neighbouring tokens and of the spaces and comments between them."""
    if last is first or last.kind is TokenKind.EOF:
        return first.text
    between = source.text[first.offset + len(first.text) : last.offset]
    return first.text + "".join(_HIDDEN.findall(between)) + last.text


def _token(text: str, at: int) -> Token | None:
    """The longest token that starts here."""
    character = text[at]
    if character.isascii() and (character.isalpha() or character == "_" or character in "\"'"):
        return _string(text, at) or _word(text, at)
    if character in "0123456789.":
        for kind, pattern in ((TokenKind.FLOAT, _FLOAT), (TokenKind.UINT, _UINT), (TokenKind.INT, _INT)):
            match = pattern.match(text, at)
            if match:
                return Token(kind, match[0], at)
    if character == "`":
        match = _ESCAPED_WORD.match(text, at)
        return Token(TokenKind.ESCAPED_IDENTIFIER, match[0], at) if match else None
    for length in (2, 1):
        operator = text[at : at + length]
        if len(operator) == length and operator in OPERATORS:
            return Token(OPERATORS[operator], operator, at)
    return None


def _word(text: str, at: int) -> Token | None:
    match = _WORD.match(text, at)
    return Token(KEYWORDS.get(match[0], TokenKind.IDENTIFIER), match[0], at) if match else None


def _string(text: str, at: int) -> Token | None:
    start = _STRING_START.match(text, at)
    if start is None:
        return None
    kind, raw, quote = TokenKind.BYTES if start[1] else TokenKind.STRING, bool(start[2]), start[3]
    if len(quote) == 3:
        body = _LONG_BODIES[quote, raw].match(text, start.end())
        if body and text.startswith(quote, body.end()):
            return Token(kind, text[at : body.end() + 3], at)
        # Not closed: the first two quotes are an empty string.
        return Token(kind, text[at : start.end() - 1], at)
    body = _BODIES[quote, raw].match(text, start.end())
    if body and text.startswith(quote, body.end()):
        return Token(kind, text[at : body.end() + 1], at)
    return None


def _failing_index(text: str, at: int) -> int:
    """The index at which no token can be completed any more."""
    if text[at] in "=&|":
        return at + 1
    if text[at] == "`":
        return at + 1 + len(text[at + 1 :]) - len(text[at + 1 :].lstrip(_ESCAPED_WORD_CHARACTERS))
    if text[at] in "\"'":
        body = _BODIES[text[at], False].match(text, at + 1)
        end = body.end() if body else at + 1
        partial = _PARTIAL_ESCAPE.match(text, end)
        return partial.end() if partial else end
    return at


_ESCAPED_WORD_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./ -"
