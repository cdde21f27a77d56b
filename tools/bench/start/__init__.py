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
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    numbers = (("--nodes", 5_000, 1, "nodes"), ("--pods", 50_000, 0, "pods"), ("--workers", 2, 1, "workers"))
    add_numbers(command, *numbers)
    command.add_argument("--pending", action="store_true", help="create pods that fit nowhere instead of bound ones")
    command.add_argument(
        "--restart", action="store_true", help="measure the time to the first pod after each way of stopping"
    )
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
    from tools.bench.start.measurement import measure

    return interruptible(measure(cluster, options.workers))


def _api(options: argparse.Namespace) -> ApiSettings | None:
    if not (options.server or options.kubeconfig):
        return None
    token = {name: os.environ[name] for name in ("FLOTILLA_TOKEN", "FLOTILLA_TOKEN_FILE") if name in os.environ}
    return settings_from(token, {"server": options.server, "kubeconfig": options.kubeconfig}).api
