"""Settings from the environment and from flags."""

import argparse
from pathlib import Path

import pytest

from shared.config.feature_gates import FeatureGates
from shared.config.setting_sources import SOURCES
from shared.config.settings import ApiSettings, Settings
from shared.config.sources import add_flags, environment_of, settings_from, unknown_variables, without_settings
from shared.errors import UserError


def flags(*arguments: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return vars(parser.parse_args(arguments))


def test_settings_have_defaults() -> None:
    assert settings_from({}, flags()) == Settings()


def test_an_empty_variable_is_ignored() -> None:
    assert settings_from({"FLOTILLA_ROUND_SIZE": "", "FLOTILLA_NAME": ""}) == Settings()


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("FLOTILLA_NAME", "worker-7", Settings(name="worker-7")),
        ("FLOTILLA_PREFIX", "blue-1", Settings(prefix="blue-1")),
        ("FLOTILLA_NATS_URL", "tls://u:p@nats:4222", Settings(nats_url="tls://u:p@nats:4222")),
        ("FLOTILLA_REDIS_URL", "unix:///run/redis.sock", Settings(redis_url="unix:///run/redis.sock")),
        ("FLOTILLA_NATS_URL", "nats://a:1,tls://u:p@b", Settings(nats_url="nats://a:1,tls://u:p@b")),
        (
            "FLOTILLA_REDIS_URL",
            "rediss+sentinel://u:p@[::1]:1,b,c:3/main/0?sentinel_password=q",
            Settings(redis_url="rediss+sentinel://u:p@[::1]:1,b,c:3/main/0?sentinel_password=q"),
        ),
        ("FLOTILLA_SERVER", "https://[::1]:6443", Settings(api=ApiSettings(server="https://[::1]:6443"))),
        ("FLOTILLA_TOKEN", "secret", Settings(api=ApiSettings(token="secret"))),
        ("FLOTILLA_HTTP_HOST", "0.0.0.0", Settings(http_host="0.0.0.0")),
        ("FLOTILLA_HTTP_PORT", "8080", Settings(http_port=8080)),
        ("FLOTILLA_ROUND_SIZE", "1", Settings(round_size=1)),
        ("FLOTILLA_SHARD_COUNT", "7", Settings(shard_count=7)),
        ("FLOTILLA_SEED", "42", Settings(seed=42)),
        ("FLOTILLA_TRACE_RATIO", "1", Settings(trace_ratio=1.0)),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://jaeger:4318", Settings(otlp_endpoint="http://jaeger:4318")),
        ("FLOTILLA_LOG_FORMAT", "json", Settings(log_format="json")),
        ("FLOTILLA_LOG_LEVEL", "debug", Settings(log_level="debug")),
    ],
)
def test_each_setting_can_be_an_environment_variable(variable: str, text: str, expected: Settings) -> None:
    assert settings_from({variable: text}) == expected


def test_flags_override_the_environment() -> None:
    environment = {"FLOTILLA_ROUND_SIZE": "5", "FLOTILLA_SEED": "3", "FLOTILLA_HTTP_PORT": "1"}
    settings = settings_from(environment, flags("--round-size", "9", "--http", "[::1]:80", "--log-level", "error"))
    assert settings == Settings(round_size=9, seed=3, http_host="::1", http_port=80, log_level="error")


