"""flotilla config: look at a KubeSchedulerConfiguration, make one of an old Policy, and look at settings."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.config.commandline import BAD_USAGE
from shared.errors import UserError
from tools.cli import settings

if TYPE_CHECKING:
    from shared.config.reading import ConfigFile

Action = Callable[[argparse.Namespace], int]

STDIN = "-"

EXAMPLES = """\
examples:
  flotilla config validate scheduler.yaml          ok, or everything that is wrong; exit code 2
  flotilla config show                             the defaults, as a file to start from
  flotilla config show scheduler.yaml -o json      what is in force once defaults are filled in
  flotilla config convert policy.json > new.yaml   a Policy (kube-scheduler before v1.23) as a profile
  flotilla config settings                         what is set by flags, variables and a file
  kubectl get configmap scheduler -o jsonpath='{.data.config}' | flotilla config validate -

A file with one profile that moves a weight and leaves everything else alone:

  apiVersion: kubescheduler.config.k8s.io/v1
  kind: KubeSchedulerConfiguration
  profiles:
  - plugins:
      score:
        enabled:
        - name: ImageLocality
          weight: 5
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "config",
        help="check, show or convert a scheduler configuration file; show settings",
        description="Works on the file that --config takes: a KubeSchedulerConfiguration, in YAML or JSON. And shows\n"
        "the settings, which say where services run and what they talk to.",
        epilog=EXAMPLES,
    )
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_validate(actions)
    _add_show(actions)
    _add_convert(actions)
    settings.add_to(actions)


def _add_validate(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    action = actions.add_parser(
        "validate",
        help="say whether a file can be used",
        description="Prints FILE: ok, or every error in a line with the path of the field, its value and what is "
        "allowed. What has no meaning in Flotilla is noted. Exit code 2 on errors.",
    )
    action.add_argument("file", metavar="FILE", help="the file, - for standard input")
    action.set_defaults(run=_with_errors_in_lines(validate))


def _add_show(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    action = actions.add_parser(
        "show",
        help="print what is in force, defaults filled in",
        description="Prints the configuration with all defaults; without a file, the defaults themselves. "
        "Keys of extenders that stand in the file are printed, too.",
    )
    action.add_argument("file", metavar="FILE", nargs="?", help="the file, - for standard input")
    action.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default yaml")
    action.set_defaults(run=_with_errors_in_lines(show))


def _add_convert(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    action = actions.add_parser(
        "convert",
        help="print a Policy file as a KubeSchedulerConfiguration",
        description="Reads a Policy (kind: Policy, apiVersion: v1) and prints a profile that does the same. What is "
        "not carried over, or not as it was, is said on standard error, a line each.",
    )
    action.add_argument("file", metavar="FILE", help="the Policy, - for standard input")
    action.set_defaults(run=_with_errors_in_lines(convert))


def validate(options: argparse.Namespace) -> int:
    from shared.config.document import parse_document
    from shared.config.structs import idle_notes
    from shared.plugins.frameworks import load_frameworks

    name, text = _shown_name(options.file), _text(options.file)
    load_frameworks(_read(text).config)
    given = parse_document(text).value
    for note in idle_notes(given if isinstance(given, dict) else {}):
        print(f"{name}: note: {note}", file=sys.stderr)
    print(f"{name}: ok")
    return 0


def show(options: argparse.Namespace) -> int:
    import msgspec

    from shared.config.kubernetes_yaml import write_yaml
    from shared.config.reading import read_config_values

    written = (read_config_values(None) if options.file is None else _read(_text(options.file))).written
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode(written), indent=2).decode())
    else:
        print(write_yaml(written), end="")
    return 0


def convert(options: argparse.Namespace) -> int:
    from shared.config.kubernetes_yaml import write_yaml
    from shared.config.policy import convert_policy

    converted = convert_policy(_text(options.file))
    text = write_yaml(converted.config)
    _read(text.encode())
    for note in converted.notes:
        print(f"{_shown_name(options.file)}: {note}", file=sys.stderr)
    print(text, end="")
    return 0


def _with_errors_in_lines(action: Action) -> Action:
    def run(options: argparse.Namespace) -> int:
        from shared.config.problems import InvalidConfigFile

        try:
            return action(options)
        except InvalidConfigFile as wrong:
            for line in wrong.within(_shown_name(options.file)).lines():
                print(line, file=sys.stderr)
            return BAD_USAGE

    return run


def _read(text: bytes) -> "ConfigFile":
    """With the plugins of installed packages."""
    from shared.config.building import flotilla_plugins
    from shared.config.reading import read_config_text
    from shared.plugins.entrypoints import Registry

    in_tree: dict[str, Any] = {}
    return read_config_text(text, flotilla_plugins(Registry(in_tree).points_of))


def _text(file: str) -> bytes:
    if file == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error


def _shown_name(file: str) -> str:
    return "standard input" if file == STDIN else file
