"""flotilla bench-start: how long a pipeline takes to start in a large cluster, and its memory."""

import argparse
import os

from shared.config.settings import ApiSettings
from shared.config.sources import settings_from
from shared.errors import UserError
from tools.cli.arguments import add_numbers

DESCRIPTION = """\
Fills a simulated API server with a cluster, starts a pipeline for it, and measures the time until everything is ready,
and the CPU time, peak memory and final memory of each process.

With --restart: starts and stops flotilla up in several ways, and measures the seconds from each start to the first pod
bound. With --server or --kubeconfig it uses an existing cluster: its nodes and pods are not changed, and a small pod in
namespace default is created and deleted for each start. No other Flotilla may run there.

With --roll: while pods come in at --rate, ends the leaders of watcher, queue, snapshot and cycle in turn by SIGTERM,
each beside a ready standby, as a rolling upgrade does. Prints the longest time without a bound pod before and after;
the seconds until the standby had the Lease, and from then until a pod created since was bound; the time from created
to bound that 99 % of the pods did not exceed; and when the ended process stood by.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    numbers = (("--nodes", 5_000, 1, "nodes"), ("--pods", 50_000, 0, "pods"), ("--workers", 2, 1, "workers"))
    add_numbers(command, *numbers)
    command.add_argument("--pending", action="store_true", help="create pods that fit nowhere instead of bound ones")
    command.add_argument(
        "--restart", action="store_true", help="measure the time to the first pod after each way of stopping"
    )
    command.add_argument("--roll", action="store_true", help="end each leader in turn while pods come in")
    add_numbers(command, ("--rate", 300, 1, "with --roll: pods a second"))
    command.add_argument("--server", metavar="URL", help="with --restart: use this API server; token in FLOTILLA_TOKEN")
    command.add_argument("--kubeconfig", metavar="FILE", help="with --restart: use the cluster of this kubeconfig")


def run(options: argparse.Namespace) -> int:
    from tools.bench.start.measurement import BenchCluster
    from tools.cli.processes import interruptible

    cluster = BenchCluster(options.nodes, options.pods, options.pending)
    if options.restart:
        from tools.bench.start.measurement import measure_restarts

        return interruptible(measure_restarts(cluster, options.workers, _api(options)))
    if options.server or options.kubeconfig:
        raise UserError("--server and --kubeconfig: require --restart")
    if options.roll:
        from tools.bench.start.roll import measure_roll

        return interruptible(measure_roll(cluster, options.workers, options.rate))
    from tools.bench.start.measurement import measure

    return interruptible(measure(cluster, options.workers))


def _api(options: argparse.Namespace) -> ApiSettings | None:
    if not (options.server or options.kubeconfig):
        return None
    token = {name: os.environ[name] for name in ("FLOTILLA_TOKEN", "FLOTILLA_TOKEN_FILE") if name in os.environ}
    return settings_from(token, {"server": options.server, "kubeconfig": options.kubeconfig}).api
