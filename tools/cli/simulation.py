"""flotilla simulation: all services on virtual time, seed by seed, while everything around them goes wrong."""

import argparse
import sys
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from tools.cli.numbers import at_least

if TYPE_CHECKING:
    from testing.simulation.running import Result
    from testing.simulation.seeds import Failure, Options

TOLD_EVERY = 25
"""Seeds after which it is told how far it is, where no line can be written over."""
CLEAR = "\r"
"""Before a line that is to stay, over the one that tells how far it is."""
DESCRIPTION = """\
Runs all services on virtual time over a simulated network, API server and Redis. The seed decides what users do, what
goes wrong and when; whatever that is, no node may be over its capacity, no pod bound twice, nobody evicted in vain, and
once it is quiet everything that fits is bound. docs/faults.md has the list.

For each seed that fails it prints the shortest schedule found that still fails, what does not hold, the story of the
pods and nodes concerned, and the commands that play the schedule and the seed again.
Exit code 0: all seeds held; 1: one did not.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "simulation",
        help="run the services on virtual time while everything goes wrong, by seed",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--first", type=at_least(0), default=1, metavar="N", help="the first seed (default 1)")
    command.add_argument("--count", type=at_least(1), default=100, metavar="M", help="how many seeds (default 100)")
    command.add_argument("--scene", default="", metavar="NAME", help="only this kind of cluster and load")
    command.add_argument("--broken", default="", metavar="NAME", help="with this fence switched off: it should fail")
    command.add_argument("--schedule", type=Path, metavar="FILE", help="play this schedule again, instead of seeds")
    command.add_argument(
        "--shrink", type=at_least(0), default=60, metavar="SECONDS", help="to shorten each failure (default 60)"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from shared.errors import UserError
    from testing.simulation.broken import BROKEN
    from testing.simulation.drawing import SCENES, check
    from testing.simulation.schedule import Schedule
    from testing.simulation.seeds import Options, play_schedule, play_seeds

    if options.scene and options.scene.removesuffix("-calm") not in SCENES:
        raise UserError(f"--scene: {options.scene!r} is none of: {', '.join(SCENES)}")
    if options.broken and options.broken not in BROKEN:
        raise UserError(f"--broken: {options.broken!r} is none of: {', '.join(BROKEN)}")
    chosen = Options(options.scene, options.broken, options.shrink)
    if options.schedule is not None:
        try:
            schedule = Schedule.read(options.schedule.read_text())
            check(schedule)
        except (OSError, UnicodeDecodeError, UserError) as cause:
            raise UserError(f"--schedule: {options.schedule}: {cause}") from cause
        result = play_schedule(schedule, chosen)
        print("\n".join(result.log))
        return _tell_one(result)
    seeds = range(options.first, options.first + options.count)
    results, failures = play_seeds(seeds, chosen, _progress)
    print(f"seeds {seeds[0]} to {seeds[-1]}: {sum(each.held for each in results)} of {len(results)} held")
    for failure in failures:
        _tell(failure, chosen)
    return 1 if failures else 0


def _progress(done: int, failed: int, last: "Result") -> None:
    """A failure is told at once: to shorten it takes a while."""
    if not last.held:
        print(f"{CLEAR}seed {last.seed} failed: {last.wrong.splitlines()[0]}", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(f"\r{done} played, {failed} failed", end="", file=sys.stderr, flush=True)
    elif done % TOLD_EVERY == 0:
        print(f"{done} played, {failed} failed", file=sys.stderr, flush=True)


def _tell_one(result: "Result") -> int:
    if result.held:
        print("\nheld")
        return 0
    _tell_why(result)
    return 1


def _tell(failure: "Failure", options: "Options") -> None:
    left, all_ = len(failure.shortest.entries), len(failure.whole.entries)
    print(f"\nseed {failure.whole.seed}: the shortest schedule found that still fails ({left} of {all_} entries):\n")
    print(failure.shortest)
    _tell_why(failure.result)
    print("\nplay it again, once it is saved as FILE, or the whole seed:\n")
    for command in replay_commands(failure.whole.seed, options):
        print(f"  {command}")


def _tell_why(result: "Result") -> None:
    print("\nwhat does not hold:\n")
    print(indent(result.wrong or "everything holds when it is played once more", "  "))
    print("\nthe story, in virtual seconds:\n")
    print(indent("\n".join(result.story), "  "))


def replay_commands(seed: int, options: "Options") -> tuple[str, str]:
    """For the shortest schedule, and for the seed it comes from."""
    broken = f" --broken {options.broken}" if options.broken else ""
    scene = f" --scene {options.scene}" if options.scene else ""
    command = "flotilla simulation"
    return f"{command} --schedule FILE{broken}", f"{command} --first {seed} --count 1{scene}{broken}"
