"""flotilla replay: decide again what flotilla record recorded, and compare."""

import argparse
import json
import re
import sys
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.cli.arguments import add_output, at_least

if TYPE_CHECKING:
    from shared.messages.recording import PodDecided
    from tools.recording.file import Entry
    from tools.replay.counterfactual import Contrast
    from tools.replay.replay import Comparison, Difference, Stopped

NO_DIFFERENCE, DIFFERENCES, UNREADABLE = 0, 1, 2
NOTHING_TO_COMPARE = 2
"""Of a recording without decisions, as of a pipeline that was idle or a file that lost them."""
SHOWN = 10
"""Differences that are listed."""
MOST_LISTED = 40
"""Pods that another configuration would have placed elsewhere, in text."""
TESTS = Path("tests/recordings")
LARGEST_TEST = 200_000
"""Bytes of a recording that is kept as a test: it is part of every clone."""

DESCRIPTION = """\
Decides everything in a recording again, each time on the state that was judged then, and compares.
With --config, decides it from the first state on with another configuration as well, and lists the
pods that are placed elsewhere.
Exit code 0: no difference, 1: differences, 2: the file cannot be read, or has no decision to compare.
"""
EXAMPLES = """\
examples:
  flotilla replay today.rec
  flotilla replay today.rec -o json
  flotilla replay today.rec --config other.yaml
  flotilla replay today.rec --until default/web-1
  flotilla replay today.rec --until default/web-1 --as-test web-preempts-nothing
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="what flotilla record wrote")
    command.add_argument(
        "--shards",
        type=at_least(1),
        metavar="N",
        help="divide the nodes among N workers, instead of as recorded; with a round size of 1 that changes nothing",
    )
    command.add_argument(
        "--config", metavar="FILE", help="a KubeSchedulerConfiguration: show which pods it would have placed elsewhere"
    )
    command.add_argument(
        "--until", metavar="POD", help="stop right before this pod ([namespace/]name, or uid) is decided, and show how"
    )
    command.add_argument(
        "--as-test",
        metavar="NAME",
        help=f"keep it as the test {TESTS}/NAME.rec, in a clone of Flotilla; with --until only that one decision",
    )
    add_output(command, "text", "json")


def run(options: argparse.Namespace) -> int:
    from tools.recording.file import UnreadableRecording

    try:
        if options.as_test is not None:
            return _keep_as_test(options)
        return _contrast(options) if options.config is not None else _compare(options)
    except UnreadableRecording as why:
        print(f"flotilla: {why}", file=sys.stderr)
        return UNREADABLE


def _compare(options: argparse.Namespace) -> int:
    from tools.recording.file import RecordingReader
    from tools.replay.replay import Replay

    reader, replay = RecordingReader(options.file), Replay(options.shards, options.until or "")
    found = replay.take_all(reader.entries())
    if options.until is not None:
        return _explain(options, replay.stopped)
    if options.output == "json":
        print(json.dumps(as_json(found, reader.damage), indent=2))
    else:
        size = 1 if replay.decisions is None else replay.decisions.round_size
        by = "" if replay.header is None else replay.header.version
        print("\n".join([*of_version(by), *divided(options.shards, size), *lines(found, reader.damage)]))
    return exit_code(found)


def exit_code(found: "Comparison") -> int:
    if not found.decisions:
        return NOTHING_TO_COMPARE
    return DIFFERENCES if found.different else NO_DIFFERENCE


def _keep_as_test(options: argparse.Namespace) -> int:
    """Writes the recording, or the decision about one pod, where the tests find it, once it has replayed that."""
    from shared.errors import UserError
    from tools.recording.file import MAGIC, RecordingReader, RecordingWriter
    from tools.replay.excerpt import excerpt
    from tools.replay.replay import Replay

    if options.shards is not None or options.config is not None:
        raise UserError("--as-test keeps what was recorded: it takes neither --shards nor --config")
    if not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", options.as_test):
        raise UserError(f"--as-test: must be lower-case words joined by hyphens, not {options.as_test!r}")
    path = TESTS / f"{options.as_test}.rec"
    if not TESTS.is_dir() or path.exists():
        why = f"{path} exists already" if path.exists() else f"there is no folder {TESTS} here: run it in a clone"
        raise UserError(f"--as-test: {why}")

    def entries() -> "Iterable[Entry]":
        return RecordingReader(options.file).entries()

    content = BytesIO()
    writer = RecordingWriter(content)
    for entry in entries() if options.until is None else excerpt(entries, options.until):
        writer.add(entry)
    writer.flush()
    if options.until is not None and writer.size == len(MAGIC):
        raise UserError(f"--until: no pod {options.until!r} is decided in {options.file}")
    if writer.size > LARGEST_TEST:
        hint = "" if options.until else "; --until POD keeps the decision about one pod"
        raise UserError(f"--as-test: it takes {writer.size:,} bytes, and a test at most {LARGEST_TEST:,}{hint}")
    content.seek(0)
    reader = RecordingReader(path)
    found = Replay().take_all(reader.entries_in(content))
    if not found.decisions:
        raise UserError(f"--as-test: {options.file} has no decision to compare")
    path.write_bytes(content.getvalue())
    print("\n".join(lines(found, reader.damage)))
    print(f"kept as {path}: pytest tests/replay/test_recordings.py -k {options.as_test}")
    return exit_code(found)


def of_version(recorded: str) -> list[str]:
    from importlib.metadata import version

    present = version("flotilla")
    return [f"recorded with flotilla {recorded}, replayed with {present}"] if recorded not in ("", present) else []


def divided(shards: int | None, round_size: int) -> list[str]:
    """What the reader must know of a division that was not recorded."""
    if shards is None or round_size == 1:
        return []
    rounds = f"in rounds of up to {round_size:,} pods that decides how many places a class is offered, so pods may"
    return [f"the nodes are divided among {shards:,} workers, not as recorded:", f"{rounds} be decided otherwise"]


def lines(found: "Comparison", damage: list[str]) -> list[str]:
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(found.verdicts.items()))
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.kinds.items()))
    gangs = f", {found.gangs:,} gangs" if found.gangs else ""
    said = [
        f"compared: {found.rounds:,} rounds, {found.searches:,} preemption searches{gangs}; {len(found.pods):,} pods",
        f"decisions: {found.decisions:,}" + (f" ({verdicts})" if verdicts else ""),
        f"differences: {found.different:,} ({kinds})" if found.different else "no difference",
    ]
    if not found.decisions:
        said[-1] = "nothing to compare: no decision was recorded, or none that can be decided again"
    if found.mixed:
        said.insert(2, f"of these, {found.mixed:,} rounds and searches were judged on several states")
    said += [f"  {each.text()}" for each in found.differences[:SHOWN]]
    if found.different > SHOWN:
        said.append(f"  and {found.different - SHOWN:,} more")
    said += [f"not compared: {count:,} rounds and searches: {why}" for why, count in found.incomparable.items()]
    said += [f"missing in the recording: {lost}" for lost in found.gaps]
    return said + [f"the file is damaged: {what}" for what in damage]


def _explain(options: argparse.Namespace, stopped: "Stopped | None") -> int:
    from shared.errors import UserError

    if stopped is None:
        raise UserError(f"--until: no pod {options.until!r} is decided in {options.file}")
    if options.output == "json":
        print(json.dumps(explained_as_json(stopped), indent=2))
    else:
        print("\n".join(explained_lines(stopped)))
    return NO_DIFFERENCE if stopped.recorded == stopped.replayed else DIFFERENCES


def explained_lines(stopped: "Stopped") -> list[str]:
    from tools.replay.replay import said

    totals = sorted(stopped.scores, key=lambda node: (-sum(stopped.scores[node].values()), node))
    lines = [f"{stopped.what}: pod {stopped.pod}, judged on the state after change {stopped.seq}"]
    sides = {"recorded": stopped.recorded, "replayed": stopped.replayed}
    lines += [f"{side}: {said(each, stopped.victims)}" for side, each in sides.items()]
    if totals:
        lines.append(f"feasible: {len(totals):,} nodes, before the pods ahead of it in the round; the best ones:")
    for node in totals[:SHOWN]:
        plugins = ", ".join(f"{plugin} {score}" for plugin, score in stopped.scores[node].items())
        lines.append(f"  {node}: {sum(stopped.scores[node].values())} ({plugins})")
    return lines + [f"rejected: {count:,} nodes: {why}" for why, count in stopped.rejected.items()]


def explained_as_json(stopped: "Stopped") -> dict[str, Any]:
    decided = _decided({"recorded": stopped.recorded, "replayed": stopped.replayed})
    about = {"what": stopped.what, "pod": stopped.pod, "seq": stopped.seq}
    return {**about, **decided, "scores": stopped.scores, "rejected": stopped.rejected}


def _contrast(options: argparse.Namespace) -> int:
    from shared.config.document import read_config
    from shared.framework.loading import load_frameworks
    from tools.recording.file import RecordingReader
    from tools.replay.counterfactual import Counterfactual

    reader, runs = RecordingReader(options.file), Counterfactual(load_frameworks(read_config(options.config)))
    for entry in reader.entries():
        runs.take(entry)
    found = runs.finish()
    if options.output == "json":
        print(json.dumps(contrast_as_json(found), indent=2))
    else:
        print("\n".join(contrast_lines(found)))
    return DIFFERENCES if found.moved or found.now_fit or found.no_longer_fit else NO_DIFFERENCE


def contrast_lines(found: "Contrast") -> list[str]:
    before, after = found.before, found.after
    pods = found.same + len(found.moved) + len(found.now_fit) + len(found.no_longer_fit)
    said = [f"{pods:,} pods: {found.same:,} as with the recorded configuration, {len(found.moved):,} moved, "]
    said[0] += f"{len(found.now_fit):,} now fit, {len(found.no_longer_fit):,} no longer fit"
    said.append(f"(decided again with the recorded one, {found.as_recorded:,} of them are where they were placed)")
    said.append(f"{'':22}{'recorded':>12}{'other':>12}")
    zones = sorted(before.zones.keys() | after.zones.keys())
    used = after.utilisation
    rows = [(f"{name} requested", f"{of:.1%}", f"{used[name]:.1%}") for name, of in before.utilisation.items()]
    rows += [(f"pods in {zone or 'no zone'}", f"{before.zones[zone]:,}", f"{after.zones[zone]:,}") for zone in zones]
    said += [f"{what:22}{was:>12}{now:>12}" for what, was, now in rows]
    said.append(f"{'preemptions':22}{before.preemptions:>12,}{after.preemptions:>12,}")
    said.append(f"{'their victims':22}{before.victims:>12,}{after.victims:>12,}")
    listed = [f"{pod}: moved from {was} to {now}" for pod, (was, now) in found.moved.items()]
    listed += [f"{pod}: now fits, on {now}" for pod, now in found.now_fit.items()]
    listed += [f"{pod}: no longer fits: {why}" for pod, why in found.no_longer_fit.items()]
    more = [f"and {len(listed) - MOST_LISTED:,} more: -o json lists all"] if len(listed) > MOST_LISTED else []
    return said + listed[:MOST_LISTED] + more


def contrast_as_json(found: "Contrast") -> dict[str, Any]:
    sides = {
        name: {
            "utilisation": side.utilisation,
            "podsByZone": dict(side.zones),
            "preemptions": side.preemptions,
            "victims": side.victims,
        }
        for name, side in (("recorded", found.before), ("other", found.after))
    }
    moved = {pod: {"recorded": was, "other": now} for pod, (was, now) in found.moved.items()}
    same = {"same": found.same, "asRecorded": found.as_recorded}
    return {**sides, **same, "moved": moved, "nowFit": found.now_fit, "noLongerFit": found.no_longer_fit}


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
        "kinds": dict(found.kinds),
        "differences": [_difference(each) for each in found.differences],
        "notCompared": dict(found.incomparable),
        "gaps": found.gaps,
        "damage": damage,
    }


def _difference(difference: "Difference") -> dict[str, Any]:
    decided = _decided({"recorded": difference.recorded, "replayed": difference.replayed})
    return {"what": difference.what, "pod": difference.pod, **decided}


def _decided(sides: "dict[str, PodDecided]") -> dict[str, Any]:
    from shared.model.objects import encode_json

    return {side: json.loads(encode_json(each)) for side, each in sides.items()}
