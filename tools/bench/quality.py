"""flotilla bench-quality: what larger rounds cost in placement quality."""

import argparse
import sys

from tools.cli.arguments import add_numbers, numbers

DESCRIPTION = """\
Schedules the same pods one by one and in larger rounds on a dozen synthetic clusters, and compares the placements.

regret     points by which the best node's total score exceeded that of the chosen node, as kube-scheduler would
           score them at that moment: mean and worst
zones      difference between the most and the fewest pods of an app per zone, mean over apps; nodes: per node
spread     standard deviation of the nodes' used cpu, in percent of their allocatable
preferred  share of preferred node affinity that was satisfied
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_numbers(command, ("--nodes", 300, 1, "nodes per cluster"), ("--pods", 2_000, 1, "pods per case"))
    command.add_argument(
        "--rounds", type=numbers(1), default=[1, 16, 256], metavar="N,...", help="round sizes (default 1,16,256)"
    )
    command.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains TEXT")


def run(options: argparse.Namespace) -> int:
    from shared.errors import UserError
    from testing.inprocess.quality import measure, scenes

    chosen = [scene for scene in scenes(options.nodes, options.pods) if options.only in scene.name]
    if not chosen:
        raise UserError(f"--only: no case contains {options.only!r} in its name")
    head = f"{'':<40}{'round':>7}{'placed':>8}{'rounds':>8}{'regret':>8}{'worst':>7}"
    print(f"{head}{'zones':>7}{'nodes':>7}{'spread':>8}{'preferred':>11}")
    for scene in chosen:
        for size in options.rounds:
            found = measure(scene, size)
            mode = "strict" if size == 1 else str(size)
            preferred = "" if found.preferred is None else f"{found.preferred:.0%}"
            print(
                f"{scene.name:<40}{mode:>7}{found.placed:>8}{found.rounds:>8}{found.regret:>8.2f}{found.worst:>7}"
                f"{found.zone_skew:>7.1f}{found.node_skew:>7.1f}{found.spread:>8.1f}{preferred:>11}"
            )
            sys.stdout.flush()
    return 0
