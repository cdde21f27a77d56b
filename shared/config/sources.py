"""Settings from command line flags, the environment and a file: a flag wins over a variable, a variable over the file.

Secrets come from the environment or from a file that is named there (`FLOTILLA_TOKEN_FILE`), never from a flag: a
command line can be read by everybody on the machine.
"""

import argparse
from collections.abc import Mapping
from dataclasses import fields

from shared.config import values
from shared.config.settings import ApiSettings, Settings
from shared.config.source import Given, InvalidSettings, Kind, Layer, Source

SOURCES = (
    Source("name", "FLOTILLA_NAME", values.name, "--name", "NAME", "what this process is called among its like"),
    Source("identity", "FLOTILLA_IDENTITY", values.text),
    Source("prefix", "FLOTILLA_PREFIX", values.prefix, "--prefix", "WORD", "begins every NATS subject and Redis key"),
    Source(
        "nats_url", "FLOTILLA_NATS_URL", values.urls("nats", "tls"), "--nats", "URL",
        "the NATS server; with a password only by FLOTILLA_NATS_URL", secret=True, shown=values.masked,
    ),
    Source("nats_ca", "FLOTILLA_NATS_CA", values.file),
    Source("nats_cert", "FLOTILLA_NATS_CERT", values.file),
    Source("nats_key", "FLOTILLA_NATS_KEY", values.file),
    Source("nats_credentials", "FLOTILLA_NATS_CREDENTIALS", values.file),
    Source(
        "redis_url", "FLOTILLA_REDIS_URL",
        values.url("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"), "--redis", "URL",
        "the Redis or Valkey server; with a password only by FLOTILLA_REDIS_URL", secret=True, shown=values.masked,
    ),
    Source(
        "server", "FLOTILLA_SERVER", values.url("http", "https"), "--server", "URL",
        "the API server, instead of a kubeconfig; its token only by FLOTILLA_TOKEN", shown=values.masked,
    ),
    Source("token", "FLOTILLA_TOKEN", values.text, secret=True, shown=values.hidden),
    Source(
        "kubeconfig", "FLOTILLA_KUBECONFIG", values.file, "--kubeconfig", "FILE",
        "how to reach the API server (default: as a pod in the cluster)",
    ),
    Source("context", "FLOTILLA_CONTEXT", values.text, "--context", "NAME", "of the kubeconfig"),
    Source("config", "FLOTILLA_CONFIG", values.file, "--config", "FILE", "a KubeSchedulerConfiguration"),
    Source("http_host", "FLOTILLA_HTTP_HOST", values.text),
    Source("http_port", "FLOTILLA_HTTP_PORT", values.whole_number(0, values.HIGHEST_PORT)),
    Source("http_scheme", "FLOTILLA_HTTP_SCHEME", values.OneOf(("auto", "http", "https"))),
    Source("http_cert", "FLOTILLA_HTTP_CERT", values.file),
    Source("http_key", "FLOTILLA_HTTP_KEY", values.file),
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
    Source("expected_workers", "FLOTILLA_EXPECTED_WORKERS", values.whole_number(0)),
    Source(
        "seed", "FLOTILLA_SEED", values.whole_number(0), "--seed", "N", "decides between equally good nodes (default 0)"
    ),
    Source(
        "trace_ratio", "FLOTILLA_TRACE_RATIO", values.share, "--trace-ratio", "SHARE",
        "of pods whose way is traced, from 0 to 1 (default 0.01)",
    ),
    Source("otlp_endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT", values.url("http", "https"), shown=values.masked),
    Source(
        "log_format", "FLOTILLA_LOG_FORMAT", values.OneOf(("auto", "json", "text")), "--log-format", "FORMAT",
        "auto, json or text (default auto: text on a terminal)",
    ),
    Source(
        "log_level", "FLOTILLA_LOG_LEVEL", values.OneOf(("debug", "info", "warning", "error")), "--log-level", "LEVEL",
        "debug, info, warning or error (default info)",
    ),
)  # fmt: skip

HTTP_FLAG = "--http"
SETTINGS_FLAG = "--settings"
SETTINGS_VARIABLE = "FLOTILLA_SETTINGS"
"""Both name a file with settings; it cannot name another."""
_API_FIELDS = frozenset(field.name for field in fields(ApiSettings))


def add_flags(command: argparse.ArgumentParser, without: frozenset[str] = frozenset()) -> None:
    """The flags of all settings but those named (by field); what is given for them is read by `settings_from`."""
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
    """Defaults for what is not given; see `all_given`."""
    return settings_of(read_values(environment, flags or {}))


def read_values(environment: Mapping[str, str], flags: Mapping[str, object]) -> dict[str, object]:
    """What is given, by field; see `all_given`."""
    return {field: given.value for field, given in all_given(environment, flags).items()}


def all_given(environment: Mapping[str, str], flags: Mapping[str, object]) -> dict[str, Given]:
    """What is given, by field, each as the place that wins has it.

    Raises InvalidSettings with everything that is wrong, a line each: where it stands, the value, and what is allowed.
    A variable that is empty counts as not set. `flags`: texts by field, as argparse keeps what `add_flags` added; what
    is none or no setting is passed over.
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
    ours = {source.variable for source in SOURCES} | {SETTINGS_VARIABLE}
    return {key: value for key, value in environment.items() if key.removesuffix("_FILE") not in ours}


def _file_layer(environment: Mapping[str, str], flags: Mapping[str, object]) -> Layer:
    path, origin = flags.get("settings"), SETTINGS_FLAG
    if path is None:
        path, origin = environment.get(SETTINGS_VARIABLE), SETTINGS_VARIABLE
    if not path:
        return Layer(Kind.FILE)
    from shared.config.settingsfile import read_settings_file  # YAML takes a while to be loaded

    return read_settings_file(str(path), origin, SOURCES)


def _variable_layer(environment: Mapping[str, str]) -> Layer:
    layer = Layer(Kind.VARIABLE)
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
    layer = Layer(Kind.FLAG)
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
