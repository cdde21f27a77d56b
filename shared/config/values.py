"""Texts as values of settings. Each reader returns the value, or raises ValueError saying what is allowed."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

HIGHEST_PORT = 65_535
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")

Reader = Callable[[str], object]


def text(value: str) -> str:
    return value


def name(value: str) -> str:
    """It becomes part of a NATS subject."""
    if not _NAME.fullmatch(value):
        raise ValueError("takes 1 to 63 letters, digits, '-' and '_', a letter or digit first")
    return value


def prefix(value: str) -> str:
    if not _PREFIX.fullmatch(value):
        raise ValueError("takes words of letters, digits, '-' and '_', with dots between them")
    return value


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    allowed = f"takes a whole number from {least} to {most}" if most else f"takes a whole number, at least {least}"

    def read(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError(allowed) from None
        if number < least or (most is not None and number > most):
            raise ValueError(allowed)
        return number

    return read


def share(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= 1.0:
        raise ValueError("takes a number from 0 to 1")
    return number


def one_of(*allowed: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"takes one of {', '.join(allowed)}")
        return value

    return read


def url(*schemes: str) -> Callable[[str], str]:
    """With a host; `unix://` with a path."""
    examples = " or ".join(f"{scheme}://{'PATH' if scheme == 'unix' else 'HOST'}" for scheme in schemes)
    allowed = f"takes a URL like {examples}"

    def read(value: str) -> str:
        try:
            parts = urlsplit(value)
            complete = parts.path if parts.scheme == "unix" else parts.hostname
            _ = parts.port  # raises where it is no port
        except ValueError:
            raise ValueError(allowed) from None
        if parts.scheme not in schemes or not complete:
            raise ValueError(allowed)
        return value

    return read


def file(value: str) -> str:
    try:
        with Path(value).open("rb"):
            return value
    except OSError as error:
        raise ValueError(f"takes a file that can be read ({error.strerror})") from error


def address(value: str) -> tuple[str, int]:
    """HOST:PORT, or [HOST]:PORT where the host is an IPv6 address."""
    host, colon, port = value.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare) != host.startswith("[") or not port.isascii() or not port.isdigit():
        raise ValueError("takes HOST:PORT")
    if int(port) > HIGHEST_PORT:
        raise ValueError(f"takes HOST:PORT with a port from 0 to {HIGHEST_PORT}")
    return bare, int(port)


def masked(value: str) -> str:
    """What may be shown of it: nothing that stands before an @, where passwords stand in URLs."""
    before, at, after = value.rpartition("@")
    scheme = before.partition("://")[0] + "://" if "://" in before else ""
    return f"{scheme}***@{after}" if at else value
