"""Read settings from flags, environment variables and a file: a flag wins over a variable, a variable over the file.

Secrets come from the environment or from a file that it names (`FLOTILLA_TOKEN_FILE`), never from a flag: everybody
on the machine can read a command line.
"""

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from shared.config import settings as settings_module
from shared.config import values
from shared.config.setting_sources import API_FIELDS, SOURCES, Given, Layer, SourceKind
from shared.config.settings import ApiSettings, Settings
from shared.config.spelling import did_you_mean
from shared.errors import UserError

HTTP_FLAG = "--http"
SETTINGS_FLAG = "--settings"
SETTINGS_VARIABLE = "FLOTILLA_SETTINGS"
"""Both name a file with settings; the file cannot name another."""

OURS = "FLOTILLA_"
OTHER_VARIABLES = (
    "FLOTILLA_PROFILE",
    "FLOTILLA_VALIDATE",
    "FLOTILLA_BENCHMARK_WITHOUT_API_CALLS",
    "FLOTILLA_USER",
)
"""For benchmarks, for tests, and for `deploy/docker-compose.yml`."""
OF_SERVICES = re.compile(
    r"\w+(_SERVICE_(HOST|PORT(_\w+)?)=.*|_PORT(_\d+_(TCP|UDP|SCTP))?=\w+://.*|_(TCP|UDP|SCTP)_\w+=.*)"
)
"""Variables, with their values, that Kubernetes sets for each Service of a namespace."""


class InvalidSettings(UserError):
    """Everything that is wrong with the settings: one line as a string, a line each by `lines`."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))

    def lines(self) -> list[str]:
        return list(self.problems)


def add_flags(command: argparse.ArgumentParser, without: frozenset[str] = frozenset()) -> None:
    """Add the flags of all settings but those of the fields named; `settings_from` reads what they are given."""
    group = command.add_argument_group("settings")
    text = "YAML or JSON with settings, by the names that flotilla config settings prints"
    group.add_argument(SETTINGS_FLAG, dest="settings", metavar="FILE", help=text)
    for source in SOURCES:
        if source.flag and source.field not in without:
            group.add_argument(source.flag, dest=source.field, metavar=source.metavar, help=source.help)
    if "http" not in without:
        text = "where /healthz, /readyz and /metrics are served (default 127.0.0.1:0, any free port)"
        group.add_argument(HTTP_FLAG, dest="http", metavar="HOST:PORT", help=text)


def settings_from(environment: Mapping[str, str], flags: Mapping[str, object] | None = None) -> Settings:
    """The settings, with defaults for what is not given; see `all_given`."""
    return settings_of(all_given(environment, flags or {}))


def all_given(environment: Mapping[str, str], flags: Mapping[str, object]) -> dict[str, Given]:
    """What is given, by field, each from the place that wins.

    Raises InvalidSettings with everything that is wrong, a line each: the origin, what is allowed, and the value. An
    empty variable counts as not set. `flags`: strings by field, as argparse keeps what `add_flags` added; None and
    other names are ignored.
    """
    layers = (_file_layer(environment, flags), _variable_layer(environment), _flag_layer(flags))
    given: dict[str, Given] = {}
    for layer in layers:
        if layer.given.keys() & {"kubeconfig", "context"} and "server" not in layer.given:
            given.pop("server", None)
        given |= layer.given
    problems = [problem for layer in layers for problem in layer.problems]
    if "context" in given and "kubeconfig" not in given and not problems:
        context = given["context"]
        what = f"{context.value!r} is a context of a kubeconfig; say --kubeconfig FILE as well"
        problems.append(f"{context.origin}: {what}")
    if problems:
        raise InvalidSettings(problems)
    return given


def settings_of(given: Mapping[str, Given]) -> Settings:
    api = {field: each.value for field, each in given.items() if field in API_FIELDS}
    rest = {field: each.value for field, each in given.items() if field not in API_FIELDS}
    return Settings(api=ApiSettings(**api), **rest)  # type: ignore[arg-type]


def environment_of(settings: Settings) -> dict[str, str]:
    """The variables that give another process these settings."""
    found = {source.variable: source.value(settings) for source in SOURCES}
    return {variable: str(value) for variable, value in found.items() if value is not None and str(value)}


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without Flotilla's variables."""
    ours = {source.variable for source in SOURCES} | {SETTINGS_VARIABLE}
    return {key: value for key, value in environment.items() if key.removesuffix("_FILE") not in ours}


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A line for each variable of Flotilla's that no setting has. Those that Kubernetes sets for Services are none."""
    files = {f"{source.variable}_FILE" for source in SOURCES if source.secret}
    known = {SETTINGS_VARIABLE, *(source.variable for source in SOURCES), *files}
    unknown = (
        each
        for each, value in sorted(environment.items())
        if each.startswith(OURS)
        and each not in known.union(OTHER_VARIABLES)
        and not OF_SERVICES.fullmatch(f"{each}={value}")
    )
    return [f"{each}: ignored, because there is no such setting{did_you_mean(each, known, OURS)}" for each in unknown]


