"""flotilla faults: inject faults into every part of a pipeline under load, and check the result."""

import argparse
import random
import sys

from tools.cli.arguments import at_least

PODS_PER_NODE = 25
MIN_NODES = 20
MAX_SEED = 1_000_000
EXAMPLES = """\
examples:
  flotilla faults                              a minute of faults, 5,000 pods on 200 nodes; prints its seed first
  flotilla faults --seed 17                    the faults and pods of this seed, at the same times
  flotilla faults --seconds 10 --pods 500      a short run

Exit code 0: all checks passed; 1: one failed, or the run did not finish; 130: Ctrl-C.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "faults",
        help="inject faults into every part of a pipeline under load, and check the result",
        description="Starts NATS, Redis, a simulated API server and all services on this machine. While pods are\n"
        "created and deleted, servers fail, hang, lose data and are cut off, and services are killed and paused at\n"
        "random. Then checks that no pod was lost, bound twice or bound where it may not be. Prints each fault.",
        epilog=EXAMPLES,
    )
    for flag, default, least, text in (
        ("--seconds", 60, 1, "duration of the faults (default 60)"),
        ("--pods", 5_000, 100, "pods to create, about a third of which are deleted (default 5000)"),
        ("--nodes", None, MIN_NODES, f"nodes (default one per {PODS_PER_NODE} pods, at least {MIN_NODES})"),
        ("--seed", None, 0, "seed of the faults and of the pods (default random)"),
    ):
        command.add_argument(flag, type=at_least(least), default=default, metavar="N", help=text)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tools.cli.processes import interruptible
    from tools.faults.runner import FaultRun
    from tools.faults.workload import FaultWorkload

    seed = random.randrange(MAX_SEED) if options.seed is None else options.seed
    nodes = options.nodes or max(MIN_NODES, options.pods // PODS_PER_NODE)
    return interruptible(FaultRun(options.seconds, FaultWorkload(options.pods, nodes, seed), sys.stdout).play())
