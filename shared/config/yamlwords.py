"""What a word of YAML 1.1 means to Kubernetes.

It differs from what PyYAML makes of it: `y` and `on` are true, `010` is 8, `0b11` is 3, `1_6` is 16, and a date is a
text.
"""

import base64
import binascii
import math
import re
from collections.abc import Mapping
from typing import Final

TAG: Final = "tag:yaml.org,2002:"

_WORDS: Final[Mapping[str, bool | float | None]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)|(?P<dec>0|[1-9][0-9]*))"
)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MOST_DIGITS: Final = 400
_LEAST_INTEGER: Final = -(2**63)
_MOST_INTEGER: Final = 2**64 - 1


class WordFault(ValueError):
    """The word has a tag that it does not fit."""


def tagged_word(tag: str, text: str) -> object:
    """What a word with a tag of its own is; a tag that is not YAML's own makes a text of it."""
    kind = tag.removeprefix(TAG) if tag.startswith(TAG) else ""
    if kind == "binary":
        try:
            return base64.b64decode(text, validate=True).decode()
        except (binascii.Error, ValueError):
            raise WordFault("!!binary: must be base64 of a text") from None
    if kind in ("bool", "int", "float", "null"):
        return _forced(kind, plain_word(text), text)
    return text


def plain_word(text: str) -> object:
    """What an unquoted word is."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    # No number has so many digits, and int() refuses thousands of them with an exception.
    if len(text) > _MOST_DIGITS:
        return text
    if text[0] == ".":
        return float(text) if _FLOAT.fullmatch(text) else text
    bare = text.replace("_", "")
    if (integer := _integer(bare)) is not None:
        return integer
    if _FLOAT.fullmatch(bare):
        number = float(bare)
        return text if math.isinf(number) else number
    return text


def _integer(text: str) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    digits, base = next((match[name], base) for name, base in _BASES.items() if match[name] is not None)
    number = int(digits, base) * (-1 if match["sign"] == "-" else 1)
    # Beyond 63 bits only what has no sign.
    most = _MOST_INTEGER if not match["sign"] else -_LEAST_INTEGER - 1
    return number if _LEAST_INTEGER <= number <= most else None


_BASES: Final[Mapping[str, int]] = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}


def _forced(kind: str, value: object, text: str) -> object:
    fits = {
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "null": value is None,
    }[kind]
    if not fits:
        raise WordFault(f"!!{kind}: cannot be {text!r}")
    return value
