"""The flotilla command: what it prints, and how it ends."""

import pytest

from services.cli.main import main


def ended(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "required: COMMAND"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["demo", "--shards", "0"], "argument --shards: must be at least 1, not 0"),
        (["demo", "--round-size", "0"], "argument --round-size: must be at least 1, not 0"),
        (["demo", "--pods", "many"], "argument --pods: 'many' is no whole number"),
        (["bench", "--nodes", "5,x"], "argument --nodes: 'x' is no whole number"),
        (["bench", "--load", "5"], "argument --load: takes 2 numbers with commas between them, not '5'"),
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
    assert complaint in said.err.splitlines()[-1]


def test_the_version_names_the_scheduler_it_equals(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("version") == 0
    assert capsys.readouterr().out.endswith("(decides as kube-scheduler v1.36)\n")


@pytest.mark.parametrize("round_size", ["1", "64"])
def test_the_demo_places_pods_says_why_others_wait_and_checks(
    round_size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("demo", "--nodes", "40", "--pods", "200", "--shards", "3", "--round-size", round_size) == 0
    said = capsys.readouterr().out
    assert "placed      200 pods" in said
    assert "pending     demo/wants-a-gpu: 0/40 nodes are available: " in said
    assert "BROKEN" not in said


def test_the_demo_on_too_small_a_cluster_accounts_for_every_pod(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("demo", "--nodes", "2", "--pods", "300") == 0
    said = capsys.readouterr().out
    assert "303 of 303 pods judged" in said
    assert "ok          every pod accounted for once" in said


def test_the_bench_has_a_line_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("bench", "--nodes", "60", "--pods", "64", "--load", "50,100") == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert [line[:3] for line in lines if line and line[0] == "60"] == [
        ["60", "1", "256"],
        ["60", "1", "strict"],
        ["60", "50", "256"],
        ["60", "50", "strict"],
    ]
    assert "loading 50 nodes with 100 pods" in said
