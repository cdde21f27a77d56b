"""flotilla bench: the CPU cost of a decision in the cores, by part."""

import argparse
import multiprocessing
import os
import platform
from collections.abc import Callable, Collection
from typing import ParamSpec, TypeVar

from tools.cli.arguments import add_numbers, names, numbers

A = ParamSpec("A")
T = TypeVar("T")

MEGABYTE = 1 << 20

DESCRIPTION = """\
Runs the scheduling cores with two shards, without a network, on nodes of 4 cpu, 32 GiB and 110
pods and pods of about 100m and 500Mi. Prints CPU time. Every node is considered for every pod.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--nodes",
        type=numbers(1),
        default=[5_000, 20_000, 100_000],
        metavar="N,...",
        help="cluster sizes (default 5000,20000,100000)",
    )
    add_numbers(command, ("--pods", 10_240, 1, "pods per case with rounds"))
    command.add_argument(
        "--load",
        type=numbers(0, 2),
        default=[100_000, 500_000],
        metavar="NODES,PODS",
        help="cluster to load, 0,0 for none (default 100000,500000)",
    )
    command.add_argument(
        "--workloads",
        type=names(_workloads),
        default=None,
        metavar="NAME,...",
        help="kinds of pods (default: plain, and all others on the first two sizes)",
    )


def run(options: argparse.Namespace) -> int:
    from testing.inprocess.bench import PARTS, SHARDS, cases, measure, measure_load
    from testing.inprocess.workloads import WORKLOADS

    print(f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}, {SHARDS} shards")
    print("microseconds of CPU per pod, all shards together; memory of one worker\n")
    parts = "".join(f"{part:>10}" for part in PARTS)
    print(
        f"{'workload':<14}{'nodes':>7}{'classes':>9}{'round':>7}{'pods':>8}{parts}{'total':>10}{'asks/pod':>10}{'MB/worker':>11}"
    )
    wanted = options.workloads
    chosen = list(cases(options.nodes, options.pods, wanted or ["plain"]))
    if wanted is None:
        chosen += cases(options.nodes[:2], options.pods, [name for name in WORKLOADS if name != "plain"])
    for case in chosen:
        costs, worker_bytes = _apart(measure, case)
        micros = [costs.micros(part) for part in PARTS]
        numbers = "".join(f"{value:10.1f}" for value in (*micros, sum(micros)))
        mode = "strict" if case.round_size == 1 else str(case.round_size)
        print(
            f"{case.workload:<14}{case.nodes:>7}{case.classes:>9}{mode:>7}{case.pods:>8}{numbers}"
            f"{costs.asks / case.pods:10.2f}{worker_bytes / MEGABYTE:11.0f}",
            flush=True,
        )
    nodes, pods = options.load
    if nodes:
        loaded = _apart(measure_load, nodes, pods)
        print(
            f"\nloading {loaded.nodes} nodes with {loaded.pods} pods, from JSON to {SHARDS} workers in one process: "
            f"{loaded.seconds:.1f} s of CPU, at most {loaded.peak_bytes / MEGABYTE:.0f} MB"
        )
    return 0


def _workloads() -> Collection[str]:
    from testing.inprocess.workloads import WORKLOADS

    return WORKLOADS


def _apart(call: Callable[A, T], *arguments: A.args, **named: A.kwargs) -> T:
    """Call it in a process of its own, so that each case measures its own memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments, named)
