"""The values of literals: escapes in strings and bytes, and numbers within their ranges."""

from shared.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {
    character: character for character in "\\'\"`?"
}
_DIGITS = {"x": 2, "X": 2, "u": 4, "U": 8}


def string_value(token: str) -> str:
    """The value of a string token; ValueError with the reason if it is invalid."""
    return "".join(map(chr, _code_points(token, is_bytes=False)))


def bytes_value(token: str) -> bytes:
    """The value of a bytes token, after its prefix: characters as UTF-8, escapes as bytes."""
    value = bytearray()
    for code in _code_points(token, is_bytes=True):
        value += bytes([-code - 1]) if code < 0 else chr(code).encode(errors="surrogatepass")
    return bytes(value)


def int_value(text: str) -> int:
    """The value of digits with an optional sign; ValueError if it is out of range."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    value = _whole(digits)
    value = -value if sign else value
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


_MOST_DIGITS = 30
"""More significant digits are out of every range; the conversion of very many would take long."""


def _whole(digits: str) -> int:
    base = 16 if digits.startswith("0x") else 10
    significant = digits.removeprefix("0x").lstrip("0") or "0"
    return MAX_UINT + 1 if len(significant) > _MOST_DIGITS else int(significant, base)


def _code_points(token: str, is_bytes: bool) -> list[int]:
    """Code points of the characters; bytes that escapes denote are -1 - byte."""
    token = token.replace("\r\n", "\n").replace("\r", "\n")
    raw = token[0] in "rR"
    token = token[1:] if raw else token
    quotes = 3 if token[:3] in ('"""', "'''") and len(token) >= 6 else 1
    body = token[quotes:-quotes]
    if raw or "\\" not in body:
        return [ord(character) for character in body]
    codes: list[int] = []
    at = 0
    while at < len(body):
        if body[at] != "\\":
            codes.append(ord(body[at]))
            at += 1
            continue
        escape = body[at + 1]
        at += 2
        if escape in _SIMPLE:
            codes.append(ord(_SIMPLE[escape]))
            continue
        digits = _DIGITS.get(escape)
        if digits is None:
            code = int(body[at - 1 : at + 2], 8)
            at += 2
            codes.append(-1 - code if is_bytes else code)
            continue
        if is_bytes and digits > 2:
            raise ValueError("unable to unescape string")
        code = int(body[at : at + digits], 16)
        at += digits
        if not is_bytes and (code > 0x10FFFF or 0xD800 <= code <= 0xDFFF):
            raise ValueError("invalid unicode code point")
        codes.append(-1 - code if is_bytes else code)
    return codes
