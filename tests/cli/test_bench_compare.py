"""flotilla bench-compare: the same decisions in two checkouts, and the ratios of their costs."""

import subprocess
from pathlib import Path

import pytest

from shared.errors import ClusterError, UserError
from tools.bench import compare
from tools.bench.compare import CASES, checkout, rows
from tools.cli.main import main

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.com")
MODULE = (
    "class Case:\n    def __init__(self, *a): self.pods = a[3]\n\n\nclass Costs:\n    by_part = {'cycle': 5_000_000}\n"
)


def a_repository(folder: Path, measure: str) -> Path:
    """With one commit, whose benchmark is this."""
    package = folder / "testing" / "inprocess"
    package.mkdir(parents=True)
    for each in (package.parent, package):
        (each / "__init__.py").touch()
    (package / "bench.py").write_text(MODULE + measure)
    for command in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "one")):
        subprocess.run((*GIT, *command), cwd=folder, check=True)
    return folder


def test_ratios_are_those_of_neighbouring_runs() -> None:
    then, now = [[100.0] * len(CASES), [200.0] * len(CASES)], [[50.0] * len(CASES), [200.0] * len(CASES)]
    head, first, *_ = rows(then, now)
    shown = dict(zip(head, first, strict=True))
    assert (shown["us a pod then"], shown["now"]) == ("150", "125")
    assert (shown["ratio"], shown["lowest"], shown["highest"]) == ("0.75", "0.50", "1.00")


def test_an_earlier_commit_is_measured_with_its_own_modules(tmp_path: Path) -> None:
    repository = a_repository(tmp_path, "\n\ndef measure(case): return Costs(), 0\n")
    (repository / "testing" / "inprocess" / "bench.py").write_text("not python")
    with checkout(repository, "HEAD") as files:
        assert compare._measured(files, 10) == [pytest.approx(5_000 / pods) for _, _, _, pods in CASES]
    assert not files.exists()


def test_a_benchmark_that_fails_is_an_error_with_its_reason(tmp_path: Path) -> None:
    repository = a_repository(tmp_path, "\n\ndef measure(case): raise ValueError('no nodes')\n")
    with pytest.raises(ClusterError, match="failed: ValueError: no nodes"), checkout(repository, "HEAD") as files:
        compare._measured(files, 10)


def test_an_unknown_commit_is_refused(tmp_path: Path) -> None:
    repository = a_repository(tmp_path, "")
    with pytest.raises(UserError, match=r"--against: .*nowhere"), checkout(repository, "nowhere"):
        pass


def test_an_unknown_commit_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench-compare", "--against", "no-such-commit"]) == 2
    assert "flotilla: --against:" in capsys.readouterr().err
