"""flotilla completion: what the shell offers."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.cli.completion import SHELLS
from tools.cli.main import COMMANDS, main
from tools.cli.run import SERVICES

Complete = Callable[[str], list[str]]

DRIVER = """\
source {script}
complete -p flotilla >/dev/null || exit 3
cd {folder}
COMP_LINE={line} COMP_POINT=${{#COMP_LINE}} COMP_TYPE=9 COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
_python_argcomplete flotilla
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(("completion", shell)) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


@pytest.fixture
def complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What bash offers at the end of a line, in a folder with two entries."""
    (tmp_path / "bash").write_text(script("bash", capsys))
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "scheduler file.yaml").touch()
    (folder / "states").mkdir()

    def offers(line: str) -> list[str]:
        driver = DRIVER.format(script=tmp_path / "bash", folder=folder, line=shlex.quote(f"flotilla {line}"))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "--norc", "-c", driver],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"PATH": path},
        )
        # Without readline there is no completion whose options could be changed.
        assert [line for line in done.stderr.splitlines() if "compopt" not in line] == []
        assert done.returncode == 0
        return [line.strip() for line in done.stdout.splitlines() if line.strip()]

    return offers


def test_bash_offers_commands(complete: Complete) -> None:
    assert set(complete("")) >= set(COMMANDS)
    assert complete("con") == ["console", "config", "conformance"]
    assert "bench-pipeline" in complete("bench")
    assert set(complete("config ")) >= {"validate", "show", "convert", "settings"}
    assert complete("permit al") == ["allow"]


def test_bash_offers_flags_of_the_command(complete: Complete) -> None:
    assert set(complete("--")) == {"--help", "--version"}
    assert complete("run worker --round") == ["--round-size"]
    assert set(complete("config show --")) == {"--feature-gates", "--help", "--output"}
    assert "--in-cluster" in complete("up --nats nats://h --i")


def test_bash_offers_the_values_of_flags(complete: Complete) -> None:
    levels = ["debug", "info", "warning", "error"]
    assert sorted(complete("run --log-level ")) == sorted(levels)
    assert complete("run worker --log-level=de") == ["debug"]
    assert sorted(complete("run worker --log-level=")) == sorted(levels)
    assert set(complete("config show -o ")) == {"yaml", "json"}
    assert complete("run --name ") == []


def test_bash_offers_arguments(complete: Complete) -> None:
    assert set(complete("run ")) >= set(SERVICES)
    assert complete("run --name worker wo") == ["worker"]
    assert complete("run --http 127.0.0.1:80 wa") == ["watcher"]
    assert set(complete("run worker ")) >= set(SERVICES), "several run in one process"
    assert set(complete("completion ")) >= {"bash", "zsh", "fish"}


def test_bash_offers_files_and_folders(complete: Complete) -> None:
    assert sorted(complete("run --config ")) == ["scheduler\\ file.yaml", "states/"]
    assert complete("config validate sch") == ["scheduler\\ file.yaml"]
    assert complete("dump --output ") == ["states/"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_can_read_its_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} to read the script with")
    (tmp_path / shell).write_text(script(shell, capsys))
    subprocess.run([shell, "-n", str(tmp_path / shell)], check=True, timeout=20)