def test_a_kubeconfig_flag_overrides_the_servers_variable(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.touch()
    settings = settings_from({"FLOTILLA_SERVER": "http://a"}, flags("--kubeconfig", str(path), "--context", "c"))
    assert settings.api == ApiSettings(kubeconfig=str(path), context="c")


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    assert settings_from({"FLOTILLA_TOKEN_FILE": str(tmp_path / "token")}).api.token == "secret"


@pytest.mark.parametrize(
    ("environment", "arguments", "complaint"),
    [
        ({"FLOTILLA_ROUND_SIZE": "0"}, [], "FLOTILLA_ROUND_SIZE: takes a whole number, at least 1, not '0'"),
        ({"FLOTILLA_HTTP_PORT": "65536"}, [], "FLOTILLA_HTTP_PORT: takes a whole number from 0 to 65535, not '65536'"),
        ({"FLOTILLA_SEED": "x"}, ["--seed", "y"], "FLOTILLA_SEED: takes a whole number, at least 0, not 'x'"),
        ({}, ["--seed", "-1"], "--seed: takes a whole number, at least 0, not '-1'"),
        ({}, ["--trace-ratio", "2"], "--trace-ratio: takes a number from 0 to 1, not '2'"),
        ({}, ["--trace-ratio", "nan"], "--trace-ratio: takes a number from 0 to 1, not 'nan'"),
        ({}, ["--log-format", "xml"], "--log-format: takes one of auto, json, text, not 'xml'"),
        ({}, ["--log-level", "LOUD"], "--log-level: takes one of debug, info, warning, error, not 'LOUD'"),
        ({}, ["--http", "8080"], "--http: takes HOST:PORT, not '8080'"),
        ({}, ["--http", "::1:80"], "--http: takes HOST:PORT, not '::1:80'"),
        ({}, ["--http", "h:70000"], "--http: takes HOST:PORT with a port from 0 to 65535, not 'h:70000'"),
        ({}, ["--name", "a.b"], "--name: takes 1 to 63 letters, digits, '-' and '_', a letter or digit first, not"),
        ({}, ["--prefix", "a.b"], "--prefix: takes 1 to 63 lowercase letters, digits and '-', a letter or digit first"),
        ({}, ["--prefix", "Blue_1"], "--prefix: takes 1 to 63 lowercase letters, digits and '-', a letter or digit"),
        ({}, ["--prefix", "blue-"], "--prefix: takes 1 to 63 lowercase letters, digits and '-', a letter or digit"),
        ({}, ["--nats", "localhost:4222"], "--nats: takes a URL like nats://HOST or tls://HOST, not 'localhost:4222'"),
        ({}, ["--nats", "nats://h:x"], "--nats: takes a URL like nats://HOST or tls://HOST, not 'nats://h:x'"),
        ({}, ["--redis", "unix://"], "--redis: takes a URL like redis://HOST or rediss://HOST or unix://PATH or "),
        ({}, ["--nats", "nats://a:1,nats://"], "--nats: takes a URL like nats://HOST or tls://HOST, not 'nats://a:1,"),
        ({}, ["--redis", "redis+sentinel://a:1,b:x/m"], "--redis: takes a URL like redis://HOST or rediss://HOST or"),
        ({}, ["--redis", "redis://a:1,b:2/0"], "--redis: takes a URL like redis://HOST or rediss://HOST or"),
        ({}, ["--server", "https://"], "--server: takes a URL like http://HOST or https://HOST, not 'https://'"),
        ({}, ["--config", "/no/such"], "--config: takes a file that can be read (No such file or directory), not"),
        ({}, ["--context", "c"], "--context: 'c' is a context of a kubeconfig; say --kubeconfig FILE as well"),
        ({"FLOTILLA_TOKEN_FILE": "/no"}, [], "FLOTILLA_TOKEN_FILE: takes a file that can be read, not '/no' (No such"),
    ],
)
def test_an_invalid_value_names_its_source_and_what_is_allowed(
    environment: dict[str, str], arguments: list[str], complaint: str
) -> None:
    with pytest.raises(UserError) as caught:
        settings_from(environment, flags(*arguments))
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "arguments", "complaint"),
    [
        ({"FLOTILLA_NATS_URL": "http://u:hunter2@h"}, [], "not 'http://***@h'"),
        ({"FLOTILLA_REDIS_URL": "u:hunter2@h"}, [], "not '***@h'"),
        ({}, ["--nats", "nats://u:hunter2@h"], "set FLOTILLA_NATS_URL instead"),
        ({}, ["--redis", "redis://:hunter2@h"], "set FLOTILLA_REDIS_URL instead"),
        ({}, ["--nats", "nats://a,nats://u:hunter2@h"], "set FLOTILLA_NATS_URL instead"),
        ({}, ["--redis", "redis+sentinel://a,b/m?sentinel_pass%77ord=hunter2"], "'redis+sentinel://a,b/m?***' holds a"),
    ],
)
def test_passwords_are_masked_and_not_accepted_in_flags(
    environment: dict[str, str], arguments: list[str], complaint: str
) -> None:
    with pytest.raises(UserError) as caught:
        settings_from(environment, flags(*arguments))
    assert complaint in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_settings_round_trip_through_an_environment(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    Path(path).touch()
    settings = Settings(
        name="a",
        prefix="b",
        nats_url="nats://u:p@h:1",
        redis_url="unix:///c",
        api=ApiSettings(server="http://d", token="e"),
        http_host="::1",
        http_port=2,
        config=path,
        feature_gates=FeatureGates.parse("VolumeLimitScaling=false,AllAlpha=0"),
        round_size=3,
        unschedulable_patience=6,
        hints="events",
        shard_count=4,
        seed=5,
        trace_ratio=0.5,
        otlp_endpoint="http://f",
        log_format="text",
        log_level="debug",
    )
    assert settings_from(environment_of(settings)) == settings


def test_settings_can_be_removed_from_an_environment() -> None:
    ours = {source.variable: "x" for source in SOURCES} | {"FLOTILLA_TOKEN_FILE": "x"}
    assert without_settings(ours | {"PATH": "p", "FLOTILLA_VALIDATE": "1"}) == {"PATH": "p", "FLOTILLA_VALIDATE": "1"}


def test_secrets_are_not_in_the_representation() -> None:
    settings = Settings(nats_url="nats://u:hunter2@h", redis_url="redis://:hunter2@h", api=ApiSettings(token="hunter2"))
    assert "hunter2" not in repr(settings)


def test_unknown_variables_are_named_with_what_was_meant() -> None:
    of_services = {
        "FLOTILLA_NATS_SERVICE_HOST": "10.0.0.1",
        "FLOTILLA_NATS_SERVICE_PORT": "4222",
        "FLOTILLA_NATS_SERVICE_PORT_CLIENT": "4222",
        "FLOTILLA_NATS_PORT": "tcp://10.0.0.1:4222",
        "FLOTILLA_NATS_PORT_4222_TCP": "tcp://10.0.0.1:4222",
        "FLOTILLA_NATS_PORT_4222_TCP_ADDR": "10.0.0.1",
    }
    known = {"FLOTILLA_SEED": "1", "FLOTILLA_TOKEN_FILE": "x", "FLOTILLA_SETTINGS": "", "FLOTILLA_VALIDATE": "1"}
    assert unknown_variables(of_services | known | {"PATH": "p"}) == []
    wrong = {"FLOTILLA_NATS_ULR": "nats://x", "FLOTILLA_HTTP_PROT": "1", "FLOTILLA_Q": "", "FLOTILLA_TOKN_FILE": "x"}
    assert unknown_variables(wrong | known) == [
        "FLOTILLA_HTTP_PROT: ignored, because there is no such setting (did you mean FLOTILLA_HTTP_PORT?)",
        "FLOTILLA_NATS_ULR: ignored, because there is no such setting (did you mean FLOTILLA_NATS_URL?)",
        "FLOTILLA_Q: ignored, because there is no such setting",
        "FLOTILLA_TOKN_FILE: ignored, because there is no such setting (did you mean FLOTILLA_TOKEN_FILE?)",
    ]
