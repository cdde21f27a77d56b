"""The flotilla command. Each command imports what it needs when it runs, so that help and usage errors are instant."""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from shared.config.sources import BAD_USAGE, Parser
from shared.errors import FlotillaError, UserError
from tools.cli.version import Version

EXAMPLES = """\
first steps:
  flotilla demo                             schedule 10,000 pods on a simulated cluster and check the result
  flotilla up                               run all services with an empty simulated cluster for kubectl
  flotilla up --kubeconfig ~/.kube/config   run all services on this machine for a real cluster
  flotilla run worker --nats nats://host    run one service, as in a container
  flotilla config validate scheduler.yaml   check a scheduler configuration file
  flotilla config settings                  show all settings and where they come from
  flotilla credentials kubernetes           create users, passwords and certificates for NATS and Valkey

inspect a running Flotilla:
  flotilla queue                            list pending pods, why they are pending and what would help
  flotilla permit list                      list pods that wait for a permit before they are bound
  flotilla dump --output folder             write the whole state, and compare it with the cluster
  flotilla health --port 8080               check whether a service is ready, for container health checks

Run flotilla COMMAND --help for more about a command.
"""

COMMANDS = {
    "demo": "tools.demo",
    "up": "tools.cli.up",
    "run": "tools.cli.run",
    "health": "tools.cli.health",
    "queue": "tools.cli.queue",
    "permit": "tools.cli.permit",
    "dump": "tools.cli.dump",
    "config": "tools.cli.config",
    "cel": "tools.cli.cel",
    "credentials": "tools.cli.credentials",
    "simulate": "testing.simulator.__main__",
    "faults": "tools.faults",
    "simulation": "tools.cli.simulation",
    "conformance": "tools.conformance",
    "bench": "tools.bench.rounds",
    "bench-pipeline": "tools.bench.pipeline",
    "bench-quality": "tools.bench.quality",
    "bench-start": "tools.bench.start",
    "completion": "tools.cli.completion",
    "version": "tools.cli.version",
}
"""Modules by command, in the order of the help."""

CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
"""Errors of a full disk or a file size limit: reported in one line, without a traceback."""


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, or of one only, which is faster to import."""
    top = Parser(prog="flotilla", description="A Kubernetes scheduler that scales out.", epilog=EXAMPLES)
    top.add_argument("--version", action=Version, help="print the version and exit")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS if only is None else (only,):
        importlib.import_module(COMMANDS[command]).add_to(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    if "_ARGCOMPLETE" in os.environ:
        from tools.cli.completion import complete

        _, *typed = os.environ.get("COMP_LINE", "").split(" ")
        complete(parser(typed[0] if len(typed) > 1 and typed[0] in COMMANDS else None))
    words = sys.argv[1:] if arguments is None else arguments
    command = words[0] if words and words[0] in COMMANDS else None
    options = parser(command).parse_args(words)
    try:
        code: int = options.run(options)
        print(end="", flush=True)
    except UserError as error:
        for line in error.lines():
            print(f"flotilla: {line}", file=sys.stderr)
        return BAD_USAGE
    except FlotillaError as error:
        print(f"flotilla: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            raise
        _discard_output()
        print(f"flotilla: cannot write the output: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _discard_output() -> None:
    """Drop buffered output, so that the interpreter does not fail on it again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
