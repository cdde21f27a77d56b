"""flotilla conformance: replay golden cases of kube-scheduler v1.36 through the cores."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cli.arguments import add_numbers, numbers

if TYPE_CHECKING:
    from testing.inprocess.cases import GroupResult
    from testing.inprocess.conformance import Results


DESCRIPTION = "Replays golden cases through the scheduling cores. Exit code 1: any difference."


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help="cases, .jsonl or .jsonl.gz")
    command.add_argument(
        "--shards",
        type=numbers(1),
        default=[1],
        metavar="N[,N...]",
        help="number of workers to spread the nodes over; one run for each number (default 1)",
    )
    command.add_argument("--group", action="append", metavar="NAME", help="only cases of this group; repeatable")
    add_numbers(command, ("--show", 3, 1, "differences per group to print in full"))


def run(options: argparse.Namespace) -> int:
    from testing.inprocess.cases import all_passed
    from testing.inprocess.conformance import group_of, read_cases, replay_in_parallel, worthwhile_processes

    cases = [case for path in options.files for case in read_cases(path)]
    if options.group:
        cases = [case for case in cases if group_of(case) in options.group]
    if not cases:
        print("no cases")
        return 1
    results = replay_in_parallel(cases, options.shards, worthwhile_processes(len(cases) * len(options.shards)))
    found = [group for groups in results.values() for group in groups.values()]
    _print_table(results)
    for name in next(iter(results.values())):
        _print_differences(name, {shards: groups[name] for shards, groups in results.items()}, options.show)
    return 0 if all_passed(found) else 1


def _print_table(results: "Results") -> None:
    """A line for each group, a column for each number of shards."""
    rows = [["shards", *map(str, results)]] + [
        [name, *(f"{groups[name].passed}/{groups[name].total}" for groups in results.values())]
        for name in next(iter(results.values()))
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *cells]))


def _print_differences(name: str, by_shards: "dict[int, GroupResult]", most: int) -> None:
    """Print a difference once if it is the same for several numbers of shards."""
    shards_of: dict[str, list[int]] = {}
    for shards, group in by_shards.items():
        for shown in map(str, group.differences):
            shards_of.setdefault(shown, []).append(shards)
    for shown, where in list(shards_of.items())[:most]:
        print(f"\n{shown}\n    shards:   {', '.join(map(str, where))}")
    if len(shards_of) > most:
        print(f"\n({name}: {len(shards_of) - most} more differences)")
