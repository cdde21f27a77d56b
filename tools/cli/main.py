"""The flotilla command. Each command imports what it needs when it runs, so that help and usage errors are instant."""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from shared.config.sources import BAD_USAGE, Parser
from shared.errors import FlotillaError, UserError
from tools.cli.version import Version

PROGRAM = "flotilla"
EXAMPLES = """\
first steps:
  flotilla demo                             schedule 10,000 pods on a simulated cluster and check the result
  flotilla up --nodes 20                    run all services with a made-up cluster for kubectl
  flotilla up --kubeconfig ~/.kube/config   run all services on this machine for a real cluster
  flotilla run worker --nats nats://host    run one service, as in a container
  flotilla config validate scheduler.yaml   check a scheduler configuration file
  flotilla config settings                  show all settings and where they come from
  flotilla credentials kubernetes           create users, passwords and certificates for NATS and Valkey

inspect a running Flotilla:
  flotilla doctor                           check API server, rights, NATS, Redis and processes
  flotilla status                           list all processes, and what is missing or not ready
  flotilla queue                            list pending pods, why they are pending and what would help
  flotilla explain POD                      say why a pod is there or not there, and what would help
  flotilla evictions --since 10m            list who was evicted for whom
  flotilla gang                             list pod groups, and what each waits for
  flotilla console                          serve a page that shows all of this
  flotilla whatif -f web.yaml               say where pods would go if they were created
  flotilla capacity -f pod.yaml             say how many more of a pod fit
  flotilla defrag --dry-run                 list moves of pods that would free whole nodes
  flotilla permit list                      list pods that wait for a permit before they are bound
  flotilla dump --output folder             write the whole state, and compare it with the cluster
  flotilla record --output FILE             record what is decided, for flotilla replay
  flotilla health --port 8080               check whether a service is ready, for container health checks

Run flotilla COMMAND --help for more about a command.
"""


class Command(NamedTuple):
    """A module with `add_arguments` and `run`, which may have a DESCRIPTION and EXAMPLES for the help."""

    module: str
    help: str


COMMANDS = {
    "demo": Command("tools.demo", "schedule pods on a simulated cluster and check the result"),
    "up": Command("tools.cli.up", "run all services on this machine"),
    "run": Command("tools.cli.run", "run services in one process, as in a container"),
    "health": Command("tools.cli.health", "check whether a service is ready"),
    "status": Command("tools.cli.status", "list all processes, and what is missing or not ready"),
    "doctor": Command("tools.cli.doctor", "check what Flotilla needs here, and say what to mend"),
    "queue": Command("tools.cli.queue", "list pending pods and why they are pending"),
    "explain": Command("tools.cli.explain", "say why a pod is where it is, or why it is pending and what would help"),
    "evictions": Command("tools.cli.evictions", "list who was evicted for whom"),
    "gang": Command("tools.cli.gang", "list pod groups, and what each waits for"),
    "console": Command("tools.cli.console", "serve a page that shows what a pipeline does"),
    "whatif": Command("tools.cli.whatif", "say where pods would go, and which nodes would help"),
    "capacity": Command("tools.cli.capacity", "say how many more of a pod fit"),
    "defrag": Command("tools.cli.defrag", "list moves of pods that would free whole nodes or racks"),
    "permit": Command("tools.cli.permit", "list, allow or reject pods that wait for a permit"),
    "dump": Command("tools.cli.dump", "write the whole state, and compare it with the cluster"),
    "record": Command("tools.cli.record", "record what is decided, for a replay"),
    "replay": Command("tools.cli.replay", "decide a recording again and compare"),
    "config": Command("tools.cli.config", "check, show or convert a scheduler configuration file; show settings"),
    "cel": Command("tools.cli.cel", "evaluate a CEL expression that selects devices"),
    "credentials": Command("tools.cli.credentials", "create users, passwords and certificates for NATS and Valkey"),
    "simulate": Command("testing.simulator.__main__", "run a simulated API server"),
    "faults": Command("tools.faults", "inject faults into every part of a pipeline under load, and check the result"),
    "simulation": Command("tools.cli.simulation", "run all services on virtual time under simulated faults"),
    "conformance": Command("tools.conformance", "replay recorded decisions of kube-scheduler v1.36 and compare"),
    "bench": Command("tools.bench.rounds", "measure the CPU cost of a decision"),
    "bench-compare": Command("tools.bench.compare", "compare the CPU cost of a decision with an earlier commit"),
    "bench-pipeline": Command("tools.bench.pipeline", "measure the whole pipeline in real processes"),
    "bench-quality": Command("tools.bench.quality", "measure the placement quality of larger rounds"),
    "bench-start": Command("tools.bench.start", "measure start-up time and memory in a large cluster"),
    "completion": Command("tools.cli.completion", "print a shell completion script"),
    "version": Command("tools.cli.version", "print the version, and the kube-scheduler version it matches"),
}
"""In the order of the help."""

CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
"""Errors of a full disk or a file size limit: reported in one line, without a traceback."""


def parser(only: str | None = None, program: str = PROGRAM) -> argparse.ArgumentParser:
    """The parser of all commands, or of one only, which is faster to import. `program`: as what it was called."""
    top = Parser(prog=program, description="A Kubernetes scheduler that scales out.", epilog=EXAMPLES)
    top.add_argument("--version", action=Version, help="print the version and exit")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS if only is None else (only,):
        module = importlib.import_module(COMMANDS[name].module)
        command = commands.add_parser(name, help=COMMANDS[name].help)
        command.description, command.epilog = getattr(module, "DESCRIPTION", None), getattr(module, "EXAMPLES", None)
        command.set_defaults(run=module.run)
        module.add_arguments(command)
    return top


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    if "_ARGCOMPLETE" in os.environ:
        from tools.cli.completion import complete

        _, *typed = os.environ.get("COMP_LINE", "").split(" ")
        complete(parser(typed[0] if len(typed) > 1 and typed[0] in COMMANDS else None))
    words = sys.argv[1:] if arguments is None else arguments
    command = words[0] if words and words[0] in COMMANDS else None
    options = parser(command, program).parse_args(words)
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
