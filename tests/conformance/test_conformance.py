"""Golden cases of kube-scheduler v1.36, replayed through the cores and through the command line."""

import gzip
import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testing.inprocess.cases import RawCase
from testing.inprocess.conformance import read_cases, replay, replay_in_parallel
from tools.cli.main import main

DATA = Path(__file__).parent / "data"
GROUPS = (
    "resources",
    "taints",
    "nodeaffinity",
    "ports",
    "images",
    "spread-hard",
    "spread-soft",
    "spread-default",
    "podaffinity-hard",
    "podaffinity-soft",
    "volumes",
    "preemption",
    "nominated",
    "config",
    "mixed",
    "sequence",
    "dra",
    "dra-allocate",
    "dra-capacity",
    "dra-conditions",
    "dra-extended",
    "dra-many",
    "dra-shared",
)
CONFIGURATIONS = "config-file"
APART = ("cel", "hints", "registered", "requeue")
"""Groups that do not depend on shards."""


def data(group: str) -> Path:
    return DATA / f"{group}.jsonl.gz"


@cache
def every_case(group: str) -> list[RawCase]:
    return list(read_cases(data(group)))


def cases(group: str, most: int | None = None) -> list[RawCase]:
    """A copy that the test may change."""
    return list(itertools.islice(read_cases(data(group)), most))


def written(path: Path, made: list[RawCase]) -> Path:
    path.write_bytes(b"\n".join(map(msgspec.json.encode, made)))
    return path


@pytest.mark.parametrize(("shards", "every"), [(1, 1), (2, 1), (7, 3)])
@pytest.mark.parametrize("group", GROUPS)
def test_every_decision_matches_kube_scheduler(group: str, shards: int, every: int) -> None:
    """With seven shards, which take the most time and mostly have a node each: every third case."""
    cases = every_case(group)[::every]
    (result,) = replay(cases, [shards])[shards].values()
    assert [str(difference) for difference in result.differences] == []
    assert result.passed == result.total == len(cases) > 0


@pytest.mark.parametrize("group", APART)
def test_cases_without_a_cluster_match_kube_scheduler(group: str) -> None:
    (result,) = replay(every_case(group), [1])[1].values()
    assert [str(difference) for difference in result.differences] == []
    assert result.passed == result.total == len(every_case(group)) > 0


def test_every_group_is_tested() -> None:
    groups = {*GROUPS, *APART, CONFIGURATIONS}
    assert {path.name.removesuffix(".jsonl.gz") for path in DATA.iterdir()} == groups


def test_the_number_of_processes_changes_nothing() -> None:
    some = every_case("ports")[:10] + every_case("dra")[:10]
    assert replay_in_parallel(some, [1, 2], 2) == replay(some, [1, 2])


# The command line


def run(*arguments: object) -> int:
    return main(["conformance", *map(str, arguments)])


@pytest.fixture
def two_groups(tmp_path: Path) -> tuple[Path, Path]:
    """Three cases of each."""
    return (
        written(tmp_path / "ports.jsonl", cases("ports", 3)),
        written(tmp_path / "configurations.jsonl", cases("config-file", 3)),
    )


