"""The options of flotilla up, from its command line, its environment and a settings file."""

from pathlib import Path

import pytest

from shared.config.sources import all_given
from shared.errors import UserError
from tools.cli.main import parser
from tools.cli.up import address_of, options_of, warnings_about


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://u:hunter2@h:1", "h:1"),
        ("nats://a:1,nats://b:2", "a:1,nats://b:2"),
        ("nats://u:hun,ter2@h", "h"),
        ("unix:///run/redis.sock?password=hunter2", "/run/redis.sock"),
        ("redis+sentinel://u:hunter2@a:1,b:2/main?sentinel_password=hunter2", "a:1,b:2/main"),
    ],
)
def test_addresses_are_printed_without_secrets(url: str, shown: str) -> None:
    assert address_of(url) == shown


def test_a_settings_file_names_existing_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "flotilla.yaml"
    file.write_text("nats_url: nats://h:1\nserver: http://a\nlog_format: text\nshard_count: 8\n")
    for variable in ("FLOTILLA_NATS_URL", "FLOTILLA_REDIS_URL", "FLOTILLA_SERVER"):
        monkeypatch.delenv(variable, raising=False)
    options = options_of(parser("up").parse_args(["up", "--settings", str(file), "--workers", "3", "--shards", "9"]))
    assert (options.nats_url, options.redis_url) == ("nats://h:1", None)
    assert options.api is not None and options.api.server == "http://a"
    assert (options.workers, options.settings.shard_count, options.as_json) == (3, 9, False)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--nodes", "3", "--server", "http://a"], "only for the simulated cluster"),
        (["--nodes", "5001"], "at most 5000, not 5001"),
    ],
)
def test_nodes_are_made_up_in_a_simulated_cluster_only(arguments: list[str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        options_of(parser("up").parse_args(["up", *arguments]))


def test_the_number_of_nodes_reaches_the_pipeline() -> None:
    assert options_of(parser("up").parse_args(["up", "--nodes", "20"])).simulated_nodes == 20


@pytest.mark.parametrize(
    ("container", "given", "as_json"),
    [
        (True, [], True),
        (False, [], False),
        (True, ["--log-format", "text"], False),
        (False, ["--log-format", "json"], True),
    ],
)
def test_logs_are_json_in_a_container_or_when_asked(
    container: bool, given: list[str], as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.telemetry.logs.in_container", lambda: container)
    options = options_of(parser("up").parse_args(["up", *given]))
    assert (options.as_json, options.live, options.colour) == (as_json, False, False)


def test_misspelt_variables_and_ignored_settings_are_named() -> None:
    given = all_given({"FLOTILLA_HTTP_PORT": "8080"}, {})
    assert warnings_about(given, {"FLOTILLA_NATS_ULR": "x"}) == [
        "FLOTILLA_NATS_ULR: ignored, because there is no such setting (did you mean FLOTILLA_NATS_URL?)",
        "FLOTILLA_HTTP_PORT: ignored, because services of flotilla up serve HTTP on free ports of 127.0.0.1",
    ]
