"""flotilla demo: schedule pods on a simulated cluster and check the result."""

import argparse
import os
import sys

from shared.config.settings import Settings
from shared.config.sources import settings_from
from tools.cli.arguments import add_numbers

PODS, PODS_WITH_DEVICES = 10_000, 1_000
HONOURED = frozenset(
    {
        "FLOTILLA_LOG_LEVEL",
        "FLOTILLA_SHARD_COUNT",
        "FLOTILLA_TRACE_RATIO",
        "FLOTILLA_TRACE_URL",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    }
)
"""Settings that may come by the environment; others would be for another pipeline."""

DESCRIPTION = """\
Starts NATS, Redis, a simulated API server and all services on this machine, creates nodes and
pods, shows how the pods are scheduled, and checks the result. Leaves nothing behind.
"""
EXAMPLES = """\
examples:
  flotilla demo                                10,000 pods of 50 kinds on 1,000 nodes
  flotilla demo --nodes 100 --pods 1000        a small one
  flotilla demo --devices                      1,000 pods that each claim a GPU, on nodes with none, 4 or 8
  flotilla demo --training 16                  at the end a gang of 16 evicts smaller jobs and lands in one block
  flotilla demo --console                      with a page that shows what happens; on a terminal until Ctrl-C
  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 FLOTILLA_TRACE_RATIO=1 flotilla demo
                                               with the traces of all pods
  flotilla demo --round-size 1                 one pod at a time, exactly as kube-scheduler decides

Exit code 0: every pod was bound and every check passed; 1: otherwise; 130: Ctrl-C.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_numbers(
        command,
        ("--nodes", 1_000, 1, "nodes of three sizes in three zones"),
        ("--pods", PODS, 1, "pods to schedule"),
        ("--late", 20, 0, "high-priority pods created at the end, which have to preempt others"),
        ("--training", 0, 0, "members of a gang that pushes smaller jobs out of a block of nodes at the end; even"),
        ("--kinds", 50, 1, "kinds of pods: requests, selectors, affinity, tolerations, ports, priorities, images"),
        ("--workers", 2, 1, "worker processes"),
        ("--binders", 1, 1, "binder processes"),
        ("--round-size", Settings().round_size, 1, "maximum pods decided per round"),
        ("--seed", 1, 0, "seed of the cluster and of ties"),
    )
    command.add_argument(
        "--devices",
        action="store_true",
        help=f"nodes have GPUs, and each pod claims one ({PODS_WITH_DEVICES} pods by default)",
    )
    console = "serve a page that shows what happens; on a terminal until Ctrl-C"
    command.add_argument("--console", action="store_true", help=console)


def run(options: argparse.Namespace) -> int:
    from tools.cli.processes import interruptible
    from tools.demo.runner import Demo
    from tools.demo.workload import DemoWorkload
    from tools.supervisor.options import PipelineOptions

    pods = PODS_WITH_DEVICES if options.devices and options.pods == PODS else options.pods
    workload = DemoWorkload(
        options.nodes,
        pods,
        options.kinds,
        options.seed,
        options.late,
        devices=options.devices,
        training=options.training,
    )
    kept = {key: value for key, value in os.environ.items() if key in HONOURED}
    settings = settings_from(kept, {"round_size": options.round_size, "seed": options.seed})
    pipeline = PipelineOptions(workers=options.workers, binders=options.binders, settings=settings)
    pipeline.services()  # validates the options before anything starts
    watched = sys.stdin.isatty() and sys.stdout.isatty()
    return interruptible(Demo(workload, pipeline, sys.stdout, console=options.console, stays=watched).play())
