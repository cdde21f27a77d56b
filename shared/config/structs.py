"""A configuration in types: what services and plugins take from a file that is without faults."""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.config.points import ExtensionPoint, PluginRef


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """One profile, resolved.

    `plugins` has every point, with the plugins that run there in their order; at the score point each has the weight
    in force, at other points 0. `percentage_of_nodes_to_score` is None where the scheduler's own holds. `args` has
    the arguments of every plugin that has some, given or by default.
    """

    scheduler_name: str
    percentage_of_nodes_to_score: int | None
    plugins: Mapping[ExtensionPoint, tuple[PluginRef, ...]]
    args: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """How one of several schedulers is chosen; durations in seconds."""

    leader_elect: bool
    lease_duration: float
    renew_deadline: float
    retry_period: float
    resource_lock: str
    resource_name: str
    resource_namespace: str


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """How the API server is spoken to. `qps` may be negative: without a limit."""

    kubeconfig: str
    accept_content_types: str
    content_type: str
    qps: float
    burst: int


@dataclass(frozen=True, slots=True)
class ManagedResource:
    """A resource of which an extender keeps account; with `ignored_by_scheduler`, the extender alone."""

    name: str
    ignored_by_scheduler: bool = False


@dataclass(frozen=True, slots=True)
class ExtenderTls:
    """What TLS with an extender rests on; data wins over a file."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""

    def __repr__(self) -> str:
        return f"ExtenderTls(insecure={self.insecure}, server_name={self.server_name!r}, ...)"


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    """A scheduler extender: an HTTP server that is asked. An empty verb is one that it does not have."""

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 1
    bind_verb: str = ""
    preempt_verb: str = ""
    enable_https: bool = False
    tls: ExtenderTls | None = None
    http_timeout: float = 5.0
    """Seconds; below nought every call fails at once."""
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


@dataclass(frozen=True, slots=True)
class KubeSchedulerConfig:
    """The whole configuration, with defaults filled in. A percentage of 0 leaves the choice to the cluster's size.

    `extenders` are in the order of the file.
    """

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
