"""Settings from a file, and the precedence of sources."""

from pathlib import Path

import pytest

from shared.config.setting_sources import SOURCES, SourceKind
from shared.config.settings import ApiSettings, Settings
from shared.config.sources import InvalidSettings, all_given, environment_of, settings_from, without_settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "flotilla.yaml"


def complaints(file: Path, text: str, environment: dict[str, str] | None = None, **flags: object) -> list[str]:
    """With the name of the file left out."""
    file.write_text(text)
    with pytest.raises(InvalidSettings) as caught:
        settings_from(environment or {}, {"settings": str(file)} | flags)
    lines = caught.value.lines()
    assert not any("\n" in line for line in lines)
    assert str(caught.value) == "; ".join(lines)
    return [line.removeprefix(f"{file}: ") for line in lines]


@pytest.mark.parametrize("text", ["seed: 3\nhttp_port: 80\nnats_url: nats://h\ntrace_ratio: 1\nserver: http://a\n",
    '{"seed": 3, "http_port": "80", "nats_url": "nats://h", "trace_ratio": 1.0, "server": "http://a", "name": null}',
])  # fmt: skip
def test_settings_can_come_from_a_file(file: Path, text: str) -> None:
    file.write_text(text)
    expected = Settings(seed=3, http_port=80, nats_url="nats://h", trace_ratio=1.0, api=ApiSettings(server="http://a"))
    assert settings_from({}, {"settings": str(file)}) == settings_from({"FLOTILLA_SETTINGS": str(file)}) == expected


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "{}", "seed:\nname: ''\n"])
def test_a_settings_file_may_be_empty(file: Path, text: str) -> None:
    file.write_text(text)
    assert settings_from({"FLOTILLA_SETTINGS": str(file)}) == Settings()


def test_every_setting_can_be_in_the_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    texts = {
        "name": "a", "identity": "b", "prefix": "c", "nats_url": "nats://d", "redis_url": "redis://e",
        "server": "http://f", "token": "g", "context": "h", "http_host": "i", "http_scheme": "https", "otlp_endpoint": "http://j",
        "log_format": "text", "log_level": "debug", "feature_gates": "AllAlpha=false",
        "trace_url": "http://k", "hints": "events",
    }  # fmt: skip
    text = "".join(
        f"{source.field}: {texts.get(source.field) or (1 if source.is_number else 'x')}\n" for source in SOURCES
    )
    file.write_text(text)
    file.chmod(0o600)
    given = all_given({}, {"settings": str(file)})
    assert given.keys() == {source.field for source in SOURCES}
    assert {(each.kind, each.origin) for each in given.values()} == {
        (SourceKind.FILE, f"{file}: {field}") for field in given
    }


def test_flags_override_variables_and_variables_override_the_file(file: Path) -> None:
    file.write_text("seed: 1\nround_size: 2\nshard_count: 3\n")
    environment = {"FLOTILLA_SETTINGS": str(file), "FLOTILLA_SEED": "10", "FLOTILLA_ROUND_SIZE": "20"}
    given = all_given(environment, {"seed": "100"})
    assert {field: tuple(each) for field, each in given.items()} == {
        "seed": (100, SourceKind.FLAG, "--seed"),
        "round_size": (20, SourceKind.VARIABLE, "FLOTILLA_ROUND_SIZE"),
        "shard_count": (3, SourceKind.FILE, f"{file}: shard_count"),
    }


def test_the_settings_flag_overrides_the_variable(file: Path) -> None:
    file.write_text("seed: 1\n")
    assert settings_from({"FLOTILLA_SETTINGS": "/no/such"}, {"settings": str(file)}).seed == 1


@pytest.mark.parametrize("through", ["variable", "flag"])
def test_a_kubeconfig_overrides_the_files_server(file: Path, tmp_path: Path, through: str) -> None:
    file.write_text("server: http://a\n")
    other = str(tmp_path / "kubeconfig")
    Path(other).touch()
    environment = {"FLOTILLA_SETTINGS": str(file)} | ({"FLOTILLA_KUBECONFIG": other} if through == "variable" else {})
    settings = settings_from(environment, {"kubeconfig": other} if through == "flag" else {})
    assert settings.api == ApiSettings(kubeconfig=other)


def test_paths_are_relative_to_the_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "scheduler.yaml").touch()
    (tmp_path / "token").write_text("t\n")
    file.write_text("config: scheduler.yaml\ntoken_file: token\n")
    settings = settings_from({"FLOTILLA_SETTINGS": str(file)})
    assert settings.config == str(tmp_path / "scheduler.yaml")
    assert settings.api.token == "t"


