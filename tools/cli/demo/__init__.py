"""flotilla demo: a made-up cluster, all services, real HTTP, and a judgement of what came out."""

import argparse
import os
import sys

from shared.config.sources import settings_from
from tools.cli.numbers import at_least

EXAMPLES = """\
examples:
  flotilla demo                                10,000 pods of 50 kinds on 1,000 nodes
  flotilla demo --nodes 100 --pods 1000        a small one
  flotilla demo --round-size 1                 decides one pod at a time, exactly as kube-scheduler does

Exit code 0: every pod was bound and everything held; 1: something did not; 130: Ctrl-C.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "demo",
        help="schedule pods on a made-up cluster, with all services, and check the result",
        description="Starts NATS, Redis, a simulated API server and all services on this machine, creates nodes and\n"
        "pods over HTTP, shows how they are scheduled, and checks what came out. It leaves nothing behind.",
        epilog=EXAMPLES,
    )
    for flag, default, least, text in (
        ("--nodes", 1_000, 1, "nodes of three sizes in three zones"),
        ("--pods", 10_000, 1, "pods to schedule"),
        ("--late", 20, 0, "pods of high priority that come in the end, to nodes without room"),
        ("--kinds", 50, 1, "kinds of pods: requests, selectors, affinity, tolerations, ports, priorities, images"),
        ("--workers", 2, 1, "processes that filter and score"),
        ("--binders", 1, 1, "processes that bind"),
        ("--round-size", 256, 1, "pods decided at once, at most"),
        ("--seed", 1, 0, "for the cluster and for choices between equals"),
    ):
        command.add_argument(
            flag, type=at_least(least), default=default, metavar="N", help=f"{text} (default {default})"
        )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tools.cli.demo.play import Demo
    from tools.cli.demo.workload import Workload
    from tools.cli.interruptible import interruptible
    from tools.supervisor.options import PipelineOptions

    workload = Workload(options.nodes, options.pods, options.kinds, options.seed, options.late)
    kept = {key: value for key, value in os.environ.items() if key in ("FLOTILLA_LOG_LEVEL", "FLOTILLA_SHARD_COUNT")}
    settings = settings_from(kept, {"round_size": options.round_size, "seed": options.seed})
    pipeline = PipelineOptions(workers=options.workers, binders=options.binders, settings=settings)
    pipeline.services()  # complains before anything starts
    return interruptible(Demo(workload, pipeline, sys.stdout).play())
