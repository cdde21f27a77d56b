"""Read a configuration file, from its text to what services run by: decode, fill in defaults, validate, build."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shared.config.args import ARGS, DEFAULT_STORAGE_SHAPE, PluginArgs, VolumeBindingArgs
from shared.config.building import KnownPlugins, Running, build, flotilla_plugins
from shared.config.document import ConfigSource, DocumentFault, parse_document
from shared.config.feature_gates import DEFAULT_GATES, Feature, FeatureGates
from shared.config.notes import plugin_notes
from shared.config.plugin_lists import DEFAULT_PLUGINS, merged_plugins
from shared.config.points import MULTI_POINT, ExtensionPoint
from shared.config.problems import ErrorType, InvalidConfigFile, Problem, Stage, invalid, required, shown, wrong
from shared.config.struct_codec import API_VERSION, GROUP, HEAD, VERSION, Decoder, child, encode
from shared.config.structs import (
    KIND,
    KubeSchedulerConfig,
    KubeSchedulerConfiguration,
    Plugin,
    PluginConfig,
    Plugins,
    Profile,
    ProfileConfig,
    idle_notes,
)
from shared.config.validation import configuration_problems

INTERNAL_VERSION: Final = "__internal"
"""kube-scheduler reads its own types, too: with Go's field names and without defaults."""
DEFAULT_ARGS: Final[Mapping[str, object]] = {plugin: args().in_force() for plugin, args in ARGS.items()}


class ConfigFile(msgspec.Struct, frozen=True):
    """A valid configuration.

    `config`: what services take. `written`: plain data of v1 as it is in force: with defaults, with the arguments of
    plugins that run only, and with NodeResourcesFit ignoring what extenders manage. `plugins`: at every point.
    """

    config: KubeSchedulerConfig
    written: dict[str, Any]
    plugins: Running


def load_config(
    given: object | None, registry: KnownPlugins | None = None, gates: FeatureGates = DEFAULT_GATES
) -> KubeSchedulerConfig:
    """Load what a process runs by: a file that was read, plain dicts, or None for all defaults.

    A KubeSchedulerConfig is returned as it is. `registry`: the plugins that exist, by default Flotilla's own. Raises
    InvalidConfigFile with everything that is wrong at the first stage that fails.
    """
    if isinstance(given, KubeSchedulerConfig):
        return given
    if not isinstance(given, ConfigSource):
        return read_config_values(given, registry, gates).config
    try:
        return read_config_text(given.text, registry, gates).config
    except InvalidConfigFile as wrong:
        raise wrong.within(given.name) from None


def read_config_text(
    text: str | bytes, registry: KnownPlugins | None = None, gates: FeatureGates = DEFAULT_GATES
) -> ConfigFile:
    """Read the text of a file, YAML or JSON.

    Raises InvalidConfigFile with everything that is wrong at the first stage that fails. `registry`: the plugins that
    exist, by default Flotilla's own.
    """
    return finish(defaulted_text(text), registry or flotilla_plugins(), gates)


def read_config_values(
    values: object, registry: KnownPlugins | None = None, gates: FeatureGates = DEFAULT_GATES
) -> ConfigFile:
    """Read plain data, which needs neither kind nor version; None: all defaults."""
    given = {} if values is None else values
    if not isinstance(given, dict):
        raise InvalidConfigFile(Stage.DECODE, [invalid("", given, "the configuration must be a map")])
    return finish(_decode(_whole_numbers(given), internal=False), registry or flotilla_plugins(), gates)


def defaulted_text(text: str | bytes) -> KubeSchedulerConfiguration:
    """Decode a text and fill in defaults, the first stage; values may still be wrong. Raises InvalidConfigFile."""
    value, problems = parse_config(text)
    if value is None:
        problems.append(required("", f"the file is empty; it must be a {KIND} of {API_VERSION}"))
    elif not isinstance(value, dict):
        problems.append(invalid("", value, "the file must be a map"))
    elif version := _version(value, "", KIND, problems):
        return _decode(value, version == INTERNAL_VERSION, problems)
    raise InvalidConfigFile(Stage.DECODE, problems)


