"""flotilla bench-start: how long a pipeline takes to know a cluster, and what its processes then hold."""

import argparse
import os

from shared.config.settings import ApiSettings
from shared.config.sources import settings_from
from shared.errors import UserError
from tools.cli.arguments import at_least

DESCRIPTION = """\
Fills a made-up API server with a cluster, starts a pipeline for it, and says how long it takes until all of it is
ready, and what each process has used by then: CPU time, memory at most, and memory in the end.

With --restart: starts flotilla up and stops it, in several ways, and says how many seconds each start takes from the
command to the first pod bound. --server or --kubeconfig name a cluster that is there already: its nodes and pods are
left alone, and a small pod in namespace default is created and deleted for each start. No other Flotilla may run there.
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
    command.add_argument("--restart", action="store_true", help="time the first pod after each kind of stop")
    command.add_argument("--server", metavar="URL", help="with --restart: this API server; its token by FLOTILLA_TOKEN")
    command.add_argument("--kubeconfig", metavar="FILE", help="with --restart: the cluster of this file")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tools.bench.start.cluster import Cluster
    from tools.cli.processes import interruptible

    cluster = Cluster(options.nodes, options.pods, options.pending)
    if options.restart:
        from tools.bench.start.restarting import measure_restarts

        return interruptible(measure_restarts(cluster, options.workers, _api(options)))
    if options.server or options.kubeconfig:
        raise UserError("--server and --kubeconfig: take --restart as well")
    from tools.bench.start.measuring import measure

    return interruptible(measure(cluster, options.workers))


def _api(options: argparse.Namespace) -> ApiSettings | None:
    if not (options.server or options.kubeconfig):
        return None
    token = {name: os.environ[name] for name in ("FLOTILLA_TOKEN", "FLOTILLA_TOKEN_FILE") if name in os.environ}
    return settings_from(token, {"server": options.server, "kubeconfig": options.kubeconfig}).api
