"""flotilla bench-start: how long a pipeline takes to know a cluster, and what its processes then hold."""

import argparse

from services.cli.numbers import at_least

DESCRIPTION = """\
Fills a made-up API server with a cluster, starts a pipeline for it, and says how long it takes until all of it is
ready, and what each process has used by then: CPU time, memory at most, and memory in the end.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "bench-start",
        help="measure how long a start takes in a large cluster, and what it holds",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--nodes", type=at_least(1), default=5_000, metavar="N", help="default 5000")
    command.add_argument("--pods", type=at_least(0), default=50_000, metavar="N", help="default 50000")
    command.add_argument("--pending", action="store_true", help="the pods fit nowhere, instead of being on nodes")
    command.add_argument("--workers", type=at_least(1), default=2, metavar="N", help="default 2")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from services.cli.bench_start.cluster import Cluster
    from services.cli.bench_start.measuring import measure
    from services.cli.interruptible import interruptible

    return interruptible(measure(Cluster(options.nodes, options.pods, options.pending), options.workers))