def all_problems(
    text: str | bytes, registry: KnownPlugins, gates: FeatureGates = DEFAULT_GATES
) -> tuple[list[Problem], list[str]]:
    """What is wrong at every stage, and what is given without effect: for people who mend a file.

    A later stage sees the default of a field whose value was refused, so what it says about that field is left out.
    """
    try:
        value, problems = parse_config(text)
    except InvalidConfigFile as unreadable:
        return list(unreadable.problems), []
    if not isinstance(value, dict):
        return list(_problems_of(lambda: defaulted_text(text))), []
    version = _version(value, "", KIND, problems)
    if version is None and value.get("kind") not in (None, "", KIND):
        return problems, []
    file, found = _decoded(value, version == INTERNAL_VERSION)
    problems += found
    file = _fill_in_by_gates(file, gates)
    for stage in (
        lambda: configuration_problems(file, registry.removed, gates),
        lambda: _problems_of(lambda: build(file, registry)),
    ):
        refused = [problem.path for problem in problems]
        problems += [new for new in stage() if not any(_concerns(new.path, path) for path in refused if path)]
    return problems, [*idle_notes(value), *plugin_notes(file, registry)]


def _problems_of(work: Callable[[], object]) -> Sequence[Problem]:
    try:
        work()
    except InvalidConfigFile as found:
        return found.problems
    return ()


def _concerns(path: str, other: str) -> bool:
    """Whether one is the other, or a part of it."""
    shorter, longer = sorted((path, other), key=len)
    return longer.startswith(shorter) and longer[len(shorter) :][:1] in ("", ".", "[")


def parse_config(text: str | bytes) -> tuple[object, list[Problem]]:
    """Parse a text, with a problem for each key that any of its YAML maps has twice."""
    try:
        document = parse_document(text)
    except DocumentFault as fault:
        raise InvalidConfigFile(Stage.DECODE, [wrong("", "", str(fault))]) from None
    return document.value, [Problem("", ErrorType.DUPLICATE, line, line) for line in document.repeated]


def finish(file: KubeSchedulerConfiguration, registry: KnownPlugins, gates: FeatureGates = DEFAULT_GATES) -> ConfigFile:
    """Validate and build. Raises InvalidConfigFile where values are wrong or name what does not exist."""
    file = _fill_in_by_gates(file, gates)
    if problems := list(configuration_problems(file, registry.removed, gates)):
        raise InvalidConfigFile(Stage.VALIDATE, problems)
    plugins, completed = build(file, registry)
    return ConfigFile(_in_force(plugins, completed, file, gates), encode(completed), plugins)


# Decoding


def _decode(given: Mapping[str, Any], internal: bool, problems: Collection[Problem] = ()) -> KubeSchedulerConfiguration:
    file, found = _decoded(given, internal)
    if problems or found:
        raise InvalidConfigFile(Stage.DECODE, [*problems, *found])
    return file


def _decoded(given: Mapping[str, Any], internal: bool) -> tuple[KubeSchedulerConfiguration, list[Problem]]:
    """The file with defaults, also for what is wrong, and everything that is."""
    decoder = Decoder(internal)
    file = decoder.section(KubeSchedulerConfiguration, given, "")
    if internal:
        return file, decoder.problems
    profiles = (_decode_args(profile, f"profiles[{i}]", decoder) for i, profile in enumerate(file.profiles))
    return _fill_in(replace(file, profiles=tuple(profiles)), given), decoder.problems


def _decode_args(profile: Profile, path: str, decoder: Decoder) -> Profile:
    entries = [
        PluginConfig(entry.name, _typed_args(entry, f"{path}.pluginConfig[{i}].args", decoder))
        if entry.name in ARGS
        else entry
        for i, entry in enumerate(profile.plugin_config)
    ]
    return replace(profile, plugin_config=tuple(entries))


def _typed_args(entry: PluginConfig, path: str, decoder: Decoder) -> PluginArgs:
    args = ARGS[entry.name]
    given: Any = {} if entry.args is None else entry.args
    if not isinstance(given, dict):
        decoder.refuse(path, given, f"the arguments of {entry.name} must be a map")
        return args()
    version = _version(given, path, f"{entry.name}Args", decoder.problems, implied=True)
    if version != INTERNAL_VERSION:
        return decoder.section(args, given if version else {}, path)
    internal = Decoder(internal=True)
    found = internal.section(args, given, path)
    decoder.problems += internal.problems
    return found


