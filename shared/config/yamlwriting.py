"""Plain data as YAML that Kubernetes reads back as the same."""

import json
import re
from collections.abc import Iterator
from typing import Final

from shared.config.yamlwords import plain_word

_BARE: Final = re.compile(r"[A-Za-z0-9/](?:[\w./@+-]|[: ](?=[\w/.]))*", re.ASCII)


def write_yaml(value: object) -> str:
    """In lines, ended by a newline; maps keep their order."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _entry(f"{_scalar(str(key))}:", item, indent="  ")
    elif isinstance(value, list) and value:
        for item in value:
            if isinstance(item, dict | list) and item:
                for i, line in enumerate(_lines(item)):
                    yield f"{'  ' if i else '- '}{line}"
            else:
                yield f"- {_scalar(item)}"
    else:
        yield _scalar(value)


def _entry(head: str, item: object, indent: str) -> Iterator[str]:
    if isinstance(item, dict | list) and item:
        yield head
        # A list may stand as far left as its key.
        indent = "" if isinstance(item, list) else indent
        for line in _lines(item):
            yield f"{indent}{line}"
    else:
        yield f"{head} {_scalar(item)}"


def _scalar(value: object) -> str:
    if isinstance(value, str):
        bare = _BARE.fullmatch(value) is not None and plain_word(value) == value and ": " not in value
        return value if bare else _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    return "".join(char if char.isprintable() else _escape(char) for char in json.dumps(text, ensure_ascii=False))


def _escape(char: str) -> str:
    return f"\\U{ord(char):08x}"
