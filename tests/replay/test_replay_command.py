"""flotilla replay on a recording of the demo: comparison, one pod's decision, another configuration."""

import json
import re
from pathlib import Path

import pytest

from tests.replay.test_replay import gangs_and_spreading
from tools.cli.main import main
from tools.cli.replay import TESTS
from tools.recording.file import Header, RecordingWriter

DEMO = str(Path(__file__).parents[1] / "recordings" / "demo.rec")
PREEMPTOR = "demo/late-000"
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PACKED = (
    HEAD
    + """profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}]}}
"""
)


def test_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", DEMO]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "compared: 39 rounds, 6 preemption searches; 51 pods"
    assert said[-1] == "no difference"


def test_a_recording_of_another_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r"
    with path.open("wb") as file:
        writer = RecordingWriter(file)
        writer.add(Header("0.0.7", 1.0))
        writer.flush()
    assert main(["replay", str(path)]) == 2
    assert capsys.readouterr().out.startswith("recorded with flotilla 0.0.7, replayed with ")


def test_a_recording_that_lost_its_decisions(tmp_path: Path, a_clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r"
    path.write_bytes(Path(DEMO).read_bytes()[:100])
    assert main(["replay", str(path)]) == 2
    said = capsys.readouterr().out.splitlines()
    assert "no difference" not in said
    assert said[2].startswith("nothing to compare: ")
    assert said[-1] == "the file is damaged: the file was cut off within its last frame"
    assert main(["replay", str(path), "--as-test", "other"]) == 2
    assert "has no decision to compare" in capsys.readouterr().err
    assert not list(a_clone.iterdir())


def test_one_pod(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", DEMO, "--until", "demo/app-05-00077"]) == 0
    what, recorded, replayed, _, best, *others = capsys.readouterr().out.splitlines()
    assert what.startswith("round 87: pod demo/app-05-00077, judged on the state after change ")
    assert recorded == "recorded: node node-00005 (score 469)"
    assert replayed == "replayed: node node-00005 (score 469)"
    assert best.startswith("  node-00005: 469 (")
    assert others[-1] == "rejected: 4 nodes: node(s) had untolerated taint(s)"


def test_a_pod_that_is_not_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", DEMO, "--until", "nobody"]) == 2
    assert "no pod 'nobody' is decided in" in capsys.readouterr().err


def test_the_same_configuration_decides_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(HEAD)
    assert main(["replay", DEMO, "--config", str(config), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["moved"], found["nowFit"], found["noLongerFit"]) == ({}, {}, {})
    assert found["recorded"] == found["other"]
    assert found["recorded"]["preemptions"] == 6


def test_another_configuration_moves_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(PACKED)
    assert main(["replay", DEMO, "--config", str(config)]) == 1
    first, _, _, cpu, *_ = capsys.readouterr().out.splitlines()
    assert first == "50 pods: 8 as with the recorded configuration, 42 moved, 0 now fit, 0 no longer fit"
    assert cpu.split() == ["cpu", "requested", "11.8%", "11.8%"]


@pytest.fixture
def a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / TESTS).mkdir(parents=True)
    return tmp_path / TESTS


def test_a_decision_becomes_a_test(a_clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", DEMO, "--until", PREEMPTOR, "--as-test", "who-makes-way"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "compared: 1 rounds, 1 preemption searches; 1 pods"
    assert said[-1].startswith(f"kept as {TESTS}/who-makes-way.rec: pytest tests/replay/")
    kept = str(a_clone / "who-makes-way.rec")
    assert main(["replay", DEMO, "--until", PREEMPTOR]) == main(["replay", kept, "--until", PREEMPTOR]) == 0
    whole = capsys.readouterr().out.splitlines()
    assert whole[: len(whole) // 2] == whole[len(whole) // 2 :]
    assert main(["replay", DEMO, "--as-test", "all"]) == 0
    assert (a_clone / "all.rec").stat().st_size > (a_clone / "who-makes-way.rec").stat().st_size


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--as-test", "Not a name"], "must be lower-case words joined by hyphens"),
        (["--as-test", "there"], "there.rec exists already"),
        (["--as-test", "other", "--shards", "2"], "it takes neither --shards nor --config"),
        (["--as-test", "other", "--until", "nobody"], "no pod 'nobody' is decided"),
    ],
)
def test_what_cannot_become_a_test(
    a_clone: Path, options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (a_clone / "there.rec").write_bytes(b"")
    assert main(["replay", DEMO, *options]) == 2
    assert why in capsys.readouterr().err
    assert not (a_clone / "other.rec").exists()


def test_what_is_too_large_for_a_test(
    a_clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.cli.replay.LARGEST_TEST", 10_000)
    assert main(["replay", DEMO, "--as-test", "other"]) == 2
    assert "a test at most 10,000; --until POD keeps the decision about one pod" in capsys.readouterr().err
    assert not list(a_clone.iterdir())


def test_larger_rounds_divided_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two pods in a round a worker alone offers the best node and the next; of two workers each offers its best."""
    path = tmp_path / "r"
    with path.open("wb") as file:
        writer = RecordingWriter(file)
        for entry in gangs_and_spreading(1, 2):
            writer.add(entry)
        writer.flush()
    assert main(["replay", str(path)]) == 0
    assert capsys.readouterr().out.startswith("compared: ")
    assert main(["replay", str(path), "--shards", "5"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "the nodes are divided among 5 workers, not as recorded:"
    assert any(
        re.match(r"differences: \d+ \(.*\d+ (placed elsewhere|deferred instead of placed)", line) for line in said
    )
