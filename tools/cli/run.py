"""flotilla run: one service, as a container runs it."""

import argparse
import importlib
import os

from shared.config.sources import SOURCES, add_flags, settings_from

SERVICES = ("watcher", "queue", "snapshot", "cycle", "worker", "binder")

EXAMPLES = f"""\
services:
  watcher    lists and watches the API server, tells the others
  queue      holds the pods that wait, hands them out in order
  snapshot   the state of the cluster and the ledger of assumed pods
  cycle      decides, in rounds
  worker     filters and scores the nodes of its shards; as many as you like
  binder     binds decided pods, writes events; as many as you like

examples:
  flotilla run watcher --kubeconfig ~/.kube/config
  flotilla run worker --name worker-7 --nats nats://nats:4222 --redis redis://redis:6379/0
  FLOTILLA_NATS_URL=nats://user:password@nats:4222 flotilla run cycle --config scheduler.yaml

Every setting can come from the environment as well, or from a file (--settings FILE or FLOTILLA_SETTINGS).
A flag wins over its variable, and that over the file; flotilla config settings shows what is in force. Variables:
  {f"{chr(10)}  ".join(source.variable for source in SOURCES)}
What is secret (FLOTILLA_NATS_URL, FLOTILLA_REDIS_URL, FLOTILLA_TOKEN) can also stand in a file that
FLOTILLA_NATS_URL_FILE, FLOTILLA_REDIS_URL_FILE or FLOTILLA_TOKEN_FILE names.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "run",
        help="run one service, as in a container",
        description="Runs one service until it is told to end (SIGTERM, Ctrl-C). Exit code 2: bad configuration.",
        epilog=EXAMPLES,
    )
    command.add_argument("service", choices=SERVICES, metavar="SERVICE", help=", ".join(SERVICES))
    add_flags(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    settings = settings_from(os.environ, vars(options))
    from shared.runtime import host
    from tools.cli.checking import check_config

    check_config(settings)
    code: int = host(options.service, settings, importlib.import_module(f"services.{options.service}.service").main)
    return code
