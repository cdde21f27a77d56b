"""flotilla replay: decide again what flotilla record recorded, and compare."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.cli.arguments import add_output, at_least

if TYPE_CHECKING:
    from tools.replay.replay import Comparison, Difference

NO_DIFFERENCE, DIFFERENCES, UNREADABLE = 0, 1, 2
SHOWN = 10
"""Differences that are listed."""

DESCRIPTION = """\
Decides everything in a recording again, each time on the state that was judged then, and compares.
Exit code 0: no difference, 1: differences, 2: the file cannot be read.
"""
EXAMPLES = """\
examples:
  flotilla replay today.rec
  flotilla replay today.rec -o json
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="what flotilla record wrote")
    command.add_argument(
        "--shards",
        type=at_least(1),
        metavar="N",
        help="divide the nodes among N workers, instead of as recorded: only with a round size of 1 must that be equal",
    )
    add_output(command, "text", "json")


def run(options: argparse.Namespace) -> int:
    from tools.recording.file import RecordingReader, UnreadableRecording
    from tools.replay.replay import Replay

    reader, replay = RecordingReader(options.file), Replay(options.shards)
    try:
        found = replay.take_all(reader.entries())
    except UnreadableRecording as why:
        print(f"flotilla: {why}", file=sys.stderr)
        return UNREADABLE
    if options.output == "json":
        print(json.dumps(as_json(found, reader.damage), indent=2))
    else:
        print("\n".join(lines(found, reader.damage)))
    return DIFFERENCES if found.different else NO_DIFFERENCE


def lines(found: "Comparison", damage: list[str]) -> list[str]:
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(found.verdicts.items()))
    gangs = f", {found.gangs:,} gangs" if found.gangs else ""
    said = [
        f"compared: {found.rounds:,} rounds, {found.searches:,} preemption searches{gangs}; {len(found.pods):,} pods",
        f"decisions: {found.decisions:,}" + (f" ({verdicts})" if verdicts else ""),
        f"differences: {found.different:,}" if found.different else "no difference",
    ]
    if found.mixed:
        said.insert(2, f"of these, {found.mixed:,} rounds and searches were judged on several states")
    said += [f"  {each.text()}" for each in found.differences[:SHOWN]]
    if found.different > SHOWN:
        said.append(f"  and {found.different - SHOWN:,} more")
    said += [f"not compared: {count:,} rounds and searches: {why}" for why, count in found.incomparable.items()]
    said += [f"missing in the recording: {lost}" for lost in found.gaps]
    return said + [f"the file is damaged: {what}" for what in damage]


def as_json(found: "Comparison", damage: list[str]) -> dict[str, Any]:
    return {
        "rounds": found.rounds,
        "searches": found.searches,
        "gangs": found.gangs,
        "pods": len(found.pods),
        "decisions": found.decisions,
        "verdicts": dict(found.verdicts),
        "conflicts": found.conflicts,
        "different": found.different,
        "differences": [_difference(each) for each in found.differences],
        "notCompared": dict(found.incomparable),
        "gaps": found.gaps,
        "damage": damage,
    }


def _difference(difference: "Difference") -> dict[str, Any]:
    from shared.model.objects import encode_json

    sides = {"recorded": difference.recorded, "replayed": difference.replayed}
    decided = {side: json.loads(encode_json(each)) for side, each in sides.items()}
    return {"what": difference.what, "pod": difference.pod, **decided}
