"""flotilla status: every process of a running pipeline, and what is wrong with it."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tools.cli.arguments import add_nats_flags, add_output
from tools.cli.output import Screen, age, plain, table

if TYPE_CHECKING:
    from shared.messages.status import ProcessStatus
    from tools.cli.service_client import ServiceClient
    from tools.status import StatusAsker

INTERVAL = 2.0
"""Seconds between two questions of --watch."""
HEAD = ("PROCESS", "ROLE", "READY", "UP", "CPU", "MEMORY", "BEHIND", "PID", "HOST")
MIB = 1 << 20

DESCRIPTION = """\
Asks every process of a running pipeline, by NATS, and lists them; what is missing or not ready
comes first. Exit code 0: all is well; 1: something is missing or not ready, or NATS is away.
"""
EXAMPLES = """\
columns:
  ROLE    leads, with its term; standby; a worker or binder is one of several
  CPU     seconds of CPU time since it started, like MEMORY of the whole process if several services share it
  BEHIND  messages of the watcher, or changes of the state, that it has yet to read

examples:
  flotilla status
  flotilla status --watch
  flotilla status -o json | jq -r '.processes[] | select(.problems != {}) | .name'
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("-w", "--watch", action="store_true", help="ask again every two seconds, until Ctrl-C")
    add_output(command, "table", "json")
    add_nats_flags(command)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_show(options))


async def _show(options: argparse.Namespace) -> int:
    from tools.cli.service_client import connected
    from tools.status import asking

    async with connected(options) as client, asking(client.bus) as asker:
        if options.watch:
            return await _watch(asker, client, as_json=options.output == "json")
        statuses = await asker.ask()
        if options.output == "json":
            print(json.dumps(as_plain(statuses), indent=2, ensure_ascii=False))
        else:
            print("\n".join(lines(statuses, client.where)))
        return 0 if is_well(statuses) else 1


async def _watch(asker: "StatusAsker", client: "ServiceClient", *, as_json: bool) -> int:
    """Until it is cancelled. JSON is one object a line."""
    screen = Screen(sys.stdout)
    try:
        while True:
            statuses = await asker.ask()
            if as_json:
                print(json.dumps(as_plain(statuses), ensure_ascii=False), flush=True)
            elif sys.stdout.isatty():
                screen.progress([time.strftime("%H:%M:%S"), *lines(statuses, client.where)], "")
            else:
                print("\n".join([time.strftime("%H:%M:%S"), *lines(statuses, client.where), ""]), flush=True)
            await asyncio.sleep(INTERVAL)
    finally:
        screen.release()


def is_well(statuses: "Sequence[ProcessStatus]") -> bool:
    from tools.status import findings

    return not any(finding.wrong for finding in findings(statuses))


def as_plain(statuses: "Sequence[ProcessStatus]") -> dict[str, object]:
    from tools.status import findings

    return {
        "ready": is_well(statuses),
        "findings": [finding._asdict() for finding in findings(statuses)],
        "processes": [plain(each) for each in statuses],
    }


def lines(statuses: "Sequence[ProcessStatus]", where: str) -> Iterator[str]:
    """What is wrong, then a line for each process."""
    from tools.status import findings

    if not statuses:
        yield f"no process answers ({where})"
        yield "Is Flotilla running, with this NATS and this prefix? One of an earlier release does not answer, nor does"
        yield "one whose NATS lacks the rights for it (docs/upgrade.md). flotilla doctor looks further."
        return
    found = findings(statuses)
    yield summary(statuses, well=not any(finding.wrong for finding in found))
    for finding in found:
        yield f"  {'!' if finding.wrong else '-'} {finding.text}"
    yield from table([HEAD, *rows(statuses)])


def summary(statuses: "Sequence[ProcessStatus]", *, well: bool) -> str:
    from tools.status import processes

    state = "all is well" if well else "not all is well"
    number = processes(statuses)
    return f"{state}: {number} process{'' if number == 1 else 'es'}, {_pods(statuses)}"


def _pods(statuses: "Sequence[ProcessStatus]") -> str:
    """How many wait, are being decided or bound, and are bound, as the queue counts them."""
    from shared.messages.status import LEADER
    from tools.status import total

    queues = [each for each in statuses if each.service == "queue"]
    if not any(each.role == LEADER for each in queues):
        return "pods unknown without a queue that leads"
    pending = total(queues, "scheduler_pending_pods/")
    found = [f"{pending:,.0f} pod{'' if pending == 1 else 's'} pending"]
    for place, words in (("in-flight", "in flight"), ("binding", "binding")):
        if number := total(queues, f"flotilla_queue_pods/{place}"):
            found.append(f"{number:,.0f} {words}")
    bound = total(queues, "scheduler_pod_scheduling_attempts_count")
    return ", ".join([*found, f"{bound:,.0f} bound since the queue began"])


def rows(statuses: "Sequence[ProcessStatus]") -> Iterator[tuple[str, ...]]:
    from tools.status import lags

    shown: set[tuple[str, int]] = set()
    for each, lag in zip(statuses, lags(statuses), strict=True):
        again = (each.host, each.pid) in shown
        shown.add((each.host, each.pid))
        yield (
            each.name,
            _role(each, statuses),
            "no" if each.problems else "yes",
            age(each.now - each.started),
            "" if again else f"{each.cpu:,.1f}s",
            "" if again else f"{each.memory // MIB:,} MiB",
            "-" if lag is None else f"{lag:,}",
            str(each.pid),
            each.host,
        )


def _role(status: "ProcessStatus", statuses: "Sequence[ProcessStatus]") -> str:
    from shared.messages.status import LEADER
    from tools.status import LED, expected_workers

    if status.service not in LED:
        there = sum(each.service == status.service for each in statuses)
        due = expected_workers(statuses) if status.service == "worker" else 0
        return f"1 of {max(there, due)}"
    return f"leads ({age(status.now - status.since)})" if status.role == LEADER else status.role or "starting"
