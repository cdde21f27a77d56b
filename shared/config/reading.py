"""A configuration file, from its text to what services run by: decode, fill in, validate, build."""

from dataclasses import dataclass
from typing import Any

from shared.config.building import Built, KnownPlugins, build, flotilla_plugins
from shared.config.decodefile import decode_file, decode_tree
from shared.config.document import DocumentFault, parse_document
from shared.config.filling import fill_in
from shared.config.problems import Fault, InvalidConfigFile, Problem, Stage, invalid
from shared.config.schema import API_VERSION, CONFIGURATION, KIND, Tree
from shared.config.structs import KubeSchedulerConfig
from shared.config.typed import typed_config
from shared.config.validation.configuration import configuration_problems


@dataclass(frozen=True, slots=True)
class Defaulted:
    """A configuration that could be decoded, with its defaults; it may be wrong."""

    tree: Tree

    def plain(self) -> dict[str, Any]:
        """As a v1 file would say it."""
        return plain_v1(self.tree)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration without faults.

    `config`: in types. `defaulted`: as plain data of v1, with defaults; `written`: the same as it is in force, so
    with the arguments of plugins that run only, and with what extenders take from NodeResourcesFit.
    """

    config: KubeSchedulerConfig
    defaulted: dict[str, Any]
    written: dict[str, Any]
    built: Built


def read_config_text(text: str | bytes, registry: KnownPlugins | None = None) -> ConfigFile:
    """The configuration in the text of a file, YAML or JSON.

    Raises InvalidConfigFile with all that is wrong at the first stage that fails. `registry`: the plugins that there
    are, by default Flotilla's own.
    """
    return finish(defaulted_text(text), registry or flotilla_plugins())


def read_config_values(values: object, registry: KnownPlugins | None = None) -> ConfigFile:
    """The same for a configuration in plain data, which need not say its kind and version; None: all defaults."""
    given = {} if values is None else values
    if not isinstance(given, dict):
        raise InvalidConfigFile(Stage.DECODE, [invalid("", given, "the configuration must be a map")])
    tree, problems = decode_tree(_whole_numbers(given), internal=False)
    if problems:
        raise InvalidConfigFile(Stage.DECODE, problems)
    fill_in(tree)
    return finish(Defaulted(CONFIGURATION.settled(tree)), registry or flotilla_plugins())


def defaulted_text(text: str | bytes) -> Defaulted:
    """The first stage: raises InvalidConfigFile where a text is no configuration of v1."""
    try:
        document = parse_document(text)
    except DocumentFault as fault:
        raise InvalidConfigFile(Stage.DECODE, [Problem("", Fault.INVALID, "", str(fault))]) from None
    tree, internal = decode_file(document)
    if not internal:
        fill_in(tree)
    return Defaulted(CONFIGURATION.settled(tree))


def finish(defaulted: Defaulted, registry: KnownPlugins) -> ConfigFile:
    """The stages after it: raises InvalidConfigFile where values are wrong, or name what is not there."""
    tree = defaulted.tree
    if problems := configuration_problems(tree, registry.removed):
        raise InvalidConfigFile(Stage.VALIDATE, problems)
    built = build(tree, registry)
    return ConfigFile(typed_config(built, tree), defaulted.plain(), plain_v1(built.completed), built)


def plain_v1(tree: Tree) -> dict[str, Any]:
    """A tree as a v1 file would say it."""
    fields = CONFIGURATION.written(tree)
    assert isinstance(fields, dict)
    return {"apiVersion": API_VERSION, "kind": KIND, **fields}


def _whole_numbers(value: object) -> Any:
    """With 4.0 as 4, as YAML has it."""
    if isinstance(value, dict):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
