"""flotilla faults: every part of a pipeline is struck while pods come and go, and a judgement of the result."""

import argparse
import random
import sys

from tools.cli.numbers import at_least

PODS_A_NODE = 25
LEAST_NODES = 20
MOST_SEED = 1_000_000
EXAMPLES = """\
examples:
  flotilla faults                              a minute of faults, 5,000 pods on 200 nodes; tells its seed first
  flotilla faults --seed 17                    the same faults, at the same times, and the same pods as that seed's
  flotilla faults --seconds 10 --pods 500      a short one

Exit code 0: everything held; 1: something did not, or it did not come to its end; 130: Ctrl-C.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "faults",
        help="strike every part of a pipeline while pods come and go, and check the result",
        description="Starts NATS, Redis, a simulated API server and all services on this machine; has servers fail,\n"
        "hang, lose what they knew and be cut off, and kills and stops services at random, while pods are created and\n"
        "deleted; and checks that nothing was lost and nothing was done twice. It says what it does.",
        epilog=EXAMPLES,
    )
    for flag, default, least, text in (
        ("--seconds", 60, 1, "how long faults strike (default 60)"),
        ("--pods", 5_000, 100, "pods that come, of which about a third goes again (default 5000)"),
        ("--nodes", None, LEAST_NODES, f"default one for {PODS_A_NODE} pods, at least {LEAST_NODES}"),
        ("--seed", None, 0, "of the faults, and of the pods; default: drawn"),
    ):
        command.add_argument(flag, type=at_least(least), default=default, metavar="N", help=text)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tools.cli.faults.load import Load
    from tools.cli.faults.play import Faults
    from tools.cli.interruptible import interruptible

    seed = random.randrange(MOST_SEED) if options.seed is None else options.seed
    nodes = options.nodes or nodes_for(options.pods)
    return interruptible(Faults(options.seconds, Load(options.pods, nodes, seed), sys.stdout).play())


def nodes_for(pods: int) -> int:
    """So many that there is room for all."""
    return max(LEAST_NODES, pods // PODS_A_NODE)
