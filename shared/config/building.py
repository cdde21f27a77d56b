"""Build extenders and profiles from a valid configuration: check that what it names exists and fits together."""

import ssl
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from shared.config.args import NodeResourcesFitArgs
from shared.config.args_validation import fit_problems
from shared.config.plugin_lists import (
    DEFAULT_POINTS,
    OLDER_PLUGINS,
    PLACEMENT_POINTS,
    REMOVED_PLUGINS,
    Expansion,
    PointsOf,
)
from shared.config.points import ExtensionPoint, PluginRef
from shared.config.problems import InvalidConfigFile, Problem, Stage, required, shown, wrong
from shared.config.structs import ExtenderConfig, ExtenderTls, KubeSchedulerConfiguration, PluginConfig, Profile
from shared.config.validation import plain_args

DEFAULT_EXTENDER_TIMEOUT: Final = 5.0
"""Seconds for a call to an extender whose configuration names no time-out."""
FIT: Final = "NodeResourcesFit"
HIDDEN: Final = "(hidden)"
Running = Mapping[str, Mapping[str, tuple[PluginRef, ...]]]
"""The plugins that run, by scheduler name and point."""


class KnownPlugins(msgspec.Struct, frozen=True):
    """The plugins that exist. `removed`: those that a file must not name at a point or give arguments.

    `names`: of those that can be listed.
    """

    points_of: PointsOf
    names: frozenset[str]
    removed: frozenset[str] = frozenset()


def kube_scheduler_plugins() -> KnownPlugins:
    """The plugins of kube-scheduler v1.36, and no others."""
    return KnownPlugins(_in_tree, frozenset(DEFAULT_POINTS), REMOVED_PLUGINS)


def flotilla_plugins(
    points_of: Callable[[str], Collection[ExtensionPoint]] | None = None, names: Iterable[str] = ()
) -> KnownPlugins:
    """Those and older ones, and the ones that `points_of` knows; it gives nothing or a LookupError for others.

    `names`: of these, for hints.
    """

    def points(name: str) -> Collection[str] | None:
        ours = OLDER_PLUGINS[name] if name in OLDER_PLUGINS else _in_tree(name)
        if ours is not None or points_of is None:
            return ours
        try:
            return points_of(name) or None
        except LookupError:
            return None

    return KnownPlugins(points, frozenset((*DEFAULT_POINTS, *OLDER_PLUGINS, *names)))


def build(file: KubeSchedulerConfiguration, registry: KnownPlugins) -> tuple[Running, KubeSchedulerConfiguration]:
    """What runs, and the configuration as it is in force.

    Raises InvalidConfigFile with everything for which extenders or profiles cannot be made.
    """
    problems: list[Problem] = []
    for i, extender in enumerate(file.extenders):
        problems += _tls_problems(extender, f"extenders[{i}].tlsConfig")
    extenders = (replace(each, http_timeout=each.http_timeout or DEFAULT_EXTENDER_TIMEOUT) for each in file.extenders)
    completed = replace(_without_managed(file, problems), extenders=tuple(extenders))
    plugins: dict[str, Mapping[str, tuple[PluginRef, ...]]] = {}
    profiles: list[Profile] = []
    for i, profile in enumerate(completed.profiles):
        path = f"profiles[{i}]"
        if profile.plugins is None:
            problems.append(required(f"{path}.plugins", "is needed"))
            continue
        enabled = {plugin.name for plugin in profile.plugins.enabled()}
        for j, entry in enumerate(profile.plugin_config if FIT in enabled else ()):
            if isinstance(entry.args, NodeResourcesFitArgs):
                problems += fit_problems(entry.args, f"{path}.pluginConfig[{j}].args")
        expansion = Expansion(profile.plugins, registry.points_of, path, registry.names)
        problems += expansion.problems
        plugins[profile.scheduler_name] = expansion.running
        profiles.append(replace(profile, plugin_config=_args_in_force(profile, enabled, registry)))
    if not problems:
        problems += _queue_sort_problems(file.profiles, plugins)
    if problems:
        raise InvalidConfigFile(Stage.BUILD, problems)
    return plugins, replace(completed, profiles=tuple(profiles))


def _in_tree(name: str) -> Collection[str] | None:
    if name not in DEFAULT_POINTS:
        return None
    return DEFAULT_POINTS[name] | PLACEMENT_POINTS.get(name, frozenset())


# Profiles


