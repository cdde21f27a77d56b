"""The flotilla command: its output and exit codes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tools.cli.main import COMMANDS, main
from tools.cli.run import SERVICES


def ended(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "flotilla: the following arguments are required: COMMAND (see flotilla --help)"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["demo", "--workers", "0"], "flotilla demo: argument --workers: must be at least 1, not 0"),
        (["demo", "--round-size", "0"], "argument --round-size: must be at least 1, not 0"),
        (["demo", "--pods", "many"], "argument --pods: must be a whole number, not 'many'"),
        (["statsu"], "'version') (did you mean status?) (see flotilla --help)"),
        (["demo", "--config", "x"], "flotilla demo: unrecognized arguments: --config x (see flotilla demo --help)"),
        (
            ["queue", "--grup-by=reason"],
            "flotilla queue: unrecognized arguments: --grup-by=reason (did you mean --group-by?) (see flotilla queue",
        ),
        (["demo", "--nodes", "2", "--pods", "121"], "flotilla: --pods: must be at most 60 per node, 120 here, not 121"),
        (["demo", "--workers", "65"], "flotilla: 65 workers cannot share 64 shards: each needs at least one"),
        (
            ["up", "--workers", "3", "--shards", "2"],
            "flotilla: 3 workers cannot share 2 shards: each needs at least one",
        ),
        (["up", "--binders", "-1"], "argument --binders: must be at least 1, not -1"),
        (["up", "--kubeconfig", "/no/such"], "flotilla: --kubeconfig: takes a file that can be read (No such"),
        (
            ["up", "--in-cluster", "--server", "http://a"],
            "--in-cluster: cannot be combined with --server or --kubeconfig",
        ),
        (["up", "--nats", "nats://u:secret@h"], "set FLOTILLA_NATS_URL instead"),
        (["run"], "flotilla run: the following arguments are required: SERVICE"),
        (["run", "nonsense"], "invalid choice: 'nonsense' (choose from "),
        (
            ["run", "worker", "--round-size", "none"],
            "flotilla: --round-size: takes a whole number, at least 1, not 'none'",
        ),
        (["run", "worker", "--name", "a b"], "flotilla: --name: takes 1 to 63 letters, digits, '-' and '_'"),
        (["simulate", "--port", "99999"], "flotilla: --port: takes a whole number from 0 to 65535, not '99999'"),
        (
            ["simulate", "--token-file", "/no"],
            "flotilla: --token-file: cannot read '/no': No such",
        ),
        (["bench", "--nodes", "5,x"], "argument --nodes: must be a whole number, not 'x'"),
        (["bench", "--load", "5"], "argument --load: must be 2 comma-separated numbers, not '5'"),
        (["conformance"], "required: FILE"),
        (["conformance", "--shards", "0", "x"], "argument --shards: must be at least 1, not 0"),
        (["conformance", "no-such-file"], "flotilla: no-such-file: No such file or directory"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert complaint in said.err
    assert said.err.count("\n") == 1


WRONG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 0
profiles:
- plugins: {filter: {enabled: [{name: Unknown}]}, score: {enabled: [{name: Stranger}]}}
"""


