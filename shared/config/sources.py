"""Settings from the environment and from command line flags; flags win.

Secrets come from the environment or from a file that it names (`FLOTILLA_TOKEN_FILE`), never from a flag: a command
line can be read by everybody on the machine.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.parse import urlsplit

from shared.config import values
from shared.config.settings import ApiSettings, Settings
from shared.errors import UserError


@dataclass(frozen=True, slots=True)
class Source:
    """Where a field's value may come from. `secret`: its value is not shown, and may stand in a file."""

    field: str
    variable: str
    read: values.Reader
    flag: str = ""
    metavar: str = ""
    help: str = ""
    secret: bool = False


SOURCES = (
    Source("name", "FLOTILLA_NAME", values.name, "--name", "NAME", "what this process is called among its like"),
    Source("identity", "FLOTILLA_IDENTITY", values.text),
    Source("prefix", "FLOTILLA_PREFIX", values.prefix, "--prefix", "WORD", "begins every NATS subject and Redis key"),
    Source(
        "nats_url", "FLOTILLA_NATS_URL", values.url("nats", "tls"), "--nats", "URL",
        "the NATS server; with a password only by FLOTILLA_NATS_URL", secret=True,
    ),
    Source("nats_ca", "FLOTILLA_NATS_CA", values.file),
    Source("nats_cert", "FLOTILLA_NATS_CERT", values.file),
    Source("nats_key", "FLOTILLA_NATS_KEY", values.file),
    Source("nats_credentials", "FLOTILLA_NATS_CREDENTIALS", values.file),
    Source(
        "redis_url", "FLOTILLA_REDIS_URL", values.url("redis", "rediss", "unix"), "--redis", "URL",
        "the Redis or Valkey server; with a password only by FLOTILLA_REDIS_URL", secret=True,
    ),
    Source(
        "server", "FLOTILLA_SERVER", values.url("http", "https"), "--server", "URL",
        "the API server, instead of a kubeconfig; its token only by FLOTILLA_TOKEN",
    ),
    Source("token", "FLOTILLA_TOKEN", values.text, secret=True),
    Source(
        "kubeconfig", "FLOTILLA_KUBECONFIG", values.file, "--kubeconfig", "FILE",
        "how to reach the API server (default: as a pod in the cluster)",
    ),
    Source("context", "FLOTILLA_CONTEXT", values.text, "--context", "NAME", "of the kubeconfig"),
    Source("config", "FLOTILLA_CONFIG", values.file, "--config", "FILE", "a KubeSchedulerConfiguration"),
    Source("http_host", "FLOTILLA_HTTP_HOST", values.text),
    Source("http_port", "FLOTILLA_HTTP_PORT", values.whole_number(0, values.HIGHEST_PORT)),
    Source(
        "round_size", "FLOTILLA_ROUND_SIZE", values.whole_number(1), "--round-size", "N",
        "pods decided at once (default 256); 1 decides exactly as kube-scheduler does",
    ),
    Source(
        "unschedulable_patience", "FLOTILLA_UNSCHEDULABLE_PATIENCE", values.whole_number(1), "--unschedulable-patience",
        "SECONDS", "until an unschedulable pod is tried again though nothing has happened (default 300)",
    ),
    Source(
        "shard_count", "FLOTILLA_SHARD_COUNT", values.whole_number(1), "--shards", "N",
        "parts that the nodes are divided into, at least the number of workers (default 64)",
    ),
    Source(
        "seed", "FLOTILLA_SEED", values.whole_number(0), "--seed", "N", "decides between equally good nodes (default 0)"
    ),
    Source(
        "trace_ratio", "FLOTILLA_TRACE_RATIO", values.share, "--trace-ratio", "SHARE",
        "of pods whose way is traced, from 0 to 1 (default 0.01)",
    ),
    Source("otlp_endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT", values.url("http", "https")),
    Source(
        "log_format", "FLOTILLA_LOG_FORMAT", values.one_of("auto", "json", "text"), "--log-format", "FORMAT",
        "auto, json or text (default auto: text on a terminal)",
    ),
    Source(
        "log_level", "FLOTILLA_LOG_LEVEL", values.one_of("debug", "info", "warning", "error"), "--log-level", "LEVEL",
        "debug, info, warning or error (default info)",
    ),
)  # fmt: skip