def test_child_processes_get_the_files_values_and_not_the_file(file: Path) -> None:
    file.write_text("seed: 3\n")
    environment = {"FLOTILLA_SETTINGS": str(file), "FLOTILLA_SETTINGS_FILE": "x"}
    assert environment_of(settings_from(environment))["FLOTILLA_SEED"] == "3"
    assert without_settings(environment) == {}


# What is wrong


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("round_size: 0", "round_size: takes a whole number, at least 1, not '0'"),
        ("round_size: many", "round_size: takes a whole number, at least 1, not 'many'"),
        ("round_size: [1]", "round_size: takes a number, not [1]"),
        ("round_size: true", "round_size: takes a number, not true"),
        ("prefix: 7", "prefix: takes a string, in quotes if it looks like something else, not 7"),
        ("log_level: no", "log_level: takes a string, in quotes if it looks like something else, not false"),
        ("token: 123", "token: takes a string, in quotes if it looks like something else, not ***"),
        ("config: nowhere", "config: takes a file that can be read (No such file or directory), not "),
        ("token_file: nowhere", "token_file: takes a file that can be read, not "),
        ("roundsize: 5", "roundsize: unknown setting (did you mean round_size?); allowed are config, "),
        ("shards: 5", "shards: unknown setting (did you mean shard_count?); allowed are config, context, "),
        ("round-size: 5", "round-size: unknown setting (did you mean round_size?)"),
        ("xyz: 5", "xyz: unknown setting; allowed are "),
        ("name_file: x", "name_file: unknown setting"),
        ("seed: 1\nseed: 2", "line 2: key 'seed' is in the same map twice"),
        ('{"seed": 1, "seed": 2}', "seed: is given twice"),
        ("- seed", "must be a map of settings, like `round_size: 256`, not [\"seed\"]"),
        ("seed: [", "is not YAML: line "),
        ("kind: KubeSchedulerConfiguration", "is a scheduler configuration, which --config takes, not settings"),
        ("context: c", "context: 'c' is a context of a kubeconfig; say --kubeconfig FILE as well"),
    ],
)  # fmt: skip
def test_an_error_names_file_key_value_and_what_is_allowed(file: Path, text: str, complaint: str) -> None:
    (line,) = complaints(file, text)
    assert line.startswith(complaint)


@pytest.mark.parametrize("flags", [{}, {"settings": "/no/such"}])
def test_a_missing_file_is_reported(flags: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings) as caught:
        settings_from({"FLOTILLA_SETTINGS": "/no/such"}, flags)
    origin = "--settings" if flags else "FLOTILLA_SETTINGS"
    assert str(caught.value) == f"{origin}: takes a file that can be read (No such file or directory), not '/no/such'"


def test_all_errors_are_reported_at_once(file: Path) -> None:
    text, environment = "seed: x\nprefix: a..b\n", {"FLOTILLA_SEED": "y", "FLOTILLA_TOKEN_FILE": "/no"}
    lines = complaints(file, text, environment, seed="z", http="80", nats_url="nats://u:p@h")
    assert [line.split(":")[0] for line in lines] == [
        "seed", "prefix", "FLOTILLA_TOKEN_FILE", "FLOTILLA_SEED", "--nats", "--seed", "--http",
    ]  # fmt: skip


# Secrets


@pytest.mark.parametrize("text", ["token: hunter2", "nats_url: nats://u:hunter2@h", "redis_url: redis://:hunter2@h"])
def test_a_secret_is_allowed_in_a_private_file(file: Path, text: str) -> None:
    field = text.partition(":")[0]
    file.touch()
    file.chmod(0o644)
    (line,) = complaints(file, text)
    assert line == (
        f"{field}: holds a secret, and everybody may read the file (mode 0644); "
        f"remove that permission (chmod o-r), or set {field}_file"
    )
    file.chmod(0o640)
    settings = settings_from({}, {"settings": str(file)})
    assert "hunter2" in f"{settings.api.token} {settings.nats_url} {settings.redis_url}"


def test_a_url_without_a_password_is_not_a_secret(file: Path) -> None:
    file.write_text("nats_url: nats://h:1\nredis_url: redis://h:2/0\n")
    file.chmod(0o644)
    assert settings_from({}, {"settings": str(file)}).nats_url == "nats://h:1"


def test_a_secret_has_only_one_source(file: Path, tmp_path: Path) -> None:
    (tmp_path / "url").write_text("nats://u:hunter2@h")
    file.write_text("nats_url: nats://h\nnats_url_file: url\n")
    (line,) = complaints(file, "nats_url_file: url\nnats_url: nats://h\n")
    assert line == "nats_url_file: cannot be combined with nats_url"


def test_the_content_of_a_secret_file_is_not_printed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "url").write_text("http://u:hunter2@h?password=hunter2")
    (line,) = complaints(file, "nats_url_file: url\n")
    assert line == "nats_url_file: takes a URL like nats://HOST or tls://HOST, not 'http://***@h?***'"