@pytest.mark.parametrize("command", [["up"], *(["run", service] for service in SERVICES)])
def test_a_bad_configuration_is_reported_before_anything_starts(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scheduler.yaml").write_text(WRONG)
    assert ended(*command, "--config", str(tmp_path / "scheduler.yaml")) == 2
    said = capsys.readouterr()
    assert said.out == ""
    first, *others = said.err.splitlines()
    assert first == f"flotilla: {tmp_path}/scheduler.yaml: parallelism: must be at least 1, not 0"
    assert others == [
        f"flotilla: {tmp_path}/scheduler.yaml: profiles[0].plugins.{where}.enabled[0]: there is no plugin '{name}'"
        for where, name in (("filter", "Unknown"), ("score", "Stranger"))
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["scheduler.yaml"]


def test_an_invalid_variable_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FLOTILLA_SEED", "x")
    assert ended("run", "queue") == 2
    assert capsys.readouterr().err == "flotilla: FLOTILLA_SEED: takes a whole number, at least 0, not 'x'\n"


@pytest.mark.parametrize("command", [["run", "queue"], ["up"], ["queue"], ["health"]])
def test_all_invalid_variables_are_reported_at_once(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOTILLA_SEED", "x")
    monkeypatch.setenv("FLOTILLA_SETTINGS", "/no/such")
    monkeypatch.setenv("FLOTILLA_NATS_URL", "http://u:hunter2@h")
    assert ended(*command) == 2
    assert capsys.readouterr().err.splitlines() == [
        "flotilla: FLOTILLA_SETTINGS: takes a file that can be read (No such file or directory), not '/no/such'",
        "flotilla: FLOTILLA_NATS_URL: takes a URL like nats://HOST or tls://HOST, not 'http://***@h'",
        "flotilla: FLOTILLA_SEED: takes a whole number, at least 0, not 'x'",
    ]


def test_a_single_service_reports_all_invalid_variables() -> None:
    """As `flotilla up` starts them."""
    environment = os.environ | {"FLOTILLA_SEED": "x", "FLOTILLA_LOG_LEVEL": "loud"}
    done = subprocess.run(
        [sys.executable, "-m", "services.queue"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=environment,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "flotilla: FLOTILLA_SEED: takes a whole number, at least 0, not 'x'",
        "flotilla: FLOTILLA_LOG_LEVEL: takes one of debug, info, warning, error, not 'loud'",
    ]


def test_a_token_file_may_not_be_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").touch()
    assert ended("simulate", "--token-file", str(tmp_path / "token")) == 2
    assert "is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{}", "Expected `array`"), ('[{"token": "t"}]', "missing required field `name`"), ("[", "truncated")],
)
def test_a_users_file_is_a_list_of_users(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "users").write_text(text)
    assert ended("simulate", "--users-file", str(tmp_path / "users")) == 2
    assert expected in capsys.readouterr().err


def test_a_port_in_use_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert ended("simulate", "--port", str(port)) == 2
    said = capsys.readouterr().err
    assert f"127.0.0.1:{port}" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(command, "--help") == 0
    assert f"usage: flotilla {command}" in capsys.readouterr().out


def test_the_help_lists_all_commands_and_first_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--help") == 0
    said = capsys.readouterr().out
    assert all(f"\n    {command}" in said for command in COMMANDS)
    assert "first steps:" in said


def test_the_help_of_run_explains_services_and_variables(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("run", "--help") == 0
    said = capsys.readouterr().out
    assert all(f"\n  {service} " in said for service in SERVICES)
    assert "FLOTILLA_NATS_URL" in said


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom tools.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'aiohttp', 'nats', 'redis', 'msgspec', 'uvloop', 'psutil'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("asked", ["version", "--version"])
def test_the_version_names_the_matching_kube_scheduler(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(asked) == 0
    assert capsys.readouterr().out.endswith("(decides as kube-scheduler v1.36)\n")


def test_the_bench_prints_a_line_for_each_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("bench", "--nodes", "60", "--pods", "64", "--workloads", "volumes", "--load", "50,100") == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert [line[:4] for line in lines if line and line[0] in ("plain", "volumes")] == [
        ["volumes", "60", "5", "256"],
        ["volumes", "60", "5", "strict"],
    ]
    assert "loading 50 nodes with 100 pods" in said


def test_strict_mode_has_no_regret(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--nodes", "20", "--pods", "60", "--rounds", "1,16", "--only", "zones")
    assert ended("bench-quality", *options) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    strict = [line.split("strict")[1].split() for line in lines if " strict " in line]
    assert len(strict) == 3
    assert len(lines) == 6
    assert all(placed == "60" and (regret, worst) == ("0.00", "0") for placed, _, regret, worst, *_ in strict)


def test_an_unknown_case_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("bench-quality", "--only", "nothing") == 2
    assert "no case contains 'nothing' in its name" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("version",), ("credentials", "kubernetes"), ("credentials", "compose", "--folder", "-")]
)
def test_a_full_disk_is_reported_in_one_line(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "tools.cli.main", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (ended.returncode, ended.stderr) == (
        1,
        "flotilla: cannot write the output: No space left on device\n",
    )
