"""Define KubeSchedulerConfiguration v1 of kube-scheduler v1.36: each field once, with its type and default.

`KubeSchedulerConfig` is what services take: the same configuration with each profile's plugins resolved.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from shared.config.feature_gates import DEFAULT_GATES, FeatureGates
from shared.config.points import MULTI_POINT, POINTS_IN_ORDER, ExtensionPoint, PluginRef
from shared.config.struct_codec import Filled, Float32, Int32, Int64, OmitEmpty, Path, Seconds, Section, TypedSection

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
DEFAULT_QPS: Final = 50.0
"""Calls to the API server a second, where the file sets a burst only."""
DEFAULT_BURST: Final = 100
"""Calls at once, where the file sets a rate only."""


class LeaderElection(Section, frozen=True):
    """How a leader is elected among several schedulers; durations in seconds."""

    leader_elect: bool = True
    lease_duration: Filled[Seconds] = 15.0
    renew_deadline: Filled[Seconds] = 10.0
    retry_period: Filled[Seconds] = 2.0
    resource_lock: Filled[str] = "leases"
    resource_name: Filled[str] = "kube-scheduler"
    resource_namespace: Filled[str] = "kube-system"


class ClientConnection(Section, frozen=True):
    """How to connect to the API server. A negative `qps` means no limit."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: Filled[str] = "application/vnd.kubernetes.protobuf"
    qps: Filled[Float32] = DEFAULT_QPS
    burst: Filled[Int32] = DEFAULT_BURST


class Plugin(Section, frozen=True):
    """A plugin in a list of a profile. `path` is where the file lists it."""

    name: str = ""
    weight: Int32 = 0
    path: Path = ""


class PluginSet(Section, frozen=True):
    enabled: OmitEmpty[tuple[Plugin, ...]] = ()
    disabled: OmitEmpty[tuple[Plugin, ...]] = ()


class Plugins(Section, frozen=True):
    """The plugin lists of a profile by extension point."""

    multi_point: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()

    def at(self, point: str) -> PluginSet:
        plugin_set: PluginSet = getattr(self, _ATTRIBUTES[point])
        return plugin_set

    def enabled(self) -> list[Plugin]:
        """Every enabled plugin: of each point in order, then of multiPoint."""
        return [plugin for point in (*POINTS_IN_ORDER, MULTI_POINT) for plugin in self.at(point).enabled]

    def changed(self, change: Callable[[str, PluginSet], PluginSet]) -> "Plugins":
        return Plugins(**{attribute: change(point, self.at(point)) for point, attribute in _ATTRIBUTES.items()})


_ATTRIBUTES: Final = {field.encode_name: field.name for field in msgspec.structs.fields(Plugins)}


class PluginConfig(Section, frozen=True):
    """A plugin's arguments: a PluginArgs where kube-scheduler has a type for them, else as the file gives them."""

    name: str = ""
    args: object = None


class Profile(Section, frozen=True):
    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    percentage_of_nodes_to_score: OmitEmpty[Int32 | None] = None
    plugins: OmitEmpty[Plugins | None] = Plugins()
    plugin_config: OmitEmpty[tuple[PluginConfig, ...]] = ()

    def args_of(self, plugin: str) -> object:
        """The first arguments given to the plugin."""
        return next((entry.args for entry in self.plugin_config if entry.name == plugin), None)


class ManagedResource(Section, frozen=True):
    """A resource that an extender manages; NodeResourcesFit ignores it with `ignored_by_scheduler`."""

    name: str
    ignored_by_scheduler: OmitEmpty[bool] = False


class ExtenderTls(Section, frozen=True):
    """The TLS settings of an extender; data wins over a file."""

    insecure: OmitEmpty[bool] = False
    server_name: OmitEmpty[str] = ""
    cert_file: OmitEmpty[str] = ""
    key_file: OmitEmpty[str] = ""
    ca_file: OmitEmpty[str] = ""
    cert_data: OmitEmpty[bytes] = b""
    key_data: OmitEmpty[bytes] = b""
    ca_data: OmitEmpty[bytes] = b""

    def __repr__(self) -> str:
        return f"ExtenderTls(insecure={self.insecure}, server_name={self.server_name!r}, ...)"


