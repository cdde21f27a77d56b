"""kubectl flotilla: the commands that look into a running pipeline, as a plugin of kubectl.

kubectl runs `kubectl-flotilla` with the words that follow `kubectl flotilla`, and `kubectl_complete-flotilla` to
complete them. With a NATS URL the command runs here; without one, kubectl runs it in the cluster, in the Deployment of
k8s/cli, which has credentials to read.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence

from shared.config.sources import BAD_USAGE, Parser
from tools.cli.main import COMMANDS, main

PROGRAM = "kubectl flotilla"
OFFERED = ("queue", "explain", "whatif", "capacity", "defrag", "evictions", "gang", "status")
NATS = ("FLOTILLA_NATS_URL", "FLOTILLA_NATS_URL_FILE")
NATS_FLAG = "--nats"
DEPLOYMENT = "deployment/flotilla-cli"
DEFAULT_NAMESPACE = "flotilla-system"
STDIN = "-"
NO_FILES = ":4"
"""To kubectl: these are all completions, and files are none."""

DESCRIPTION = "Looks into a running Flotilla."
EXAMPLES = f"""\
examples:
  kubectl flotilla queue --group-by reason
  kubectl flotilla explain shop/web-1
  kubectl flotilla --context prod status
  kubectl flotilla whatif -f - < web.yaml
  kubectl flotilla COMMAND --help

If {NATS[0]} or {NATS_FLAG} names NATS, the command runs here. Otherwise kubectl runs it in {DEPLOYMENT} of the cluster
(kubectl apply -k k8s/cli); there it reads no files of this machine: give them by -f - and standard input.
"""


def plugin() -> int:
    options = parser().parse_args()
    words = [options.command, *options.arguments]
    if runs_here(words, os.environ):
        return main(words, PROGRAM)
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        print(f"flotilla: there is no kubectl, and {NATS[0]} is not set", file=sys.stderr)
        return BAD_USAGE
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return os.execv(kubectl, [kubectl, *in_cluster(options, on_terminal=on_terminal)])


def parser() -> argparse.ArgumentParser:
    made = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES)
    made.add_argument(
        "--context", metavar="NAME", help="the kubeconfig's context, for a command that runs in the cluster"
    )
    made.add_argument(
        "--system-namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAMESPACE",
        help=f"where Flotilla runs (default {DEFAULT_NAMESPACE})",
    )
    listed = "; ".join(f"{name}: {COMMANDS[name].help}" for name in OFFERED)
    made.add_argument("command", choices=OFFERED, metavar="COMMAND", help=listed)
    made.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="see COMMAND --help")
    return made


def runs_here(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether NATS is known, or only the help is wanted."""
    given = any(word == NATS_FLAG or word.startswith(f"{NATS_FLAG}=") for word in words)
    return given or any(environment.get(name) for name in NATS) or not {"-h", "--help"}.isdisjoint(words)


def in_cluster(options: argparse.Namespace, *, on_terminal: bool) -> list[str]:
    """kubectl's arguments that run the command in the cluster."""
    context = [] if options.context is None else ["--context", options.context]
    attached = ["--stdin", "--tty"] if on_terminal else ["--stdin"] if STDIN in options.arguments else []
    where = ["exec", "--namespace", options.system_namespace, *attached, DEPLOYMENT]
    return [*context, *where, "--", "flotilla", options.command, *options.arguments]


def complete() -> int:
    """Prints what may stand at the end of the given words, in the form that kubectl asks for."""
    for candidate in completions(sys.argv[1:]):
        print(candidate)
    print(NO_FILES)
    return 0


def completions(words: Sequence[str]) -> Iterator[str]:
    """The last word is the one to complete; it may be empty."""
    *before, last = words or [""]
    command = next((word for word in before if word in OFFERED), None)
    found = _commands() if command is None else _arguments(command, before[-1])
    yield from (f"{name}\t{text}" if text else name for name, text in found.items() if name.startswith(last))


def _commands() -> dict[str, str]:
    return {name: COMMANDS[name].help for name in OFFERED}


def _arguments(command: str, previous: str) -> dict[str, str]:
    """The values of the flag that stands before, or the flags."""
    from tools.cli.main import parser as parser_of

    top = parser_of(command, PROGRAM)
    (commands,) = (each for each in top._actions if isinstance(each, argparse._SubParsersAction))
    actions = [each for each in commands.choices[command]._actions if each.help is not argparse.SUPPRESS]
    for action in actions:
        if previous in action.option_strings and action.nargs != 0:
            return dict.fromkeys(map(str, action.choices or ()), "")
    return {action.option_strings[-1]: action.help or "" for action in actions if action.option_strings}


if __name__ == "__main__":
    sys.exit(plugin())
