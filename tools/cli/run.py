"""flotilla run: run one service, or several in one process, as in a container."""

import argparse
import importlib
import os
from typing import TYPE_CHECKING

from shared.config.setting_sources import SOURCES
from shared.config.sources import add_flags, settings_from

if TYPE_CHECKING:
    from shared.config.settings import Settings

SERVICES = ("watcher", "queue", "snapshot", "cycle", "worker", "binder")

DESCRIPTION = "Runs services until SIGTERM or Ctrl-C, all in one process. Exit code 2: bad configuration."
EXAMPLES = f"""\
services:
  watcher    lists and watches the API server, and publishes every change
  queue      holds pending pods and hands them out in order
  snapshot   holds the cluster's state and the ledger of assumed pods
  cycle      decides pods in rounds
  worker     filters and scores the nodes of its shards; run any number
  binder     binds decided pods and writes Events; run any number

examples:
  flotilla run watcher --kubeconfig ~/.kube/config
  flotilla run worker --name worker-7 --nats nats://nats:4222 --redis redis://redis:6379/0
  FLOTILLA_NATS_URL=nats://user:password@nats:4222 flotilla run cycle --config scheduler.yaml
  flotilla run watcher queue snapshot cycle --name core    messages between these need no socket

Each setting can be a flag, an environment variable or a line in a file (--settings FILE or FLOTILLA_SETTINGS), in
this order of precedence; flotilla config settings shows what is in force. Variables:
  {f"{chr(10)}  ".join(source.variable for source in SOURCES)}
Secrets (FLOTILLA_NATS_URL, FLOTILLA_REDIS_URL, FLOTILLA_TOKEN) can also be read from a file: set the variable of the
same name with _FILE appended, such as FLOTILLA_TOKEN_FILE.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("services", nargs="+", choices=SERVICES, metavar="SERVICE", help=", ".join(SERVICES))
    add_flags(command)


def run(options: argparse.Namespace) -> int:
    settings = settings_from(os.environ, vars(options))
    from shared.runtime import host, host_together

    check_config(settings)
    mains = {name: importlib.import_module(f"services.{name}.service").main for name in options.services}
    if len(mains) > 1:
        return host_together(mains, settings)
    ((service, main),) = mains.items()
    return host(service, settings, main)


def check_config(settings: "Settings") -> None:
    """UserError, with everything that is wrong, if the scheduler's configuration file or a plugin's part is invalid."""
    from shared.config.document import read_config
    from shared.config.problems import InvalidConfigFile
    from shared.config.reading import all_problems
    from shared.framework.loading import Registry, load_frameworks

    source = read_config(settings.config)
    try:
        load_frameworks(source, settings.feature_gates)
    except InvalidConfigFile as first:
        if source is None:
            raise
        problems, _ = all_problems(source.text, Registry({}).known_plugins(), settings.feature_gates)
        raise InvalidConfigFile(first.stage, problems or first.problems, source.name) from None
