"""Define where a process runs and what it talks to. Every field says what, unit and default."""

from dataclasses import dataclass, field
from ipaddress import ip_address

from shared.config.feature_gates import DEFAULT_GATES, FeatureGates

HINTS_IN_EVENTS = "events"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """How to reach the API server: `server` (with `token`), else `kubeconfig`, else as a pod in the cluster."""

    server: str | None = None
    token: str | None = field(default=None, repr=False)
    kubeconfig: str | None = None
    context: str | None = None
    """Of the kubeconfig; none: its current one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    name: str = ""
    """Name of this process, unique among the processes of its service. Default: the service, host and pid."""
    identity: str = ""
    """Lease holder identity: a process takes a Lease of its own identity at once, so no two that live may share one.
    Default: the name and a random part, new with each start."""
    prefix: str = "flotilla"
    """Begins every NATS subject and Redis key, so that several Flotillas can share servers."""
    nats_url: str = field(default="nats://127.0.0.1:4222", repr=False)
    """May hold user and password."""
    nats_ca: str | None = None
    """A file with the certificates of the authorities that sign NATS's; none: the system's."""
    nats_cert: str | None = None
    """A file with the client certificate for NATS; `nats_key` is its key."""
    nats_key: str | None = None
    nats_credentials: str | None = None
    """A file with a user's JWT and seed (`.creds`), instead of user and password."""
    redis_url: str = field(default="redis://127.0.0.1:6379/0", repr=False)
    """May hold a password; `unix://` works as well."""
    api: ApiSettings = field(default_factory=ApiSettings)
    http_host: str = "127.0.0.1"
    http_port: int = 0
    """/healthz, /readyz and /metrics are served here; 0: any free port, which is logged."""
    http_scheme: str = "auto"
    """`https`: TLS; every path except health requires authorization; `http`: unencrypted, open to everybody;
    `auto`: `http` on this machine's own addresses, `https` on all others."""
    http_cert: str | None = None
    """A file with the certificate for `https`; none: a self-signed one. `http_key` is its key."""
    http_key: str | None = None
    config: str | None = None
    """A KubeSchedulerConfiguration file; none: kube-scheduler's defaults."""
    feature_gates: FeatureGates = DEFAULT_GATES
    """What kube-scheduler's `--feature-gates` takes, like `A=true,B=false`; none: the defaults."""
    round_size: int = 1024
    """Pods decided at once, at most; 1 makes exactly kube-scheduler's decisions."""
    unschedulable_patience: int = 300
    """Seconds after which an unschedulable pod is retried without any event that may help it."""
    shard_count: int = 64
    """Shards that the nodes are divided into; workers hold several of them. At least the number of workers."""
    expected_workers: int = 0
    """Workers that start together: the cycle assigns shards as soon as this many send heartbeats; 0: unknown, after
    half a second without a new one."""
    hints: str = "none"
    """`events`: a pod that fits nowhere gets an Event with what would help, found while the cycle is idle. `none`: it
    does not."""
    seed: int = 0
    """Decides between equally good nodes."""
    trace_ratio: float = 0.01
    """The share of pods that are traced when they are scheduled at once; failures always are."""
    otlp_endpoint: str | None = None
    """Where traces go, an OTLP/HTTP endpoint; none: nowhere."""
    trace_url: str | None = None
    """Where the console's links to traces lead: the base URL of Jaeger's page; none: there are no links."""
    log_format: str = "auto"
    """`json` or `text`; `auto`: JSON in a container without a terminal, text otherwise."""
    log_level: str = "info"


def serves_tls(settings: Settings) -> bool:
    """Whether the HTTP endpoints of a process use TLS."""
    if settings.http_scheme == "auto":
        return not _is_loopback(settings.http_host)
    return settings.http_scheme == "https"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
