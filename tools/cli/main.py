"""The flotilla command. What a command needs is imported when it runs, so that help and mistakes are instant."""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from shared.config.commandline import BAD_USAGE, Parser
from shared.errors import FlotillaError, UserError
from tools.cli.version import Version

EXAMPLES = """\
first steps:
  flotilla demo                             a made-up cluster, 10,000 pods, all services; checks what came out
  flotilla up                               the same, empty and yours: prints how kubectl reaches it
  flotilla up --kubeconfig ~/.kube/config   all services here, for a real cluster
  flotilla run worker --nats nats://host    one service, as in a container
  flotilla config validate scheduler.yaml   is the scheduler's configuration file right?
  flotilla config settings                  what is set, and where it comes from
  flotilla credentials kubernetes           users, passwords and certificates for NATS and Valkey

into one that runs:
  flotilla queue                            what waits to be scheduled, why, and for what
  flotilla permit list                      which pods wait to be allowed to be bound
  flotilla dump --output folder             all that it holds, and whether the cluster is so
  flotilla health --port 8080               whether a service is ready, for health checks of containers

flotilla COMMAND --help tells more about a command.
"""

COMMANDS = {
    "demo": "tools.cli.demo",
    "up": "tools.cli.up",
    "run": "tools.cli.run",
    "health": "tools.cli.health",
    "queue": "tools.cli.queue",
    "permit": "tools.cli.permit",
    "dump": "tools.cli.dump",
    "config": "tools.cli.config",
    "credentials": "tools.cli.credentials",
    "simulate": "testing.simulator.__main__",
    "faults": "tools.cli.faults",
    "simulation": "tools.cli.simulation",
    "conformance": "tools.conformance",
    "bench": "tools.bench.rounds",
    "bench-pipeline": "tools.bench.pipeline",
    "bench-quality": "tools.bench.quality",
    "bench-start": "tools.bench.start",
    "completion": "tools.cli.completion",
    "version": "tools.cli.version",
}
"""The module of each command, in the order of the help."""

CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
"""Errors of a disk that is full, or of a limit: mistakes of nobody's code."""


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Of all commands, or of one, which is known sooner."""
    top = Parser(prog="flotilla", description="A Kubernetes scheduler that scales out.", epilog=EXAMPLES)
    top.add_argument("--version", action=Version, help="print the version and exit")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS if only is None else (only,):
        importlib.import_module(COMMANDS[command]).add_to(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    command = words[0] if words and words[0] in COMMANDS else None
    options = parser(command).parse_args(words)
    try:
        code: int = options.run(options)
        print(end="", flush=True)
    except UserError as mistake:
        for line in mistake.lines():
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
        print(f"flotilla: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _discard_output() -> None:
    """Drop what is still buffered, so that the interpreter does not fail on it again when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
