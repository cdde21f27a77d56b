"""flotilla evictions: who was evicted, when, from where and for whom."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tools.cli.arguments import add_nats_flags, add_output
from tools.cli.output import plain, table, terminal_width

if TYPE_CHECKING:
    from shared.messages.inspection import EvictionsListed, RecordedPreemption

HEAD = ("TIME", "VICTIM", "OWNER", "FOR", "NODE", "REASON")

DESCRIPTION = """\
Lists the pods that were evicted for pods of higher priority, newest first: when, the controller that owns the victim,
for whom and of which priorities, and on which node. The queue remembers the last 1,000 of at most a day, and none from
before it began; Events on the victims say the same. Exit code 1: no reply from the queue.
"""
EXAMPLES = """\
reasons:
  preempted                  told to terminate, as its node was needed
  kept from being bound      it had been assigned to the node, and was not there yet
  ..., violates PodDisruptionBudget NAME
                             which does not allow it: victims without a violation are preferred
  failed                     why no further victim of this preemptor was touched

examples:
  flotilla evictions --since 10m
  flotilla evictions -o json | jq -r '.preemptions[].victims[].owner' | sort | uniq -c
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--since", type=_seconds, default=0.0, metavar="DURATION", help="only of this time, as 90s, 10m or 2h"
    )
    add_output(command, "table", "json")
    add_nats_flags(command)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_list(options))


async def _list(options: argparse.Namespace) -> int:
    from shared.bus.subjects import QUEUE_LIST
    from shared.messages.inspection import EvictionsListed, ListEvictions
    from tools.cli.service_client import connected

    async with connected(options) as client:
        found = await client.request("queue", QUEUE_LIST, ListEvictions(options.since), EvictionsListed)
    if options.output == "json":
        print(json.dumps(plain(found), indent=2, ensure_ascii=False))
        return 0
    rows = [row for preemption in found.preemptions for row in rows_of(preemption)]
    if rows:
        print("\n".join(table([HEAD, *rows], terminal_width(sys.stdout))))
    for line in remarks(found, options.since, len(rows)):
        print(line)
    return 0


def rows_of(preemption: "RecordedPreemption") -> Iterator[tuple[str, ...]]:
    known = "left since" if preemption.priority is None else f"priority {preemption.priority}"
    gang = f"gang {preemption.gang}, " if preemption.gang else ""
    preemptor = f"{preemption.namespace}/{preemption.name} ({gang}{known})"
    at = moment(preemption.at)
    for victim in preemption.victims:
        yield (
            at,
            f"{victim.namespace}/{victim.name} (priority {victim.priority})",
            victim.owner or (f"PodGroup/{victim.group}" if victim.group else "-"),
            preemptor,
            victim.node or preemption.node,
            ("kept from being bound" if victim.in_memory else "preempted") + violating(victim.violates),
        )
    if preemption.failure:
        yield at, "-", "-", preemptor, preemption.node, f"failed: {preemption.failure}"


def violating(budgets: tuple[str, ...]) -> str:
    """What follows the reason of an eviction that PodDisruptionBudgets do not allow."""
    plural = "s" if len(budgets) > 1 else ""
    return f", violates PodDisruptionBudget{plural} {', '.join(budgets)}" if budgets else ""


def remarks(found: "EvictionsListed", since: float, rows: int) -> Iterator[str]:
    """What the list does not show."""
    if not rows:
        yield "no evictions"
    if not since or found.now - since < found.began:
        yield f"the queue knows of none before {moment(found.began)}, when it began"
    if found.dropped:
        yield f"{found.dropped:,} older preemptions are forgotten"


def moment(at: float) -> str:
    """A Unix time, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _seconds(text: str) -> float:
    from shared.model.durations import parse_duration

    try:
        seconds = float(parse_duration(text))
    except ValueError as cause:
        raise argparse.ArgumentTypeError(str(cause)) from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return seconds