def settings_table() -> str:
    """All settings as a table in Markdown, a row each in the order of `SOURCES`, explained by the field's docstring."""
    docs = dict(_field_docs())
    rows = []
    for source in SOURCES:
        flag = HTTP_FLAG if source.field in ("http_host", "http_port") else source.flag
        default = "none" if source.default is None or not str(source.default) else f"`{source.default}`"
        what = docs.get(source.field) or source.help or "see below"
        rows.append(f"| `{source.field}` | `{source.variable}` | {f'`{flag}`' if flag else ''} | {default} | {what} |")
    return "\n".join(("| setting | variable | flag | default | what |", "|---|---|---|---|---|", *rows))


def _file_layer(environment: Mapping[str, str], flags: Mapping[str, object]) -> Layer:
    path, origin = flags.get("settings"), SETTINGS_FLAG
    if path is None:
        path, origin = environment.get(SETTINGS_VARIABLE), SETTINGS_VARIABLE
    if not path:
        return Layer(SourceKind.FILE)
    from shared.config.settings_file import read_settings_file  # msgspec and YAML take long to import

    return read_settings_file(str(path), origin)


def _variable_layer(environment: Mapping[str, str]) -> Layer:
    layer = Layer(SourceKind.VARIABLE)
    for source in SOURCES:
        variable, path = source.variable, environment.get(f"{source.variable}_FILE", "")
        value = environment.get(variable, "")
        if not value and source.secret and path:
            variable = f"{variable}_FILE"
            value = layer.secret(path, variable)
        if value:
            layer.take(source, value, variable)
    return layer


def _flag_layer(flags: Mapping[str, object]) -> Layer:
    layer = Layer(SourceKind.FLAG)
    for source in SOURCES:
        value = flags.get(source.field)
        if not source.flag or value is None:
            continue
        if source.secret and values.holds_password(str(value)):
            layer.refuse(
                source.flag,
                f"{source.shown(str(value))!r} holds a password, which everybody on this machine "
                f"could read in a command line; set {source.variable} instead",
            )
        else:
            layer.take(source, str(value), source.flag)
    if flags.get("http") is not None:
        try:
            host, port = values.address(str(flags["http"]))
        except ValueError as error:
            layer.refuse(HTTP_FLAG, f"{error}, not {flags['http']!r}")
        else:
            layer.put("http_host", host, HTTP_FLAG)
            layer.put("http_port", port, HTTP_FLAG)
    return layer


def _field_docs() -> Iterator[tuple[str, str]]:
    """Each field of the settings classes with the docstring below it."""
    import ast
    import inspect

    for owner in ast.parse(inspect.getsource(settings_module)).body:
        for field, below in pairwise(owner.body if isinstance(owner, ast.ClassDef) else ()):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                yield field.target.id, " ".join(str(ast.literal_eval(below.value)).split())


# Command lines

BAD_USAGE = 2
"""The exit code for a mistake in the command line or the settings."""
WIDEST = 110
"""Characters of a line of help."""


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns - 2, WIDEST)
        super().__init__(prog, max_help_position=26, width=max(width, 40))


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that keeps the lines of descriptions and examples, and reports mistakes in one line."""

    def __init__(self, *args: object, **named: object) -> None:
        named.setdefault("formatter_class", _Help)
        named.setdefault("allow_abbrev", False)
        super().__init__(*args, **named)  # type: ignore[arg-type]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Knows all: the command whose argument it is refuses it, since only its flags are what may be meant."""
        known, others = super().parse_known_args(args, namespace)
        if others:
            guess = did_you_mean(others[0].partition("=")[0], self._option_string_actions, "--")
            self.error(f"unrecognized arguments: {' '.join(others)}{guess}")
        return known, others

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as wrong:
            wrong.message += did_you_mean(value, map(str, action.choices or ()))
            raise

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def settings_of_process(service: str, arguments: Sequence[str] | None = None) -> Settings:
    """Read the settings of `python -m services.SERVICE` from environment and flags; a mistake ends the process."""
    parser = Parser(prog=f"python -m services.{service}", description=f"Runs the {service}.")
    return _read(parser, arguments)[0]


def settings_of_group(services: Sequence[str], arguments: Sequence[str] | None = None) -> tuple[Settings, list[str]]:
    """Read those of `python -m services SERVICE ...`, and which services; a mistake ends the process."""
    parser = Parser(prog="python -m services", description="Runs several services in one process.")
    parser.add_argument("services", nargs="+", choices=services, metavar="SERVICE", help=", ".join(services))
    settings, flags = _read(parser, arguments)
    return settings, flags["services"]


def _read(parser: Parser, arguments: Sequence[str] | None) -> tuple[Settings, dict[str, Any]]:
    add_flags(parser)
    flags = vars(parser.parse_args(arguments))
    try:
        return settings_from(os.environ, flags), flags
    except UserError as mistake:
        for line in (*mistake.lines(), *unknown_variables(os.environ)):
            print(f"flotilla: {line}", file=sys.stderr)
        sys.exit(BAD_USAGE)
