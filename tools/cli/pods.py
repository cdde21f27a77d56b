"""Names of pods on the command line, and what is printed about them: ages and tables."""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shared.config.sources import SOURCES, add_flags
from shared.errors import UserError

DEFAULT_NAMESPACE = "default"
REACHING = frozenset({"nats_url", "prefix"})


class PodName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def add_nats_flags(command: argparse.ArgumentParser) -> None:
    """What is needed to reach the services."""
    add_flags(command, without=frozenset({source.field for source in SOURCES} - REACHING | {"http"}))


def add_pod(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    command.add_argument("pod", nargs="?" if optional else None, metavar="[NAMESPACE/]POD", help="a pod")
    command.add_argument(
        "-n", "--namespace", metavar="NAMESPACE", help=f"of the pod (default {DEFAULT_NAMESPACE})" if not optional else
        f"only pods of this one; of POD (default {DEFAULT_NAMESPACE})"
    )  # fmt: skip


def pod_name(options: argparse.Namespace) -> PodName:
    given: str = options.pod
    namespace, slash, name = given.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise UserError(f"{given!r} is no pod: NAMESPACE/POD is expected, or POD")
    if namespace and options.namespace not in (None, namespace):
        raise UserError(f"--namespace: {options.namespace!r} is not that of {given}")
    return PodName(namespace or options.namespace or DEFAULT_NAMESPACE, name)


def age(seconds: float) -> str:
    """Two units at most: `12s`, `5m3s`, `2h10m`, `3d4h`."""
    left = max(0, int(seconds))
    for size, unit, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if left >= size:
            rest = left % size // smaller
            return f"{left // size}{unit}{f'{rest}{small}' if rest else ''}"
    return f"{left}s"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines whose columns are aligned; the last one may be of any length."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
