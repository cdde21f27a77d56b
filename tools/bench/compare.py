"""flotilla bench-compare: what decisions cost now, compared with an earlier commit, as ratios.

The machine's speed drifts, so both are measured in turn, several times, and only ratios of neighbouring runs count.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from shared.errors import ClusterError, UserError
from tools.cli.arguments import add_numbers
from tools.cli.output import table

DESCRIPTION = """\
Measures a small fixed set of decisions in the cores, in turn in this checkout and in another
commit of it, and prints the CPU time of a pod and the ratio of the two. Takes about two minutes.
"""
EXAMPLES = """\
examples:
  flotilla bench-compare                      this checkout, with its changes, against its last commit
  flotilla bench-compare --against v0.1.0     against a release

A ratio below 1 is faster than before. On a noisy machine, ratios between 0.9 and 1.1 say nothing.
"""
NODES = 5_000
CASES = (
    ("plain", 1, 256, 2_560),
    ("plain", 50, 256, 2_560),
    ("plain", 1, 1, 320),
    ("spread-hard", 5, 256, 1_280),
    ("anti-host", 5, 256, 1_280),
    ("affinity-zone", 5, 256, 1_280),
    ("volumes", 5, 256, 640),
    ("devices-template", 5, 256, 640),
)
"""Workload, classes, round size and pods."""
HEAD = ("workload", "classes", "round", "us a pod then", "now", "ratio", "lowest", "highest")
RUN_TIMEOUT = 120.0
GIT_TIMEOUT = 60.0
MEASURE = """\
import gc, json, sys
if __name__ == "__main__":
    gc.disable()
    from testing.inprocess.bench import Case, measure
    for workload, classes, size, pods in json.loads(sys.argv[1]):
        costs, _ = measure(Case(int(sys.argv[2]), classes, size, pods, workload))
        print(sum(costs.by_part.values()) / 1000 / pods, flush=True)
"""
"""Run in both checkouts: an earlier commit's benchmark need not know this command. Garbage collection is off, because a
collection of everything falls on some case by chance, and costs as much as a thousand pods.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--against", default="HEAD", metavar="COMMIT", help="the commit to compare with (default: the last one)"
    )
    add_numbers(command, ("--repeat", 3, 1, "runs of each"), ("--nodes", NODES, 1, "nodes of the cluster"))


def run(options: argparse.Namespace) -> int:
    here = Path(__file__).resolve().parents[2]
    with checkout(here, options.against) as there:
        then: list[list[float]] = []
        now: list[list[float]] = []
        for _ in range(options.repeat):
            then.append(_measured(there, options.nodes))
            now.append(_measured(here, options.nodes))
    for line in table(list(rows(then, now))):
        print(line)
    return 0


def rows(then: Sequence[Sequence[float]], now: Sequence[Sequence[float]]) -> Iterator[tuple[str, ...]]:
    """`then` and `now`: the costs of all cases, run by run."""
    yield HEAD
    for number, (workload, classes, size, _) in enumerate(CASES):
        before, after = [run[number] for run in then], [run[number] for run in now]
        ratios = [b / a for a, b in zip(before, after, strict=True)]
        shown = (f"{each:.2f}" for each in (median(ratios), min(ratios), max(ratios)))
        mode = "strict" if size == 1 else str(size)
        yield (workload, str(classes), mode, f"{median(before):.0f}", f"{median(after):.0f}", *shown)


@contextmanager
def checkout(repository: Path, commit: str) -> Iterator[Path]:
    """The files of a commit in a temporary folder; UserError if there is no such commit, or no git."""
    with tempfile.TemporaryDirectory(prefix="flotilla-") as folder:
        archive = Path(folder) / "commit.tar"
        _git(repository, "archive", "--output", str(archive), commit)
        files = Path(folder) / "files"
        files.mkdir()
        subprocess.run(("tar", "--extract", "--file", archive, "--directory", files), check=True, timeout=GIT_TIMEOUT)
        yield files


def _git(repository: Path, *arguments: str) -> None:
    try:
        ended = subprocess.run(
            ("git", "-C", str(repository), *arguments), capture_output=True, text=True, timeout=GIT_TIMEOUT, check=False
        )
    except OSError as cause:
        raise UserError(f"git cannot be run: {cause.strerror}") from cause
    if ended.returncode:
        raise UserError(f"--against: {ended.stderr.strip().splitlines()[0]}")


def _measured(checkout: Path, nodes: int) -> list[float]:
    """Microseconds of CPU per pod of each case, in a process that imports this checkout's modules."""
    environment = os.environ | {
        "PYTHONPATH": str(checkout),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = (sys.executable, "-c", MEASURE, json.dumps(CASES), str(nodes))
    ended = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT, check=False
    )
    if ended.returncode:
        reason = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise ClusterError(f"the benchmark of {checkout} failed: {reason}")
    return [float(line) for line in ended.stdout.split()]
