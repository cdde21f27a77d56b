"""Golden cases of kube-scheduler v1.36, replayed through the cores and through the command line."""

import gzip
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.cli.main import main
from services.inprocess.conformance import read_cases, run_cases

DATA = Path(__file__).parent / "data"
WHOLE = ("resources", "taints", "nodeaffinity", "ports", "images")
OTHERS = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.iterdir() if path.stem[:-6] not in WHOLE)
SOME = 6


def data(group: str) -> Path:
    return DATA / f"{group}.jsonl.gz"


def cases(group: str, most: int | None = None) -> list[dict[str, Any]]:
    return list(itertools.islice(read_cases(data(group)), most))


def written(path: Path, made: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"\n".join(map(msgspec.json.encode, made)))
    return path


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("group", WHOLE)
def test_every_decision_is_kube_schedulers(group: str, shards: int) -> None:
    (result,) = run_cases(iter(cases(group)), shards).values()
    assert [str(difference) for difference in result.differences] == []
    assert (result.passed, result.total) == (40, 40)


@pytest.mark.parametrize("group", OTHERS)
def test_the_other_groups_are_run_and_reported(group: str) -> None:
    """What they need is not all there yet: each case passes, or tells in what it differs."""
    (result,) = run_cases(iter(cases(group, SOME)), 2).values()
    assert result.total == SOME
    differing = {difference.case for difference in result.differences}
    assert len(differing) == result.total - result.passed
    assert all(str(difference) for difference in result.differences)


def test_there_are_other_groups() -> None:
    assert OTHERS
    assert not set(OTHERS) & set(WHOLE)


# The command line


def run(*arguments: object) -> int:
    return main(["conformance", *map(str, arguments)])


def test_the_command_prints_a_line_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--shards", 2, data("ports"), data("images")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 shards; ")
    assert lines[-2:] == ["ports: 40/40", "images: 40/40"]


def test_a_group_can_be_picked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--group", "images", data("ports"), data("images")) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "/40" in line] == ["images: 40/40"]


def other_node(expected: dict[str, Any]) -> str:
    expected["chosen"] = "some-other-node"
    return "chosen node"


def other_best(expected: dict[str, Any]) -> str:
    expected["best"] = [*expected["best"], "some-other-node"]
    return "best nodes"


def other_verdict(expected: dict[str, Any]) -> str:
    node = next(iter(expected["filter"]))
    expected["filter"][node] = {"plugin": "Nobody", "code": "Unschedulable", "reasons": ["no"]}
    return "filter"


def other_score(expected: dict[str, Any]) -> str:
    node = next(iter(expected["scores"]))
    expected["scores"][node]["plugins"]["NodeResourcesFit"] += 1
    return "scores"


@pytest.mark.parametrize("alter", [other_node, other_best, other_verdict, other_score])
def test_a_difference_is_told_and_the_exit_code_is_1(
    alter: Callable[[dict[str, Any]], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = cases("resources", 3)
    expected = next(each for each in some[1]["expected"] if each.get("chosen") and each.get("scores"))
    what = alter(expected)
    assert run(written(tmp_path / "altered.jsonl", some)) == 1
    out = capsys.readouterr().out
    assert "resources: 2/3" in out
    assert f"{some[1]['name']}, pod " in out
    assert f": {what}\n    expected: " in out


def test_without_cases_the_exit_code_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(written(tmp_path / "none.jsonl", [])) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "no cases"


BROKEN = {
    "no-json.jsonl": b'{"name": ',
    "no-case.jsonl": b'{"name": "x"}',
    "no-object.jsonl": b"[1, 2]",
    "no-gzip.jsonl.gz": b"plain",
    "cut.jsonl.gz": gzip.compress(b'{"name": "x"}' * 100)[:-12],
    "torn.jsonl.gz": gzip.compress(bytes(range(256)) * 40)[:60] + b"\x00" * 60,
    "not-text.jsonl": b'{"name": "\xff\xfe"}',
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_line_and_exit_code_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    assert run(path) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert len(caught.err.splitlines()) == 1
    assert caught.err.startswith(f"flotilla: {path}")


def test_a_missing_file_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "missing.jsonl", tmp_path / "missing.jsonl.gz", tmp_path):
        assert run(path) == 2
        caught = capsys.readouterr()
        assert len(caught.err.splitlines()) == 1
        assert caught.err.startswith(f"flotilla: {path}")


@pytest.mark.parametrize("broken", [{"objects": None}, {"expected": []}, {"pending": 7}])
def test_a_case_of_a_wrong_shape_is_one_line_and_exit_code_2(
    broken: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = cases("resources", 2)
    path = written(tmp_path / "some.jsonl", [good, {**bad, **broken}])
    assert run(path) == 2
    assert capsys.readouterr().err == f"flotilla: {path}:2: not a case\n"


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"objects": {"nodes": [{"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "x"}}}]}}, "Node n: "),
        ({"objects": {"nodes": [{"metadata": {"name": "n"}}]}}, "Node n: status.allocatable: must not be empty"),
        ({"config": {"profiles": [{"plugins": {"score": 1}}]}}, "profiles[0].plugins.score"),
    ],
)
def test_a_case_that_cannot_be_run_does_not_stop_the_others(
    broken: dict[str, Any], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = cases("resources", 2)
    assert run(written(tmp_path / "some.jsonl", [{**bad, **broken}, good])) == 1
    out = capsys.readouterr().out
    assert "resources: 1/2" in out
    assert f"{bad['name']}, pod -: cannot be run" in out
    assert why in out