def _version(
    value: Mapping[str, Any], path: str, kind: str, problems: list[Problem], implied: bool = False
) -> str | None:
    """The version of a map of this kind; None where a problem was found. `implied`: neither needs to be given."""
    before = len(problems)
    for key in HEAD:
        if not isinstance(value.get(key, ""), str | None):
            problems.append(invalid(child(path, key), value[key], "must be a string"))
            return None
    given_kind, api_version = value.get("kind") or "", value.get("apiVersion") or ""
    group, _, version = api_version.rpartition("/")
    if given_kind and given_kind != kind:
        hint = "; `flotilla config convert` converts a Policy" if given_kind == "Policy" else ""
        problems.append(wrong(child(path, "kind"), given_kind, f"must be {kind}, not {shown(given_kind)}{hint}"))
    elif not given_kind and not implied:
        problems.append(required(child(path, "kind"), f"is missing; it must be {kind}"))
    if not version and group in ("", GROUP):
        group, version = GROUP, VERSION
        if not implied:
            problems.append(required(child(path, "apiVersion"), f"is missing; it must be {API_VERSION}"))
    if group != GROUP or version not in (VERSION, INTERNAL_VERSION):
        problems.append(invalid(child(path, "apiVersion"), api_version, f"must be {API_VERSION}"))
    return version if len(problems) == before else None


def _whole_numbers(value: object) -> Any:
    """Replace 4.0 by 4, as YAML does."""
    if isinstance(value, dict):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Defaults that depend on other fields


def _fill_in(file: KubeSchedulerConfiguration, given: Mapping[str, Any]) -> KubeSchedulerConfiguration:
    contention = file.enable_contention_profiling
    if not file.enable_profiling and given.get("enableContentionProfiling") is None:
        contention = False
    profiles = [_fill_profile(profile, f"profiles[{i}]") for i, profile in enumerate(file.profiles)]
    if len(profiles) > 1:
        # Only a single profile gets the default name.
        maps = (profile if isinstance(profile, dict) else {} for profile in given["profiles"])
        names = [name if isinstance(name := each.get("schedulerName"), str) else "" for each in maps]
        profiles = [replace(profile, scheduler_name=name) for profile, name in zip(profiles, names, strict=True)]
    return replace(file, enable_contention_profiling=contention, profiles=tuple(profiles))


def _fill_profile(profile: Profile, path: str) -> Profile:
    given = profile.plugins or Plugins()
    at = f"{path}.plugins.{MULTI_POINT}"
    defaults = [Plugin(ref.name, ref.weight, at) for ref in DEFAULT_PLUGINS]
    plugins = given.changed(lambda point, custom: merged_plugins(defaults if point == MULTI_POINT else [], custom))
    configured = {entry.name for entry in profile.plugin_config}
    missing = sorted({plugin.name for plugin in plugins.enabled()} & ARGS.keys() - configured)
    added = (PluginConfig(name, ARGS[name]()) for name in missing)
    return replace(profile, plugins=plugins, plugin_config=(*profile.plugin_config, *added))


def _fill_in_by_gates(file: KubeSchedulerConfiguration, gates: FeatureGates) -> KubeSchedulerConfiguration:
    """With the default shape by which VolumeBinding scores, if it does."""

    def filled(entry: PluginConfig) -> PluginConfig:
        args = entry.args
        if isinstance(args, VolumeBindingArgs) and not args.shape:
            return replace(entry, args=replace(args, shape=DEFAULT_STORAGE_SHAPE))
        return entry

    if not gates.enabled(Feature.STORAGE_SCORING):
        return file
    profiles = (replace(each, plugin_config=tuple(map(filled, each.plugin_config))) for each in file.profiles)
    return replace(file, profiles=tuple(profiles))


# What services take


def _in_force(
    plugins: Running, completed: KubeSchedulerConfiguration, file: KubeSchedulerConfiguration, gates: FeatureGates
) -> KubeSchedulerConfig:
    own = ("profiles", "feature_gates")
    shared = {name: getattr(completed, name) for name in KubeSchedulerConfig.__struct_fields__ if name not in own}
    shared["percentage_of_nodes_to_score"] = completed.percentage_of_nodes_to_score or 0
    profiles = [
        ProfileConfig(
            scheduler_name=profile.scheduler_name,
            percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
            plugins={point: plugins[profile.scheduler_name][point] for point in ExtensionPoint},
            args={**DEFAULT_ARGS, **_args(defaulted), **_args(profile)},
        )
        for profile, defaulted in zip(completed.profiles, file.profiles, strict=True)
    ]
    return KubeSchedulerConfig(profiles=tuple(profiles), feature_gates=gates, **shared)


def _args(profile: Profile) -> dict[str, object]:
    return {
        entry.name: entry.args.in_force() if isinstance(entry.args, PluginArgs) else entry.args
        for entry in profile.plugin_config
        if entry.args is not None
    }
