"""Arguments that several commands share: numbers, pods, and how to reach NATS."""

import argparse
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from shared.config.setting_sources import SOURCES
from shared.config.sources import add_flags
from shared.errors import UserError

DEFAULT_NAMESPACE = "default"
STDIN = "-"
NATS_SETTINGS = frozenset({"nats_url", "prefix"})


def at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {value}")
        return value

    return number


def numbers(least: int, count: int | None = None) -> Callable[[str], list[int]]:
    """Comma-separated numbers; exactly `count` of them if given."""

    def parse(text: str) -> list[int]:
        values = [at_least(least)(part) for part in text.split(",")]
        if count is not None and len(values) != count:
            raise argparse.ArgumentTypeError(f"must be {count} comma-separated numbers, not {text!r}")
        return values

    return parse


def names(known: Callable[[], Collection[str]]) -> Callable[[str], list[str]]:
    """Comma-separated names. `known` is called only when the argument is given."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in known():
                raise argparse.ArgumentTypeError(f"must be any of {', '.join(known())}, not {name!r}")
        return chosen

    return parse


def add_numbers(command: argparse.ArgumentParser, *flags: tuple[str, int | None, int, str]) -> None:
    """Add flags that take a number: name, default, minimum, help."""
    for flag, default, least, text in flags:
        shown = text if default is None else f"{text} (default {default})"
        command.add_argument(flag, type=at_least(least), default=default, metavar="N", help=shown)


def add_output(command: argparse.ArgumentParser, *formats: str) -> None:
    """Add -o/--output; the first format is the default."""
    text = f"{', '.join(formats)} (default {formats[0]})"
    command.add_argument("-o", "--output", choices=formats, default=formats[0], metavar="FORMAT", help=text)


def read_input(file: str) -> bytes:
    """The content of a file, or of standard input; UserError if it cannot be read."""
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error


class PodName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def add_nats_flags(command: argparse.ArgumentParser) -> None:
    add_flags(command, without=frozenset({source.field for source in SOURCES} - NATS_SETTINGS | {"http"}))


def add_pod(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    command.add_argument("pod", nargs="?" if optional else None, metavar="[NAMESPACE/]POD", help="name of the pod")
    only = ", or only pods of this one" if optional else ""
    command.add_argument(
        "-n", "--namespace", metavar="NAMESPACE", help=f"namespace of the pod (default {DEFAULT_NAMESPACE}){only}"
    )


def pod_name(options: argparse.Namespace) -> PodName:
    return named(options.pod, options.namespace, "POD")


def named(given: str, namespace: str | None, what: str) -> PodName:
    """`given`: a name, or a namespace and a name."""
    own, slash, name = given.rpartition("/")
    if not name or "/" in own or (slash and not own):
        raise UserError(f"{given!r}: expected NAMESPACE/{what} or {what}")
    if own and namespace not in (None, own):
        raise UserError(f"--namespace: {namespace!r} contradicts {given}")
    return PodName(own or namespace or DEFAULT_NAMESPACE, name)