HTTP_FLAG = "--http"
_API_FIELDS = frozenset(field.name for field in fields(ApiSettings))


def add_flags(command: argparse.ArgumentParser, without: frozenset[str] = frozenset()) -> None:
    """The flags of all settings but those named (by field); what is given for them is read by `settings_from`."""
    group = command.add_argument_group("settings")
    for source in SOURCES:
        if source.flag and source.field not in without:
            group.add_argument(source.flag, dest=source.field, metavar=source.metavar, help=source.help)
    if "http" not in without:
        text = "where /healthz, /readyz and /metrics are served (default 127.0.0.1:0, any free port)"
        group.add_argument(HTTP_FLAG, dest="http", metavar="HOST:PORT", help=text)


def settings_from(environment: Mapping[str, str], flags: Mapping[str, object] | None = None) -> Settings:
    """Defaults for what is not given; see `read_values`."""
    return settings_of(read_values(environment, flags or {}))


def read_values(environment: Mapping[str, str], flags: Mapping[str, object]) -> dict[str, object]:
    """What is given, by field. A UserError is one line: the variable or flag, the value, and what is allowed.

    A variable that is empty counts as not set. `flags`: texts by field, as argparse keeps what `add_flags` added; what
    is none or no setting is passed over.
    """
    given = _from_environment(environment)
    chosen = _from_flags(flags)
    if chosen.keys() & {"kubeconfig", "context"} and "server" not in chosen:
        given.pop("server", None)
    given |= chosen
    if given.get("context") and not given.get("kubeconfig"):
        raise UserError(f"--context: {given['context']!r} is a context of a kubeconfig; say --kubeconfig FILE as well")
    return given


def settings_of(given: Mapping[str, object]) -> Settings:
    api = {key: value for key, value in given.items() if key in _API_FIELDS}
    rest = {key: value for key, value in given.items() if key not in _API_FIELDS}
    return Settings(api=ApiSettings(**api), **rest)  # type: ignore[arg-type]


def environment_of(settings: Settings) -> dict[str, str]:
    """The variables that make these settings, for a process to be started."""
    found: dict[str, str] = {}
    for source in SOURCES:
        value = getattr(settings.api if source.field in _API_FIELDS else settings, source.field)
        if value not in (None, ""):
            found[source.variable] = str(value)
    return found


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment as it is where nobody has set anything for Flotilla."""
    ours = {source.variable for source in SOURCES}
    return {key: value for key, value in environment.items() if key.removesuffix("_FILE") not in ours}


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for source in SOURCES:
        value = environment.get(source.variable, "")
        if not value and source.secret:
            value = _secret_in_file(f"{source.variable}_FILE", environment)
        if value:
            found[source.field] = _read(source.variable, source, value)
    return found


def _from_flags(flags: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for source in SOURCES:
        value = flags.get(source.field)
        if not source.flag or value is None:
            continue
        if source.secret and _holds_password(str(value)):
            raise UserError(
                f"{source.flag}: {values.masked(str(value))!r} holds a password, which everybody on this machine "
                f"could read in a command line; set {source.variable} instead"
            )
        found[source.field] = _read(source.flag, source, str(value))
    if flags.get("http") is not None:
        try:
            found["http_host"], found["http_port"] = values.address(str(flags["http"]))
        except ValueError as error:
            raise UserError(f"{HTTP_FLAG}: {error}, not {flags['http']!r}") from None
    return found


def _read(origin: str, source: Source, value: str) -> object:
    try:
        return source.read(value)
    except ValueError as error:
        shown = values.masked(value) if source.secret else value
        raise UserError(f"{origin}: {error}, not {shown!r}") from None


def _secret_in_file(variable: str, environment: Mapping[str, str]) -> str:
    path = environment.get(variable, "")
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"{variable}: takes a file that can be read, not {path!r} ({reason})") from error


def _holds_password(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.password is not None or "@" in parts.netloc
    except ValueError:
        return "@" in value
