"""flotilla conformance: golden cases of kube-scheduler v1.36 against the cores."""

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.cli.numbers import at_least

if TYPE_CHECKING:
    from services.inprocess.conformance import GroupResult

FIRST_DIFFERENCES = 3


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "conformance",
        help="replay cases that kube-scheduler v1.36 decided, and compare",
        description="Replays golden cases through the deciding core. Exit code 1 on any difference.",
    )
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help="cases, .jsonl or .jsonl.gz")
    command.add_argument("--shards", type=at_least(1), default=1, metavar="N", help="spread the nodes over N workers")
    command.add_argument("--group", action="append", metavar="NAME", help="only cases of this group; may be repeated")
    command.add_argument(
        "--show",
        type=at_least(1),
        default=FIRST_DIFFERENCES,
        metavar="N",
        help=f"how many differences a group to print in full (default {FIRST_DIFFERENCES})",
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from services.inprocess.conformance import LEFT_OUT, exit_code, read_cases, run_cases

    cases: Iterator[dict[str, Any]] = itertools.chain.from_iterable(read_cases(path) for path in options.files)
    if options.group:
        cases = (case for case in cases if (case.get("tags") or [""])[0] in options.group)
    groups = run_cases(cases, options.shards)
    print(f"{options.shards} shard{'s' if options.shards > 1 else ''}; {LEFT_OUT}")
    missing = set[str]().union(*(group.missing for group in groups.values()))
    if missing:
        print(f"plugins of these profiles that do not exist yet: {', '.join(sorted(missing))}")
    for name, group in groups.items():
        print(f"{name}: {group.passed}/{group.total}")
    for name, group in groups.items():
        _print_differences(name, group, options.show)
    if not groups:
        print("no cases")
        return 1
    return exit_code(list(groups.values()))


def _print_differences(name: str, group: "GroupResult", most: int) -> None:
    for difference in group.differences[:most]:
        print(f"\n{difference}")
    if len(group.differences) > most:
        print(f"\n({name}: {len(group.differences) - most} more differences)")
