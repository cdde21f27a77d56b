"""The settings that exist: where each may come from and how it is read, and the values of one place."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from shared.config import values
from shared.config.feature_gates import FeatureGates, InvalidFeatureGates
from shared.config.settings import HINTS_IN_EVENTS, ApiSettings, Settings

URL_FILE_VARIABLE = "FLOTILLA_NATS_URL_FILE"
"""The variable that `flotilla up` prints."""
API_FIELDS = frozenset(field.name for field in fields(ApiSettings))


class SourceKind(StrEnum):
    """The places that values come from; a later one wins."""

    DEFAULT = "default"
    FILE = "file"
    VARIABLE = "variable"
    FLAG = "flag"


class Given(NamedTuple):
    """A value and its origin, as a person would name that: `--seed`, `FLOTILLA_SEED`, `flotilla.yaml: seed`."""

    value: object
    kind: SourceKind
    origin: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where a field's value may come from, and how to read it.

    `shown` makes what anybody may see of a value. `secret`: a file of its own may hold it, a flag no password.
    `standard_variable` is a name that does not begin with FLOTILLA.
    """

    field: str
    read: values.Reader
    flag: str = ""
    metavar: str = ""
    help: str = ""
    secret: bool = False
    shown: Callable[[str], str] = str
    standard_variable: str = ""

    @property
    def variable(self) -> str:
        return self.standard_variable or f"FLOTILLA_{self.field.upper()}"

    @property
    def default(self) -> object:
        return self.value(Settings())

    @property
    def is_number(self) -> bool:
        return isinstance(self.default, int | float)

    @property
    def file_field(self) -> str:
        """The name in a settings file for a file that holds the secret."""
        return f"{self.field}_file"

    def value(self, settings: Settings) -> object:
        return getattr(settings.api if self.field in API_FIELDS else settings, self.field)

    def in_force(self, settings: Settings) -> object:
        """The value, or what may be shown of it."""
        value = self.value(settings)
        return value if value is None or isinstance(value, int | float) else self.shown(str(value))


SOURCES = (
    Source("name", values.name, "--name", "NAME", "name of this process, unique among its service"),
    Source("identity", values.text),
    Source("prefix", values.prefix, "--prefix", "WORD", "begins every NATS subject and Redis key"),
    Source(
        "nats_url", values.urls("nats", "tls"), "--nats", "URL",
        "the NATS server; with a password only by FLOTILLA_NATS_URL", secret=True, shown=values.masked,
    ),
    Source("nats_ca", values.file),
    Source("nats_cert", values.file),
    Source("nats_key", values.file),
    Source("nats_credentials", values.file),
    Source(
        "redis_url", values.url("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"), "--redis", "URL",
        "the Redis or Valkey server; with a password only by FLOTILLA_REDIS_URL", secret=True, shown=values.masked,
    ),
    Source(
        "server", values.url("http", "https"), "--server", "URL",
        "the API server, instead of a kubeconfig; its token only by FLOTILLA_TOKEN", shown=values.masked,
    ),
    Source("token", values.text, secret=True, shown=values.hidden),
    Source(
        "kubeconfig", values.file, "--kubeconfig", "FILE",
        "how to reach the API server (default: as a pod in the cluster)",
    ),
    Source("context", values.text, "--context", "NAME", "context of the kubeconfig"),
    Source("config", values.file, "--config", "FILE", "a KubeSchedulerConfiguration"),
    Source(
        "feature_gates", FeatureGates.parse, "--feature-gates", "GATES",
        "as kube-scheduler's, like A=true,B=false",
    ),
    Source("http_host", values.text),
    Source("http_port", values.whole_number(0, values.HIGHEST_PORT)),
    Source("http_scheme", values.OneOf(("auto", "http", "https"))),
    Source("http_cert", values.file),
    Source("http_key", values.file),
    Source(
        "round_size", values.whole_number(1), "--round-size", "N",
        "pods decided at once (default 1024); 1 decides exactly as kube-scheduler does",
    ),
    Source(
        "unschedulable_patience", values.whole_number(1), "--unschedulable-patience", "SECONDS",
        "until an unschedulable pod is retried without any event (default 300)",
    ),
    Source(
        "shard_count", values.whole_number(1), "--shards", "N",
        "shards of the nodes, at least the number of workers (default 64)",
    ),
    Source(
        "hints", values.OneOf(("none", HINTS_IN_EVENTS)), "--hints", "WHERE",
        "events: Events of pods that fit nowhere say what would help (default none)",
    ),
    Source("expected_workers", values.whole_number(0)),
    Source("seed", values.whole_number(0), "--seed", "N", "decides between equally good nodes (default 0)"),
    Source(
        "trace_ratio", values.share, "--trace-ratio", "SHARE", "of pods that are traced, from 0 to 1 (default 0.01)"
    ),
    Source(
        "otlp_endpoint", values.url("http", "https"), shown=values.masked,
        standard_variable="OTEL_EXPORTER_OTLP_ENDPOINT",
    ),
    Source("trace_url", values.url("http", "https"), shown=values.masked),
    Source(
        "log_format", values.OneOf(("auto", "json", "text")), "--log-format", "FORMAT",
        "auto, json or text (default auto: JSON in a container without a terminal, else text)",
    ),
    Source(
        "log_level", values.OneOf(("debug", "info", "warning", "error")), "--log-level", "LEVEL",
        "debug, info, warning or error (default info)",
    ),
)  # fmt: skip


class Layer:
    """The values of one kind of place, and what is wrong with them."""

    def __init__(self, kind: SourceKind) -> None:
        self.given: dict[str, Given] = {}
        self.problems: list[str] = []
        self._kind = kind

    def put(self, field: str, value: object, origin: str) -> None:
        self.given[field] = Given(value, self._kind, origin)

    def take(self, source: Source, text: str, origin: str) -> None:
        """Read the text into a value, or report why that fails."""
        try:
            self.put(source.field, source.read(text), origin)
        except InvalidFeatureGates as invalid:
            for problem in invalid.problems:
                self.refuse(origin, problem)
        except ValueError as error:
            self.refuse(origin, f"{error}, not {source.shown(text)!r}")

    def secret(self, path: str, origin: str) -> str:
        """The content of the file; empty, with a problem, where it cannot be read."""
        try:
            return Path(path).read_text().strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            gone = isinstance(error, FileNotFoundError) and origin == URL_FILE_VARIABLE
            hint = f"; if the flotilla up that printed this variable has ended, unset {origin}" if gone else ""
            self.refuse(origin, f"takes a file that can be read, not {path!r} ({reason}){hint}")
            return ""

    def refuse(self, origin: str, why: str) -> None:
        self.problems.append(f"{origin}: {why}")