def _without_managed(file: KubeSchedulerConfiguration, problems: list[Problem]) -> KubeSchedulerConfiguration:
    """Make NodeResourcesFit ignore the resources that extenders manage with `ignoredByScheduler`."""
    resources = [resource for extender in file.extenders for resource in extender.managed_resources]
    ignored = tuple(resource.name for resource in resources if resource.ignored_by_scheduler)
    if not ignored:
        return file
    profiles = []
    for i, profile in enumerate(file.profiles):
        if not isinstance(profile.args_of(FIT), NodeResourcesFitArgs):
            reason = "needs NodeResourcesFit to ignore resources of an extender (ignoredByScheduler)"
            problems.append(wrong(f"profiles[{i}]", ignored, f"{reason}: {', '.join(ignored)}"))
        entries = tuple(
            PluginConfig(FIT, replace(entry.args, ignored_resources=ignored))
            if isinstance(entry.args, NodeResourcesFitArgs)
            else entry
            for entry in profile.plugin_config
        )
        profiles.append(replace(profile, plugin_config=entries))
    return replace(file, profiles=tuple(profiles))


def _args_in_force(profile: Profile, enabled: Collection[str], registry: KnownPlugins) -> tuple[PluginConfig, ...]:
    entries = (
        entry
        for entry in profile.plugin_config
        if entry.name in enabled and entry.args is not None and registry.points_of(entry.name) is not None
    )
    return tuple(sorted(entries, key=lambda entry: entry.name))


def _queue_sort_problems(profiles: Sequence[Profile], plugins: Running) -> Iterator[Problem]:
    """All profiles share one queue, so they must sort it in the same way."""
    sorts = [plugins[profile.scheduler_name][ExtensionPoint.QUEUE_SORT][0].name for profile in profiles]
    first = plain_args(profiles[0].args_of(sorts[0]))
    for i, (profile, name) in enumerate(zip(profiles[1:], sorts[1:], strict=True), start=1):
        args = plain_args(profile.args_of(name))
        if name != sorts[0]:
            reason = f"sorts the queue by {name!r} where profiles[0] sorts it by {sorts[0]!r}; it must be one"
            yield wrong(f"profiles[{i}].plugins.queueSort", name, reason)
        elif args != first:
            reason = f"the arguments of {name!r} must be those in profiles[0] ({shown(first)}), not {shown(args)}"
            yield wrong(f"profiles[{i}].pluginConfig", args, reason)


# Keys and certificates of extenders


def _tls_problems(extender: ExtenderConfig, path: str) -> Iterator[Problem]:
    """What keeps a client for the extender from being made."""
    tls = extender.tls
    if tls is None:
        return
    has_ca = bool(tls.ca_data or tls.ca_file)
    has_pair = bool((tls.cert_data or tls.cert_file) and (tls.key_data or tls.key_file))
    insecure = tls.insecure or (extender.enable_https and not has_ca)
    if not (has_ca or has_pair or insecure or tls.server_name):
        return
    if has_ca and tls.insecure:
        yield wrong(f"{path}.insecure", True, "cannot be true where there is a caData or caFile")
        return
    material: dict[str, bytes] = {}
    for name in ("ca", "cert", "key"):
        material[name], problem = _material(tls, name, path)
        if problem is not None:
            yield problem
    if has_ca and material["ca"] and not _has_certificate(material["ca"]):
        field = "caData" if tls.ca_data else "caFile"
        yield wrong(f"{path}.{field}", HIDDEN, "must have at least one certificate in PEM")
    # A pair of files alone is read again while the extender is used, so it is not checked here.
    files_alone = tls.cert_file and tls.key_file and not (tls.cert_data or tls.key_data)
    given = has_pair and not files_alone and material["cert"] and material["key"]
    if given and not _is_pair(material["cert"], material["key"]):
        field = "certData" if tls.cert_data else "certFile"
        yield wrong(f"{path}.{field}", HIDDEN, "must be a certificate in PEM that matches the key")


def _material(tls: ExtenderTls, name: str, path: str) -> tuple[bytes, Problem | None]:
    data: bytes = getattr(tls, f"{name}_data")
    file: str = getattr(tls, f"{name}_file")
    if data or not file:
        return data, None
    try:
        return Path(file).read_bytes(), None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no path"
        return b"", wrong(f"{path}.{name}File", file, f"must be a file that can be read, not {file!r} ({why})")


def _has_certificate(authority: bytes) -> bool:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
        return bool(context.get_ca_certs()) or bool(context.cert_store_stats()["x509"])
    except (ssl.SSLError, ValueError):
        return False


def _is_pair(certificate: bytes, key: bytes) -> bool:
    try:
        with tempfile.TemporaryDirectory(prefix="flotilla-") as folder:
            chain, private = Path(folder, "certificate"), Path(folder, "key")
            chain.write_bytes(certificate)
            private.touch(mode=0o600)
            private.write_bytes(key)
            # A password is refused rather than asked for.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(chain, private, password=lambda: b"")
            return True
    except (ssl.SSLError, ValueError, OSError):
        return False
