"""flotilla simulation: run all services on virtual time under faults that a seed decides."""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from tools.cli.arguments import add_numbers, at_least

if TYPE_CHECKING:
    from testing.simulation.running import Failure, Options, Result

PROGRESS_INTERVAL = 25
"""Seeds between progress lines where there is no terminal."""
CLEAR = "\r"
"""Returns to the start of the progress line, so that the next line replaces it."""
DESCRIPTION = """\
Runs all services on virtual time with a simulated network, API server and Redis. The seed decides what users do, what
fails and when. In every case no node may exceed its capacity, no pod may be bound twice, no pod may be evicted in vain,
and once the faults are over every pod that fits must be bound. docs/faults.md has the full list.

For each seed that fails it prints the shortest schedule found that still fails, the violated invariant, the history of
the pods and nodes concerned, and the commands that replay the schedule and the seed.
Exit code 0: all seeds passed; 1: one failed.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_numbers(command, ("--first", 1, 0, "first seed"), ("--count", 100, 1, "number of seeds"))
    command.add_argument("--scene", default="", metavar="NAME", help="only this kind of cluster and workload")
    command.add_argument("--broken", default="", metavar="NAME", help="disable this safeguard: seeds should fail")
    command.add_argument("--schedule", type=Path, metavar="FILE", help="replay this schedule instead of seeds")
    command.add_argument(
        "--shrink", type=at_least(0), default=60, metavar="SECONDS", help="for shortening each failure (default 60)"
    )


def run(options: argparse.Namespace) -> int:
    from shared.errors import UserError

    if find_spec("lupa") is None:
        raise UserError("flotilla simulation needs the package lupa: install flotilla[dev]")
    from testing.simulation.broken import BROKEN
    from testing.simulation.drawing import SCENES, base_of, check
    from testing.simulation.running import Options, play_schedule, play_seeds
    from testing.simulation.schedule import Schedule

    if options.scene and base_of(options.scene) not in SCENES:
        raise UserError(f"--scene: must be one of {', '.join(SCENES)}, not {options.scene!r}")
    if options.broken and options.broken not in BROKEN:
        raise UserError(f"--broken: must be one of {', '.join(BROKEN)}, not {options.broken!r}")
    chosen = Options(options.scene, options.broken, options.shrink)
    if options.schedule is not None:
        try:
            schedule = Schedule.read(options.schedule.read_text())
            check(schedule)
        except (OSError, UnicodeDecodeError, UserError) as cause:
            raise UserError(f"--schedule: {options.schedule}: {cause}") from cause
        result = play_schedule(schedule, chosen)
        print("\n".join(result.log))
        if result.held:
            print("\npassed")
        else:
            _report_cause(result)
        return 0 if result.held else 1
    seeds = range(options.first, options.first + options.count)
    results, failures = play_seeds(seeds, chosen, _progress)
    print(f"seeds {seeds[0]} to {seeds[-1]}: {sum(each.held for each in results)} of {len(results)} passed")
    for failure in failures:
        _report(failure, chosen)
    return 1 if failures else 0


def _progress(done: int, failed: int, last: "Result") -> None:
    """Report a failure at once, because shortening its schedule takes a while."""
    if not last.held:
        print(f"{CLEAR}seed {last.seed} failed: {last.wrong.splitlines()[0]}", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(f"\r{done} seeds, {failed} failed", end="", file=sys.stderr, flush=True)
    elif done % PROGRESS_INTERVAL == 0:
        print(f"{done} seeds, {failed} failed", file=sys.stderr, flush=True)


def _report(failure: "Failure", options: "Options") -> None:
    left, all_ = len(failure.shortest.entries), len(failure.whole.entries)
    print(f"\nseed {failure.whole.seed}: the shortest schedule found that still fails ({left} of {all_} entries):\n")
    print(failure.shortest)
    _report_cause(failure.result)
    print("\nreplay the schedule, saved as FILE, or the whole seed:\n")
    for command in replay_commands(failure.whole.seed, options):
        print(f"  {command}")


def _report_cause(result: "Result") -> None:
    print("\nviolation:\n")
    print(indent(result.wrong or "none: the schedule passes when it is replayed", "  "))
    print("\nhistory, in virtual seconds:\n")
    print(indent("\n".join(result.story), "  "))


def replay_commands(seed: int, options: "Options") -> tuple[str, str]:
    """Commands for the shortest schedule and for its seed."""
    broken = f" --broken {options.broken}" if options.broken else ""
    scene = f" --scene {options.scene}" if options.scene else ""
    command = "flotilla simulation"
    return f"{command} --schedule FILE{broken}", f"{command} --first {seed} --count 1{scene}{broken}"
