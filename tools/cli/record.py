"""flotilla record: write what a running Flotilla decides, and on which states, into a file for flotilla replay."""

import argparse
import asyncio
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cli.arguments import add_nats_flags, at_least

if TYPE_CHECKING:
    from tools.recording.recorder import Recorder

DESCRIPTION = """\
Records what a running Flotilla decides: the state of the cluster and each change of it, the pods,
the decisions and the configuration. flotilla replay decides it all again. Ctrl-C ends it.
"""
EXAMPLES = """\
A recording has what deciding reads: names, labels, requests, rules. It has no environment, command,
argument, annotation of a pod, secret or password.

examples:
  flotilla record --output today.rec --duration 10m
  flotilla record --output today.rec --max-size 100MiB --rotate 9
  flotilla record --output report.rec --duration 2m --anonymize
"""
DEFAULT_SIZE, ANONYMOUS_SIZE = 1 << 30, 1 << 28
SIZES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", type=Path, required=True, metavar="FILE", help="the file to write")
    command.add_argument("--force", action="store_true", help="overwrite the file if it exists")
    command.add_argument("--duration", type=seconds, metavar="TIME", help="such as 10m (default: until Ctrl-C)")
    command.add_argument(
        "--max-size",
        type=size,
        metavar="SIZE",
        help="end, or rotate, at this size (default 1GiB; 256MiB with --anonymize, in memory)",
    )
    command.add_argument(
        "--rotate",
        type=at_least(0),
        default=0,
        metavar="N",
        help="at the maximum size begin the next file, and keep N earlier ones as FILE.1, FILE.2 ... (default 0: end)",
    )
    command.add_argument(
        "--anonymize",
        action="store_true",
        help="replace all names, so that the file can be given away; it is written at the end",
    )
    add_nats_flags(command)


def seconds(text: str) -> float:
    from shared.model.durations import parse_duration

    try:
        value = float(parse_duration(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a time such as 90s or 10m, not {text!r}") from None
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text!r}")
    return value


def size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([A-Za-z]*)", text)
    if found is None or found[2] not in SIZES or not int(found[1]):
        raise argparse.ArgumentTypeError(f"must be a size such as 100MiB, not {text!r}")
    return int(found[1]) * SIZES[found[2]]


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_record(options))


async def _record(options: argparse.Namespace) -> int:
    from importlib.metadata import version

    from shared.errors import UserError
    from tools.cli.service_client import connected
    from tools.recording.file import Header
    from tools.recording.recorder import AnonymousFile, Files, Recorder

    if options.anonymize and options.rotate:
        raise UserError("--anonymize writes one file at its end: it takes no --rotate")
    async with connected(options) as client:
        header = Header(version("flotilla"), time.time())
        if options.anonymize:
            files: Files = AnonymousFile(
                options.output, options.max_size or ANONYMOUS_SIZE, header, force=options.force
            )
        else:
            most = options.max_size or DEFAULT_SIZE
            files = Files(options.output, most, options.rotate, header, force=options.force)
        recorder = Recorder(client, files)
        recording = asyncio.create_task(recorder.run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, recording.cancel)
        began = time.monotonic()
        done, _ = await asyncio.wait([recording], timeout=options.duration)
        if not done:
            recording.cancel()
            await asyncio.wait([recording])
        if not recording.cancelled():
            recording.result()
        print(_ended(options, recorder, time.monotonic() - began, files.size), file=sys.stderr)
    return 0


def _ended(options: argparse.Namespace, recorder: "Recorder", duration: float, written: int) -> str:
    full = ", which is the maximum size" if recorder.is_full else ""
    gaps = f"; {recorder.core.gaps} gaps, which the replay names" if recorder.core.gaps else ""
    decided = f"{recorder.pods:,} decisions in {recorder.rounds:,} rounds and searches"
    return f"{options.output}: {duration:,.0f} s, {decided}, {written:,} bytes{full}{gaps}"
