"""flotilla completion: what shells then offer."""

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.cli.completion import SHELLS
from tools.cli.completion.tree import Command, Kind, tree_of
from tools.cli.main import COMMANDS, main, parser
from tools.cli.run import SERVICES

Complete = Callable[..., list[str]]

DRIVER = """\
source {script}
complete -p flotilla >/dev/null || exit 3
cd {folder}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_flotilla
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def tree() -> Command:
    return tree_of(parser())


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(("completion", shell)) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


@pytest.fixture
def complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What bash offers for the last of these words, in a folder with two entries."""
    (tmp_path / "bash").write_text(script("bash", capsys))
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "scheduler file.yaml").touch()
    (folder / "states").mkdir()

    def offers(*words: str) -> list[str]:
        driver = DRIVER.format(script=tmp_path / "bash", folder=folder, words=shlex.join(("flotilla", *words)))
        done = subprocess.run(["bash", "--norc", "-c", driver], capture_output=True, text=True, timeout=20, check=False)
        # Without readline there is no completion whose options could be changed.
        assert [line for line in done.stderr.splitlines() if "compopt" not in line] == []
        assert done.returncode == 0
        return [line for line in done.stdout.splitlines() if line]

    return offers


def test_bash_offers_commands(complete: Complete) -> None:
    assert complete("") == list(COMMANDS)
    assert complete("con") == ["config", "conformance"]
    assert complete("config", "") == ["validate", "show", "convert", "settings"]
    assert complete("permit", "al") == ["allow"]


def test_bash_offers_flags_of_the_command(complete: Complete) -> None:
    assert complete("--") == ["--help", "--version"]
    assert complete("run", "worker", "--round") == ["--round-size"]
    assert complete("config", "show", "--") == ["--help", "--output"]
    assert "--in-cluster" in complete("up", "--nats", "nats://h", "--i")


def test_bash_offers_the_values_of_flags(complete: Complete) -> None:
    assert complete("run", "--log-level", "") == ["debug", "info", "warning", "error"]
    assert complete("run", "worker", "--log-level", "=", "de") == ["debug"]
    assert complete("run", "worker", "--log-level", "=") == ["debug", "info", "warning", "error"]
    assert complete("config", "show", "-o", "") == ["yaml", "json"]
    assert complete("run", "--name", "") == []


def test_bash_offers_arguments(complete: Complete) -> None:
    assert complete("run", "") == list(SERVICES)
    assert complete("run", "--name", "worker", "wo") == ["worker"]
    assert complete("run", "--http", "127.0.0.1", ":", "80", "wa") == ["watcher"]
    assert complete("run", "worker", "") == []
    assert complete("completion", "") == ["bash", "zsh", "fish"]


def test_bash_offers_files_and_folders(complete: Complete) -> None:
    assert sorted(complete("run", "--config", "")) == ["scheduler file.yaml", "states"]
    assert complete("config", "validate", "sch") == ["scheduler file.yaml"]
    assert complete("dump", "--output", "") == ["states"]


def test_everything_that_can_be_typed_is_in_the_tree(tree: Command) -> None:
    by_path = {command.path: command for command in tree.all()}
    assert {path for path in by_path if path.count(" ") == 1} == {f"flotilla {command}" for command in COMMANDS}
    flags = {name: flag for flag in by_path["flotilla run"].flags for name in flag.names}
    assert flags["--config"].value is not None and flags["--config"].value.kind == Kind.FILE
    assert flags["--settings"].value is not None and flags["--settings"].value.kind == Kind.FILE
    assert flags["--nats"].value is not None and flags["--nats"].value.kind == Kind.ANYTHING
    assert flags["--help"].value is None
    assert by_path["flotilla conformance"].repeats


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_knows_all_commands_and_flags(
    shell: str, tree: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    for command in tree.all():
        assert command.path in text
        for flag in command.flags:
            assert all((name.lstrip("-") if shell == "fish" else name) in text for name in flag.names)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_can_read_its_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} to read the script with")
    (tmp_path / shell).write_text(script(shell, capsys))
    subprocess.run([shell, "-n", str(tmp_path / shell)], check=True, timeout=20)
