"""What a process needs to know about where it runs. Every field says what, unit and default; secrets come by
environment.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """How to reach the API server: `server` (with `token`), else `kubeconfig`, else what a pod is given."""

    server: str | None = None
    token: str | None = field(default=None, repr=False)
    kubeconfig: str | None = None
    context: str | None = None
    """Of the kubeconfig; none: its current one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    name: str = ""
    """What this process is called among its like; must differ between them. Default: the service, host and pid."""
    identity: str = ""
    """Who this process is in Leases: who finds itself in one need not wait for it to run out. Default: its name."""
    prefix: str = "flotilla"
    """Begins every NATS subject and Redis key, so that several Flotillas can share servers."""
    nats_url: str = field(default="nats://127.0.0.1:4222", repr=False)
    """May hold user and password."""
    nats_ca: str | None = None
    """A file with the certificates that NATS's has to be signed by; none: those that the system trusts."""
    nats_cert: str | None = None
    """A file with the certificate by which NATS knows us; `nats_key` is its key."""
    nats_key: str | None = None
    nats_credentials: str | None = None
    """A file with a user's JWT and seed (`.creds`), instead of user and password."""
    redis_url: str = field(default="redis://127.0.0.1:6379/0", repr=False)
    """May hold a password; `unix://` works as well."""
    api: ApiSettings = field(default_factory=ApiSettings)
    http_host: str = "127.0.0.1"
    http_port: int = 0
    """/healthz, /readyz and /metrics are served here; 0: any free port, told in the log."""
    http_scheme: str = "auto"
    """`https`: TLS; every path except health requires authorization; `http`: in clear, for everybody;
    `auto`: `http` on this machine's own addresses, `https` on all others."""
    http_cert: str | None = None
    """A file with the certificate that is shown with `https`; none: one that signs itself. `http_key` is its key."""
    http_key: str | None = None
    config: str | None = None
    """A KubeSchedulerConfiguration file; none: kube-scheduler's defaults."""
    round_size: int = 256
    """Pods decided at once, at most; 1 makes exactly kube-scheduler's decisions."""
    unschedulable_patience: int = 300
    """Seconds after which a pod that was unschedulable is tried again though nothing has happened that may help it."""
    shard_count: int = 64
    """Into how many parts the nodes are divided; workers hold several of them. At least the number of workers."""
    expected_workers: int = 0
    """Workers that start together: the cycle gives out shards as soon as so many beat; 0: unknown, after half a second
    without a new one."""
    seed: int = 0
    """Decides between equally good nodes."""
    trace_ratio: float = 0.01
    """The share of pods whose way is traced when they are scheduled at once; failures always are."""
    otlp_endpoint: str | None = None
    """Where traces go, an OTLP/HTTP endpoint; none: nowhere."""
    log_format: str = "auto"
    """`json` or `text`; `auto`: text on a terminal."""
    log_level: str = "info"
