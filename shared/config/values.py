"""Read values of settings from strings. Each reader returns the value or raises a ValueError with what is allowed."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

HIGHEST_PORT = 65_535
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

SENTINEL = "+sentinel"
_EXAMPLES = {"unix": "PATH", "redis+sentinel": "HOST,HOST/NAME", "rediss+sentinel": "HOST,HOST/NAME"}

Reader = Callable[[str], object]


def text(value: str) -> str:
    return value


def name(value: str) -> str:
    """A name of a process, which becomes part of NATS subjects."""
    if not _NAME.fullmatch(value):
        raise ValueError("takes 1 to 63 letters, digits, '-' and '_', a letter or digit first")
    return value


def prefix(value: str) -> str:
    """What begins NATS subjects, Redis keys and names of Leases."""
    if not _PREFIX.fullmatch(value):
        raise ValueError("takes 1 to 63 lowercase letters, digits and '-', a letter or digit first and last")
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


@dataclass(frozen=True, slots=True)
class OneOf:
    allowed: tuple[str, ...]

    def __call__(self, value: str) -> str:
        if value not in self.allowed:
            raise ValueError(f"takes one of {', '.join(self.allowed)}")
        return value


def url(*schemes: str) -> Callable[[str], str]:
    """A URL with a host; `unix://` with a path, `...+sentinel://` with any number of hosts."""
    examples = " or ".join(f"{scheme}://{_EXAMPLES.get(scheme, 'HOST')}" for scheme in schemes)
    allowed = f"takes a URL like {examples}"

    def read(value: str) -> str:
        try:
            parts = urlsplit(value)
            hosts = parts.netloc.rpartition("@")[2]
            listed = hosts.split(",") if parts.scheme.endswith(SENTINEL) else [hosts]
            complete = bool(parts.path) if parts.scheme == "unix" else all(map(_names_host, listed))
        except ValueError:
            raise ValueError(allowed) from None
        if parts.scheme not in schemes or not complete:
            raise ValueError(allowed)
        return value

    return read


def urls(*schemes: str) -> Callable[[str], str]:
    """One or several URLs, separated by commas."""
    read_one = url(*schemes)

    def read(value: str) -> str:
        for each in value.split(","):
            read_one(each.strip())
        return value

    return read


def _names_host(text: str) -> bool:
    """Raises ValueError where the port is invalid."""
    parts = urlsplit(f"//{text.strip()}")
    return bool(parts.hostname) and parts.port != 0


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


def holds_password(value: str) -> bool:
    """Whether a URL has a password, token or user name: anything before an @."""
    try:
        parts = urlsplit(value)
    except ValueError:
        return "@" in value
    elsewhere = "@" in parts.path and parts.scheme != "unix"  # in a list of URLs
    return "@" in parts.netloc or elsewhere or "password=" in unquote(parts.query).lower()


def masked(value: str) -> str:
    """The URL without what may be a password: all before an @, and the query."""
    before, at, after = value.rpartition("@")
    scheme = before.partition("://")[0] + "://" if "://" in before else ""
    rest, query, _ = after.partition("?")
    return f"{f'{scheme}***@' if at else ''}{rest}{'?***' if query else ''}"


def hidden(value: str) -> str:
    return "***" if value else ""
