"""flotilla capacity: how many more of a pod fit, in total and by group of nodes. Nothing is changed."""

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tools.cli.arguments import add_nats_flags, add_numbers, add_output
from tools.cli.output import plain, table
from tools.cli.whatif import add_question, answer_to, question_of

if TYPE_CHECKING:
    from tools.whatif.answer import Answer, Capacity

DESCRIPTION = """\
Decides copies of a pod as the scheduler would until no more fit, on the state of a running pipeline or a
dump. Pods that are pending now come first; no copy preempts another pod. Exit code 1: none fits.
"""
EXAMPLES = """\
examples:
  flotilla capacity -f pod.yaml                            how many more of this pod fit?
  flotilla capacity -f pod.yaml --by disk                  by the values of the label disk
  flotilla capacity -f pod.yaml --add-nodes 3 --like n1    before and after adding 3 nodes like n1
  flotilla capacity -f pod.yaml --remove n1 n2             before and after removing these
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_question(command)
    command.add_argument("--by", default="", metavar="LABEL", help="label to group nodes by (default: the node pool's)")
    add_numbers(command, ("--limit", 10_000, 1, "pods to try"))
    add_output(command, "text", "json")
    add_nats_flags(command)


def run(options: argparse.Namespace) -> int:
    from msgspec.structs import replace

    question = replace(question_of(options), capacity=True, limit=options.limit, by=options.by)
    answer = answer_to(question, options)
    if options.output == "json":
        print(json.dumps(plain(answer), indent=2, ensure_ascii=False))
    else:
        for line in lines(answer):
            print(line)
    return 0 if answer.capacity is not None and answer.capacity.total else 1


def lines(answer: "Answer") -> Iterator[str]:
    after, before = answer.capacity, answer.capacity_before
    if after is None:
        return
    yield f"{_count(after)} more of this pod fit" + (f"; {_count(before)} before the change" if before else "")
    if after.by and after.groups:
        yield ""
        names = sorted(after.groups.keys() | (before.groups.keys() if before else set()))
        head = (after.by.upper(), *(["BEFORE"] if before else []), "FIT")
        rows = [
            (name, *([f"{before.groups.get(name, 0):,}"] if before else []), f"{after.groups.get(name, 0):,}")
            for name in names
        ]
        yield from table([head, *rows])
    if after.message:
        yield ""
        yield f"the next one does not: {after.message}"
    for key in answer.lost:
        yield f"nobody recreates pod {key}: it has no controller"
    for note in answer.notes:
        yield f"note: {note}"


def _count(capacity: "Capacity") -> str:
    return f"at least {capacity.total:,}" if capacity.more else f"{capacity.total:,}"
