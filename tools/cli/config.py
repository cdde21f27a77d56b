"""flotilla config: look at a KubeSchedulerConfiguration, make one of an old Policy, and look at settings."""

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from shared.config.feature_gates import DEFAULT_GATES, FeatureGates, InvalidFeatureGates
from shared.config.setting_sources import SOURCES, Given, SourceKind
from shared.config.sources import BAD_USAGE, InvalidSettings, add_flags, all_given, settings_of, unknown_variables
from tools.cli.arguments import STDIN, add_output, read_input
from tools.cli.output import table

if TYPE_CHECKING:
    from shared.config.reading import ConfigFile

GATES = next(source for source in SOURCES if source.field == "feature_gates")
DROPPED = 1
"""The exit code of a conversion that loses something."""
SETTINGS_EXAMPLES = """\
examples:
  flotilla config settings                             settings of services started from here
  flotilla config settings --settings flotilla.yaml    the same with this settings file
  flotilla config settings -o markdown                 a table of all settings
"""
DESCRIPTION = """\
Works with the file for --config, a KubeSchedulerConfiguration in YAML or JSON, and with the
settings, which say where services run and what they connect to.
"""
EXAMPLES = """\
examples:
  flotilla config validate scheduler.yaml          report every error, or ok
  flotilla config show                             print the defaults, as a file to start from
  flotilla config show scheduler.yaml -o json      print the file with all defaults
  flotilla config convert policy.json > new.yaml   convert a Policy (kube-scheduler before v1.23)
  flotilla config settings                         show settings from flags, variables and a file
  kubectl get configmap scheduler -o jsonpath='{.data.config}' | flotilla config validate -

A file that changes one weight:

  apiVersion: kubescheduler.config.k8s.io/v1
  kind: KubeSchedulerConfiguration
  profiles:
  - plugins:
      score:
        enabled:
        - name: ImageLocality
          weight: 5
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)
    checking = actions.add_parser(
        "validate",
        help="check a file",
        description="Prints `FILE: ok`, or every error with the path of the field, its value and what is allowed. "
        "Notes fields, plugins and feature gates that are named without effect. Exit code 2: errors.",
    )
    checking.add_argument("file", metavar="FILE", help="the file, - for standard input")
    _add_gates(checking)
    checking.set_defaults(act=validate)
    showing = actions.add_parser(
        "show",
        help="print a file with all defaults",
        description="Prints the configuration with all defaults; without a file, the defaults themselves. "
        "The output includes the keys of extenders, if the file contains any.",
    )
    showing.add_argument("file", metavar="FILE", nargs="?", help="the file, - for standard input")
    _add_gates(showing)
    add_output(showing, "yaml", "json")
    showing.set_defaults(act=show)
    converting = actions.add_parser(
        "convert",
        help="print a Policy file as a KubeSchedulerConfiguration",
        description="Reads a Policy (kind: Policy, apiVersion: v1) and prints an equivalent profile. Reports what is "
        "dropped or changed on standard error. Exit code 1: something that decided where pods go is dropped.",
    )
    converting.add_argument("file", metavar="FILE", help="the Policy, - for standard input")
    converting.set_defaults(act=convert)
    settings = actions.add_parser(
        "settings",
        help="show all settings and where they come from",
        description="Prints each setting with its value and its source: the default, a file, a variable or a flag.\n"
        "Passwords and tokens are masked.",
        epilog=SETTINGS_EXAMPLES,
    )
    add_output(settings, "text", "json", "yaml", "markdown")
    add_flags(settings)
    settings.set_defaults(act=show_settings)


def run(options: argparse.Namespace) -> int:
    from shared.config.problems import InvalidConfigFile

    try:
        code: int = options.act(options)
    except InvalidConfigFile as wrong:
        for line in wrong.within(_shown_name(options.file)).lines():
            print(line, file=sys.stderr)
        return BAD_USAGE
    return code


def validate(options: argparse.Namespace) -> int:
    from shared.framework.loading import examine

    name, text, gates = _shown_name(options.file), read_input(options.file), _gates(options)
    problems, notes = examine(text, gates)
    for problem in problems:
        print(f"{name}: {problem}", file=sys.stderr)
    for note in gates.notes():
        print(f"{GATES.flag}: note: {note}", file=sys.stderr)
    for note in notes:
        print(f"{name}: note: {note}", file=sys.stderr)
    if problems:
        return BAD_USAGE
    print(f"{name}: ok")
    return 0


def show(options: argparse.Namespace) -> int:
    import msgspec

    from shared.config.kubernetes_yaml import write_yaml
    from shared.config.reading import read_config_values

    gates = _gates(options)
    read = read_config_values(None, None, gates) if options.file is None else _read(read_input(options.file), gates)
    written = read.written
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode(written), indent=2).decode())
    else:
        print(write_yaml(written), end="")
    return 0


def convert(options: argparse.Namespace) -> int:
    from shared.config.kubernetes_yaml import write_yaml
    from shared.config.policy import convert_policy

    converted = convert_policy(read_input(options.file))
    text = write_yaml(converted.config)
    _read(text.encode(), DEFAULT_GATES)
    for note in converted.notes:
        print(f"{_shown_name(options.file)}: {note}", file=sys.stderr)
    print(text, end="")
    return DROPPED if converted.dropped else 0


def _read(text: bytes, gates: FeatureGates) -> "ConfigFile":
    """Includes the plugins of installed packages."""
    from shared.config.reading import read_config_text
    from shared.framework.loading import Registry

    return read_config_text(text, Registry({}).known_plugins(), gates)


def _add_gates(command: argparse.ArgumentParser) -> None:
    what = f"feature gates of the services, like A=true,B=false (default: {GATES.variable})"
    command.add_argument(GATES.flag, dest=GATES.field, metavar=GATES.metavar, help=what)


def _gates(options: argparse.Namespace) -> FeatureGates:
    """From the flag, else from the variable."""
    given = getattr(options, GATES.field)
    origin, text = (GATES.variable, os.environ.get(GATES.variable, "")) if given is None else (GATES.flag, given)
    try:
        return FeatureGates.parse(text)
    except InvalidFeatureGates as invalid:
        raise InvalidSettings([f"{origin}: {problem}" for problem in invalid.problems]) from None


def _shown_name(file: str) -> str:
    return "standard input" if file == STDIN else file


def show_settings(options: argparse.Namespace) -> int:
    if options.output == "markdown":
        from shared.config.sources import settings_table

        print(settings_table())
        return 0
    for line in unknown_variables(os.environ):
        print(f"flotilla: {line}", file=sys.stderr)
    given = all_given(os.environ, vars(options))
    settings = settings_of(given)
    shown: dict[str, dict[str, object]] = {}
    for source in SOURCES:
        place = given.get(source.field) or Given(source.default, SourceKind.DEFAULT, "")
        shown[source.field] = {"value": source.in_force(settings), "from": str(place.kind), "origin": place.origin}
    if options.output == "json":
        print(json.dumps(shown, indent=2))
    elif options.output == "yaml":
        from shared.config.kubernetes_yaml import write_yaml

        print(write_yaml(shown), end="")
    else:
        rows = [("SETTING", "VALUE", "FROM")]
        for field, each in shown.items():
            value = "-" if each["value"] in ("", None) else str(each["value"])
            rows.append((field, value, f"{each['from']} {each['origin']}".strip()))
        print("\n".join(table(rows)))
    return 0
