"""flotilla bench-pipeline: decisions per second and CPU per pod of all services in real processes."""

import argparse
import os
import sys
from collections.abc import Collection

from shared.config.settings import ApiSettings
from shared.config.sources import settings_from
from shared.errors import UserError
from tools.cli.arguments import add_numbers, names, numbers
from tools.cli.run import SERVICES
from tools.supervisor.options import APART, GROUPINGS, PipelineOptions

DESCRIPTION = """\
For each case, starts NATS, Redis, a simulated API server and all services on this machine, and
measures the rate of decisions and the CPU time of each process.
"""
EXAMPLES = """\
examples:
  flotilla bench-pipeline                                   all cases, on 5,000 nodes
  flotilla bench-pipeline --modes without --rounds 1024     only rounds, without API calls
  flotilla bench-pipeline --repeat 5 --classes 50           minimum, median and maximum of five runs
  flotilla bench-pipeline --workloads plain --modes without --rounds 1024 --classes 50 --nodes 200000 --pods 200000
                                                            a large cluster
  flotilla bench-pipeline --profile cycle --rounds 1        run the first case with a profiler in the cycle
  flotilla bench-pipeline --modes with --rounds 1024 --classes 1 --nodes 1000 --pods 1000 --workloads preemption
                                                            1,000 pods that preempt two others each
  flotilla bench-pipeline --modes with --rounds 1024 --classes 1 --pods 1280 --workloads preempting-gangs
                                                            20 gangs of 64 that preempt 128 pods each
  flotilla bench-pipeline --rate 50,150,300                 pods that come one by one, at these rates
  flotilla bench-pipeline --rate 150 --pages 6              what an open page of the console costs

All pods are in the queue before the clock starts, which is once every class has been decided; with preemption, which
needs `--modes with` and at least as many nodes as pods, when the cycle starts. The clock stops at the last
decision; with API calls, when the last pod is bound and the queue is empty. CPU is measured in the same period.
Without API calls, pods that were decided 15 s ago are bound at the simulator in bulk, so that the watch confirms them.

Exit code 0: every pod was decided and bound; 1: otherwise; 130: Ctrl-C.
"""
CONSTRAINED_CLASSES = 5
"""Classes in workloads with constraints between pods: few enough that every pod fits."""
KEPT = ("FLOTILLA_CONFIG", "FLOTILLA_LOG_LEVEL", "FLOTILLA_SHARD_COUNT", "FLOTILLA_TRACE_RATIO")
"""Environment variables that apply to the benchmark."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    modes = names(lambda: ("with", "without"))
    command.add_argument("--modes", type=modes, default=["without", "with"], metavar="MODE,...",
        help="`with` or `without` API calls; without, binders report success at once (default both)")  # fmt: skip
    command.add_argument("--rounds", type=numbers(1), default=[1024, 1], metavar="N,...",
        help="round sizes; 1 is strict (default 1024,1)")  # fmt: skip
    command.add_argument("--classes", type=numbers(1), default=[1, 50], metavar="N,...",
        help="kinds of pods, interleaved (default 1,50)")  # fmt: skip
    command.add_argument(
        "--workloads",
        type=names(_workloads),
        default=None,
        metavar="NAME,...",
        help="kinds of pods (default: plain; the others in rounds with 5 classes, without API calls)",
    )
    add_numbers(
        command,
        ("--nodes", 5_000, 1, "nodes of 4 cpu, 32 GiB and 110 pods"),
        ("--pods", 10_000, 1, "pods per case with rounds"),
        ("--strict-pods", 3_000, 1, "pods per case with round size 1"),
        ("--workers", 2, 1, "worker processes"),
        ("--binders", 1, 1, "binder processes"),
        ("--repeat", 1, 1, "runs of each case"),
    )
    command.add_argument("--grouping", choices=GROUPINGS, default=APART,
        help=f"which services share a process (default {APART}), as in flotilla up")  # fmt: skip
    command.add_argument("--rate", type=numbers(1), default=None, metavar="N,...",
        help="instead of the cases: create N pods a second, one by one, and measure latency and cost")  # fmt: skip
    add_numbers(command, ("--seconds", 20, 1, "with --rate: seconds at each rate"))
    add_numbers(command, ("--pages", 0, 0, "with --rate: pairs of runs without and with an open page of the console"))
    command.add_argument("--kubeconfig", metavar="FILE", help="with --rate: a cluster instead of the simulator")
    command.add_argument("--profile", choices=SERVICES, metavar="SERVICE",
        help="run the first case only, with a profiler in this service (one process of it)")  # fmt: skip


def _workloads() -> Collection[str]:
    from tools.bench.pipeline.cases import KINDS

    return KINDS


def run(options: argparse.Namespace) -> int:
    from testing.inprocess.workloads import WORKLOADS
    from tools.bench.pipeline.bench import Bench
    from tools.bench.pipeline.cases import Case, check
    from tools.cli.processes import interruptible
    from tools.supervisor.options import PipelineOptions

    def make_case(workload: str, size: int, classes: int, *, api_calls: bool) -> Case:
        pods = options.strict_pods if size == 1 else options.pods
        return Case(
            api_calls=api_calls, round_size=size, classes=classes, nodes=options.nodes, pods=pods, workload=workload
        )

    settings = settings_from({key: value for key, value in os.environ.items() if key in KEPT})
    api = None if options.kubeconfig is None else ApiSettings(kubeconfig=options.kubeconfig)
    pipeline = PipelineOptions(
        workers=options.workers, binders=options.binders, settings=settings, api=api, grouping=options.grouping
    )
    pipeline.services()  # validates the options before anything starts
    if options.rate:
        return _run_steadily(options, pipeline)
    if api is not None:
        raise UserError("--kubeconfig: only with --rate")
    if options.pages:
        raise UserError("--pages: only with --rate")
    cases = [
        make_case(workload, size, classes, api_calls=mode == "with")
        for workload in options.workloads or ["plain"]
        for mode in options.modes
        for size in options.rounds
        for classes in options.classes
    ]
    if options.workloads is None:
        others = (workload for workload in WORKLOADS if workload != "plain")
        cases += [make_case(each, max(options.rounds), CONSTRAINED_CLASSES, api_calls=False) for each in others]
    for case in cases:
        check(case)
    if options.profile and options.repeat > 1:
        raise UserError("--profile: cannot be combined with --repeat")
    bench = Bench(pipeline, sys.stdout)
    if options.profile:
        return interruptible(bench.profile(cases[0], options.profile))
    return interruptible(bench.run(cases, options.repeat))


def _run_steadily(options: argparse.Namespace, pipeline: PipelineOptions) -> int:
    from testing.inprocess.workloads import WORKLOADS
    from tools.bench.steady.bench import SteadyBench, SteadyCase
    from tools.cli.processes import interruptible

    workload = options.workloads[0] if options.workloads else "plain"
    if workload not in WORKLOADS or WORKLOADS[workload].claims:
        raise UserError(f"--workloads: {workload} cannot be combined with --rate")
    if WORKLOADS[workload].owned and options.kubeconfig is not None:
        raise UserError(f"--workloads: {workload} cannot be combined with --kubeconfig, as controllers delete its pods")
    case = SteadyCase(options.rate, options.seconds, options.nodes, options.classes[0], workload, pairs=options.pages)
    return interruptible(SteadyBench(pipeline, sys.stdout).run(case))