def test_the_command_prints_a_line_a_group(two_groups: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--shards", "2,3", *two_groups) == 0
    assert capsys.readouterr().out.splitlines() == [
        "shards         2    3",
        "ports        3/3  3/3",
        "config-file  3/3  3/3",
    ]


def test_a_group_can_be_picked(two_groups: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--group", "config-file", *two_groups) == 0
    assert capsys.readouterr().out.splitlines() == ["shards         1", "config-file  3/3"]


def other_score(expected: dict[str, Any]) -> None:
    plugins = next(iter(expected["scores"].values()))["plugins"]
    plugins["NodeResourcesFit"] += 1


def other_total(expected: dict[str, Any]) -> None:
    next(iter(expected["scores"].values()))["total"] += 1


def other_verdict(expected: dict[str, Any]) -> None:
    expected["filter"][next(iter(expected["filter"]))] = {
        "plugin": "Nobody",
        "code": "Unschedulable",
        "reasons": ["no"],
    }


def other_victims(expected: dict[str, Any]) -> None:
    for candidate in expected["preemption"]["candidates"]:
        candidate["victims"].append("default/innocent")


def other(field: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda expected: expected.update({field: value})


def other_in_preemption(field: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda expected: expected["preemption"].update({field: value})


ALTERATIONS = {
    "prefilter": ("volumes", "prefilter", other("prefilter", None)),
    "allowed": ("nodeaffinity", "allowed", other("allowed", ["some-other-node"])),
    "filter": ("resources", "filter", other_verdict),
    "scores": ("resources", "scores", other_score),
    "total scores": ("resources", "scores", other_total),
    "skipped scores": ("resources", "skipped_score", other("skipped_score", ["ImageLocality"])),
    "best nodes": ("resources", "best", other("best", ["some-other-node"])),
    "chosen node": ("resources", "chosen", other("chosen", "some-other-node")),
    "via nominated": ("nominated", "via_nominated", other("via_nominated", False)),
    "message": ("resources", "message", other("message", "0/0 nodes are available.")),
    "outcomes of preemption": ("preemption", "preemption.candidates", other_in_preemption("outcomes", [])),
    "candidates of preemption": ("preemption", "preemption.candidates", other_victims),
    "message of preemption": ("resources", "preemption.message", other_in_preemption("message", "none")),
    "failed preemption": ("volumes", "preemption.error", other_in_preemption("error", False)),
}


def tells(expected: dict[str, Any], field: str) -> bool:
    first, _, second = field.partition(".")
    found = expected.get(first)
    return bool(found.get(second) if found and second else found)


@pytest.mark.parametrize("what", ALTERATIONS)
def test_any_difference_is_reported_and_the_exit_code_is_1(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group, field, alter = ALTERATIONS[what]
    altered = next(case for case in cases(group) if any(tells(expected, field) for expected in case["expected"]))
    alter(next(expected for expected in altered["expected"] if tells(expected, field)))
    good = next(case for case in every_case(group) if case["name"] != altered["name"])
    assert run("--show", 20, written(tmp_path / "altered.jsonl", [good, altered])) == 1
    out = capsys.readouterr().out
    assert f"{group}  1/2" in out
    assert f"{altered['name']}, pod " in out
    assert f": {what}\n    expected: " in out
    assert "    shards:   1\n" in out


ALTERED_APART: dict[str, tuple[str, dict[str, Any]]] = {
    "another hint": ("hints", {"hint": "Perhaps"}),
    "an error that is none": ("hints", {"error": True}),
    "an event that is not registered": ("hints", {"event": {"resource": "Node", "action": "UpdateNodeAnnotation"}}),
    "an event that there is not": ("hints", {"event": {"resource": "Node", "action": "Rename"}}),
    "a resource that there is not": ("hints", {"event": {"resource": "Moon", "action": "Add"}}),
    "another union": ("registered", {"watched": []}),
    "other labels": ("registered", {"cluster_event_labels": []}),
    "a configuration that lacks something": ("requeue", {"config": {"podMaxInUnschedulablePodsSeconds": 1}}),
    "an operation that there is not": ("requeue", {"ops": [{"at": 1, "op": "sleep"}], "expected": [{}]}),
    "an operation on an unknown pod": ("requeue", {"ops": [{"at": 1, "op": "delete", "pod": "p"}], "expected": [{}]}),
    "other pods": ("requeue", {"ops": [{"at": 1, "op": "tick"}], "expected": [{"active": ["default/p"]}]}),
}


@pytest.mark.parametrize("what", ALTERED_APART)
def test_any_difference_in_what_pods_wait_for_is_reported(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group, altered = ALTERED_APART[what]
    path = written(tmp_path / "altered.jsonl", [{**case, **altered} for case in cases(group, 1)])
    assert run(path) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[1].split() == [group, "0/1"]
    assert "    expected: " in out


def test_without_cases_the_exit_code_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(written(tmp_path / "none.jsonl", [])) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "no cases"


BROKEN = {
    "no-json.jsonl": b'{"name": ',
    "no-case.jsonl": b'{"name": "x"}',
    "no-configuration.jsonl": b'{"name": "x", "input": ""}',
    "no-hint.jsonl": b'{"name": "x", "plugin": "NodeName", "event": {}, "pod": {}, "objects": {}, "hint": "Queue"}',
    "no-registrations.jsonl": b'{"name": "x", "plugins": []}',
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
        ({"objects": {"nodes": [{"metadata": {}}]}}, "Node (unnamed): metadata.name: must not be empty"),
        ({"config": {"profiles": [{"plugins": {"score": 1}}]}}, "profiles[0].plugins.score"),
    ],
)
def test_a_case_that_cannot_be_run_does_not_stop_the_others(
    broken: dict[str, Any], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = cases("resources", 2)
    assert run(written(tmp_path / "some.jsonl", [{**bad, **broken}, good])) == 1
    out = capsys.readouterr().out
    assert "resources  1/2" in out
    assert f"{bad['name']}, pod -: cannot be run" in out
    assert why in out
