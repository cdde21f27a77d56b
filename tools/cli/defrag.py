"""flotilla defrag: which moves of pods would free whole nodes or racks. It only lists them."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cli.arguments import add_nats_flags, add_numbers, add_output
from tools.cli.output import plain, table

if TYPE_CHECKING:
    from tools.live_state import LiveState
    from tools.whatif.defrag import Defrag, Progress
    from tools.whatif.engine import PodsOn

TIMEOUT = 120
"""Seconds for an answer."""
TELL_SECONDS = 5.0
"""Between two lines about how far the search is."""
MAX_ROWS = 50
MAX_NAMES = 5

DESCRIPTION = """\
Lists moves of pods that would free whole nodes, on the state of a running pipeline or a dump, and changes
nothing. Where a pod would go is decided as the scheduler would if all these nodes were drained at once, and
those that are free already were cordoned.
"""
EXAMPLES = """\
Pods without a controller are not moved, nor those of DaemonSets and static pods, nor those of pod groups unless
--pod-groups says so, and no more than their PodDisruptionBudgets allow to be disrupted now. No pod is preempted
for a move, and none is moved twice.

examples:
  flotilla defrag --dry-run                                       which nodes could be freed?
  flotilla defrag --dry-run --by topology.kubernetes.io/rack      which racks?
  flotilla defrag --dry-run --from today -o json                  on the state in the folder of flotilla dump
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dry-run", action="store_true", help="list the moves; there is no other way yet")
    command.add_argument("--by", default="", metavar="LABEL", help="free all nodes with one value of this label")
    command.add_argument("--pod-groups", action="store_true", help="move pods of pod groups as well, such as gangs")
    command.add_argument("--from", dest="folder", metavar="DIR", help="ask about a dump instead of a running pipeline")
    add_numbers(
        command,
        ("--steps", 200, 1, "sets of nodes to try"),
        ("--timeout", TIMEOUT, 1, "seconds to search; what was found until then is shown"),
    )
    add_output(command, "text", "json")
    add_nats_flags(command)


def run(options: argparse.Namespace) -> int:
    from shared.errors import UserError
    from tools.whatif.defrag import defrag
    from tools.whatif.extending import calls

    if not options.dry_run:
        raise UserError("defrag only lists moves and makes none: say so by --dry-run")
    live, pods_on = asyncio.run(_state(options))
    with calls() as converse:
        found = defrag(
            live,
            pods_on,
            by=options.by,
            pod_groups=options.pod_groups,
            steps=options.steps,
            seconds=options.timeout,
            converse=converse,
            tell=Teller(time.monotonic).tell,
        )
    if options.output == "json":
        print(json.dumps(plain(found), indent=2, ensure_ascii=False))
    else:
        for line in lines(found):
            print(line)
    return 0


class Teller:
    """Says on stderr how far the search is, now and then."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()

    def tell(self, progress: "Progress") -> None:
        if self._clock() - self._last >= TELL_SECONDS:
            self._last = self._clock()
            tried, units, freed = (f"{each:,}" for each in progress)
            print(f"tried {tried} of {units}; {freed} could be freed", file=sys.stderr, flush=True)


async def _state(options: argparse.Namespace) -> "tuple[LiveState, PodsOn]":
    from tools import live_state
    from tools.cli.service_client import connected

    if options.folder is not None:
        folder = Path(options.folder)
        live = live_state.read(folder)
        return live, live_state.read_pods(folder, (each.node.name for each in live.state.nodes))
    async with connected(options) as client:
        return await live_state.load(client), await live_state.pods_on_all(client)


def lines(found: "Defrag") -> Iterator[str]:
    """The verdict first, then units, moves, and why the others stay."""
    yield _verdict(found)
    if found.freed:
        yield ""
        rows = [(unit.name, f"{len(unit.nodes):,}", f"{unit.moves:,}") for unit in found.freed[:MAX_ROWS]]
        yield from table([(found.by.upper() or "NODE", "NODES", "MOVES"), *rows])
        yield from _more(len(found.freed))
        yield ""
        moves = [("POD", "FROM", "TO", "POD GROUP")]
        moves += [(move.pod, move.source, move.target, move.group or "-") for move in found.moves[:MAX_ROWS]]
        has_groups = any(move.group for move in found.moves)
        yield from table(moves if has_groups else [row[:3] for row in moves])
        yield from _more(len(found.moves))
    if found.kept:
        yield ""
        for reason, names in found.kept.items():
            rest = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
            yield f"not freed: {', '.join(names[:MAX_NAMES])}{rest}: {reason}"
    for note in found.notes:
        yield f"note: {note}"


def _verdict(found: "Defrag") -> str:
    free = f"; {len(found.free):,} {'is' if len(found.free) == 1 else 'are'} free already" if found.free else ""
    if not found.freed:
        return f"no moves would free {f'all nodes of any {found.by}' if found.by else 'any node'}{free}"
    nodes = _count(sum(len(unit.nodes) for unit in found.freed), "node")
    what = f"{nodes}, all of {_count(len(found.freed), 'value')} of {found.by}," if found.by else nodes
    return f"{what} could be freed by {_count(len(found.moves), 'move')}{free}"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _more(count: int) -> Iterator[str]:
    if count > MAX_ROWS:
        yield f"and {count - MAX_ROWS:,} more: -o json lists all"