class ExtenderConfig(Section, frozen=True):
    """A scheduler extender: an HTTP server. It does not serve the verbs that are empty."""

    url_prefix: str
    filter_verb: OmitEmpty[str] = ""
    preempt_verb: OmitEmpty[str] = ""
    prioritize_verb: OmitEmpty[str] = ""
    weight: OmitEmpty[Int64] = 0
    bind_verb: OmitEmpty[str] = ""
    enable_https: OmitEmpty[bool] = msgspec.field(name="enableHTTPS", default=False)
    tls: OmitEmpty[ExtenderTls | None] = msgspec.field(name="tlsConfig", default=None)
    http_timeout: Seconds = 0.0
    """0 means 5 seconds; below 0, every call fails at once."""
    node_cache_capable: OmitEmpty[bool] = False
    managed_resources: OmitEmpty[tuple[ManagedResource, ...]] = ()
    ignorable: OmitEmpty[bool] = False


class KubeSchedulerConfiguration(TypedSection, frozen=True):
    """A configuration file with its defaults filled in."""

    parallelism: Int32 = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: OmitEmpty[Int32 | None] = 0
    pod_initial_backoff_seconds: Int64 = 1
    pod_max_backoff_seconds: Int64 = 10
    profiles: OmitEmpty[Filled[tuple[Profile, ...]]] = (Profile(),)
    extenders: OmitEmpty[tuple[ExtenderConfig, ...]] = ()
    delay_cache_until_active: OmitEmpty[bool] = False


KIND: Final = KubeSchedulerConfiguration.__name__


class ProfileConfig(msgspec.Struct, frozen=True):
    """One profile, resolved.

    `plugins` has the plugins that run at each point, in order; at the score point with the weight in force, elsewhere
    with 0. `percentage_of_nodes_to_score` is None where that of the whole configuration holds. `args` has the
    arguments of each plugin that has any, given or by default.
    """

    scheduler_name: str
    percentage_of_nodes_to_score: int | None
    plugins: Mapping[ExtensionPoint, tuple[PluginRef, ...]]
    args: Mapping[str, object]


class KubeSchedulerConfig(msgspec.Struct, frozen=True):
    """The whole configuration in force, and the feature gates. A percentage of 0 adapts to the cluster's size."""

    profiles: tuple[ProfileConfig, ...]
    percentage_of_nodes_to_score: int
    pod_initial_backoff_seconds: int
    pod_max_backoff_seconds: int
    parallelism: int
    leader_election: LeaderElection
    client_connection: ClientConnection
    extenders: tuple[ExtenderConfig, ...]
    enable_profiling: bool
    enable_contention_profiling: bool
    delay_cache_until_active: bool
    feature_gates: FeatureGates = DEFAULT_GATES


class Effect(NamedTuple):
    """What Flotilla does with a field of the file; with `idle`, what it has instead of the field."""

    what: str
    idle: bool = False

    def __str__(self) -> str:
        return f"has no meaning here: {self.what}" if self.idle else self.what


EFFECTS: Final[Mapping[str, Effect]] = {
    "profiles": Effect("all of it, as in kube-scheduler"),
    "extenders": Effect("all of it, as in kube-scheduler"),
    "percentageOfNodesToScore": Effect("0 means all nodes; from 1 to 99, each shard keeps to its share"),
    "podInitialBackoffSeconds": Effect("how long the queue backs off a pod after its first failed attempt"),
    "podMaxBackoffSeconds": Effect("how long it backs off a pod at most"),
    "parallelism": Effect("run as many workers as the cluster needs", idle=True),
    "leaderElection": Effect("for a Lease of each service that elects a leader; resourceName has no meaning"),
    "clientConnection": Effect(
        "`kubeconfig` where no setting names one or a server; `qps` and `burst`, where they are given, for each process"
    ),
    "enableProfiling": Effect("there are no profiling endpoints", idle=True),
    "enableContentionProfiling": Effect("there are no profiling endpoints", idle=True),
    "delayCacheUntilActive": Effect("a service lists the cluster when it starts", idle=True),
}


def idle_notes(given: Mapping[str, Any]) -> list[str]:
    """A line for each field that a file gives and that has no effect here."""
    return [f"{field}: {effect}" for field, effect in EFFECTS.items() if effect.idle and given.get(field) is not None]
