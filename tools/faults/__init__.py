"""flotilla faults: inject faults into every part of a pipeline under load, and check the result."""

import argparse
import random
import sys

from tools.cli.arguments import add_numbers

PODS_PER_NODE = 25
MIN_NODES = 20
MAX_SEED = 1_000_000
DESCRIPTION = """\
Starts NATS, Redis, a simulated API server and all services on this machine. While pods are
created and deleted, servers fail, hang, lose data and are cut off, and services are killed and paused at
random. Then checks that no pod was lost, bound twice or bound where it may not be. Prints each fault.
"""
EXAMPLES = """\
examples:
  flotilla faults                              a minute of faults, 5,000 pods on 200 nodes; prints its seed first
  flotilla faults --seed 17                    the faults and pods of this seed, at the same times
  flotilla faults --seconds 10 --pods 500      a short run

Exit code 0: all checks passed; 1: one failed, or the run did not finish; 130: Ctrl-C.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_numbers(
        command,
        ("--seconds", 60, 1, "duration of the faults"),
        ("--pods", 5_000, 100, "pods to create, about a third of which are deleted"),
        ("--nodes", None, MIN_NODES, f"nodes (default one per {PODS_PER_NODE} pods, at least {MIN_NODES})"),
        ("--seed", None, 0, "seed of the faults and of the pods (default random)"),
    )


def run(options: argparse.Namespace) -> int:
    from tools.cli.processes import interruptible
    from tools.faults.runner import FaultRun
    from tools.faults.workload import FaultWorkload

    seed = random.randrange(MAX_SEED) if options.seed is None else options.seed
    nodes = options.nodes or max(MIN_NODES, options.pods // PODS_PER_NODE)
    return interruptible(FaultRun(options.seconds, FaultWorkload(options.pods, nodes, seed), sys.stdout).play())
