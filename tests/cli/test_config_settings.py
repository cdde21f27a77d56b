"""flotilla config settings: every setting, its value, and where it comes from."""

import json
import os
from pathlib import Path

import pytest

from shared.config.document import parse_document
from shared.config.setting_sources import SOURCES
from shared.config.sources import without_settings
from tools.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in os.environ.keys() - without_settings(os.environ).keys():
        monkeypatch.delenv(variable)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(("config", "settings", *arguments)) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


def test_each_setting_is_a_line_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flotilla.yaml"
    file.write_text("shard_count: 8\n")
    monkeypatch.setenv("FLOTILLA_SETTINGS", str(file))
    monkeypatch.setenv("FLOTILLA_ROUND_SIZE", "16")
    lines = [line.split() for line in printed(capsys, "--seed", "4", "--http", "[::1]:80").splitlines()]
    assert [line[0] for line in lines] == ["SETTING", *(source.field for source in SOURCES)]
    told = {line[0]: line[1:] for line in lines}
    assert told["shard_count"] == ["8", "file", f"{file}:", "shard_count"]
    assert told["round_size"] == ["16", "variable", "FLOTILLA_ROUND_SIZE"]
    assert told["seed"] == ["4", "flag", "--seed"]
    assert (told["http_host"], told["http_port"]) == (["::1", "flag", "--http"], ["80", "flag", "--http"])
    assert told["log_level"] == ["info", "default"]
    assert told["kubeconfig"] == ["-", "default"]


def test_json_and_yaml_have_the_same_content(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOTILLA_SEED", "4")
    told = json.loads(printed(capsys, "-o", "json"))
    assert told["seed"] == {"value": 4, "from": "variable", "origin": "FLOTILLA_SEED"}
    assert told["config"] == {"value": None, "from": "default", "origin": ""}
    assert parse_document(printed(capsys, "-o", "yaml")).value == told


@pytest.mark.parametrize("output", ["text", "json", "yaml"])
def test_secrets_are_masked(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("hunter2")
    monkeypatch.setenv("FLOTILLA_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("FLOTILLA_NATS_URL", "nats://user:hunter2@nats:4222")
    monkeypatch.setenv("FLOTILLA_REDIS_URL", "redis://redis:6379/0?password=hunter2")
    monkeypatch.setenv("FLOTILLA_SERVER", "https://user:hunter2@api")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://user:hunter2@jaeger:4318/v1")
    said = printed(capsys, "-o", output)
    assert "hunter2" not in said
    for shown in ("nats://***@nats:4222", "redis://redis:6379/0?***", "https://***@api", "https://***@jaeger:4318/v1"):
        assert shown in said
    assert "FLOTILLA_TOKEN_FILE" in said


def test_the_settings_table_matches_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    table = printed(capsys, "-o", "markdown")
    assert len(table.splitlines()) == len(SOURCES) + 2
    assert table in (ROOT / "docs" / "running.md").read_text()


def test_invalid_settings_are_one_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOTILLA_SEED", "x")
    monkeypatch.setenv("FLOTILLA_LOG_LEVEL", "loud")
    assert main(("config", "settings", "--trace-ratio", "7")) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "flotilla: FLOTILLA_SEED: takes a whole number, at least 0, not 'x'",
        "flotilla: FLOTILLA_LOG_LEVEL: takes one of debug, info, warning, error, not 'loud'",
        "flotilla: --trace-ratio: takes a number from 0 to 1, not '7'",
    ]
