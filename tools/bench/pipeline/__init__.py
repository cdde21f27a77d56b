"""flotilla bench-pipeline: decisions a second and CPU a pod of all services, each in its process."""

import argparse
import os
import sys

from shared.config.sources import settings_from
from shared.errors import UserError
from tools.cli.arguments import at_least, numbers
from tools.cli.run import SERVICES

EXAMPLES = """\
examples:
  flotilla bench-pipeline                                   all cases, on 5,000 nodes
  flotilla bench-pipeline --modes without --rounds 256      only rounds, with a binder that acknowledges at once
  flotilla bench-pipeline --repeat 5 --classes 50           least, median and most of five runs a case
  flotilla bench-pipeline --profile cycle --rounds 1        the first case, and where the cycle spends its time

All pods are waiting in the queue before the clock starts, which is when all classes have been decided once. It stops
at the last decision, with API calls when the last pod is bound and the queue is empty. CPU is that of this time.

Exit code 0: every pod was decided, and bound; 1: something was not; 130: Ctrl-C.
"""
RULED_CLASSES = 5
"""With rules that look at other pods: as many kinds as leave every pod a place."""
KEPT = ("FLOTILLA_LOG_LEVEL", "FLOTILLA_SHARD_COUNT", "FLOTILLA_TRACE_RATIO")
"""Settings that are taken from the environment."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "bench-pipeline",
        help="measure the whole pipeline, in real processes",
        description="Starts NATS, Redis, a simulated API server and all services on this machine, a new set for each\n"
        "case, and measures how fast pods are decided and what CPU each process takes for that.",
        epilog=EXAMPLES,
    )
    command.add_argument("--modes", type=_modes, default=["without", "with"], metavar="MODE,...",
        help="`with` or `without` API calls; without them a pod counts as bound at once (default both)")  # fmt: skip
    command.add_argument("--rounds", type=numbers(1), default=[256, 1], metavar="N,...",
        help="round sizes; 1 is strict (default 256,1)")  # fmt: skip
    command.add_argument("--classes", type=numbers(1), default=[1, 50], metavar="N,...",
        help="kinds of pods, interleaved (default 1,50)")  # fmt: skip
    command.add_argument(
        "--workloads",
        type=_workloads,
        default=None,
        metavar="NAME,...",
        help="what the pods say beside their requests (default: plain; the others in rounds, 5 classes, without calls)",
    )
    for flag, default, text in (
        ("--nodes", 5_000, "nodes of 4 cpu, 32 GiB and 110 pods"),
        ("--pods", 10_000, "pods a case in rounds"),
        ("--strict-pods", 3_000, "pods a case with rounds of 1"),
        ("--workers", 2, "processes that filter and score"),
        ("--binders", 1, "processes that bind"),
        ("--repeat", 1, "runs of each case"),
    ):
        command.add_argument(flag, type=at_least(1), default=default, metavar="N", help=f"{text} (default {default})")
    command.add_argument("--profile", choices=SERVICES, metavar="SERVICE",
        help="run the first case only, with a profiler in this service (worker: in one of them)")  # fmt: skip
    command.set_defaults(run=run)


def _modes(text: str) -> list[str]:
    modes = text.split(",")
    for mode in modes:
        if mode not in ("with", "without"):
            raise argparse.ArgumentTypeError(f"takes with and without, not {mode!r}")
    return modes


def _workloads(text: str) -> list[str]:
    from testing.inprocess.workloads import WORKLOADS

    names = text.split(",")
    for name in names:
        if name not in WORKLOADS:
            raise argparse.ArgumentTypeError(f"takes {', '.join(WORKLOADS)}, not {name!r}")
    return names


def run(options: argparse.Namespace) -> int:
    from testing.inprocess.workloads import WORKLOADS
    from tools.bench.pipeline.bench import Bench
    from tools.bench.pipeline.cases import Case, check
    from tools.cli.processes import interruptible
    from tools.supervisor.options import PipelineOptions

    cases = [
        Case(
            api_calls=mode == "with",
            round_size=size,
            classes=classes,
            nodes=options.nodes,
            pods=options.strict_pods if size == 1 else options.pods,
            workload=workload,
        )
        for workload in options.workloads or ["plain"]
        for mode in options.modes
        for size in options.rounds
        for classes in options.classes
    ]
    if options.workloads is None:
        cases += [
            Case(
                api_calls=False,
                round_size=max(options.rounds),
                classes=RULED_CLASSES,
                nodes=options.nodes,
                pods=options.pods,
                workload=workload,
            )
            for workload in WORKLOADS
            if workload != "plain"
        ]
    for case in cases:
        check(case)
    if options.profile and options.repeat > 1:
        raise UserError("--profile: runs one case once, so leave out --repeat")
    settings = settings_from({key: value for key, value in os.environ.items() if key in KEPT})
    pipeline = PipelineOptions(workers=options.workers, binders=options.binders, settings=settings)
    pipeline.services()  # complains before anything starts
    bench = Bench(pipeline, sys.stdout)
    if options.profile:
        return interruptible(bench.profile(cases[0], options.profile))
    return interruptible(bench.run(cases, options.repeat))
