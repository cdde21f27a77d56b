"""flotilla replay on a recording of the demo: comparison, one pod's decision, another configuration."""

import json
from pathlib import Path

import pytest

from tools.cli.main import main

DEMO = str(Path(__file__).parents[1] / "recordings" / "demo.rec")
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
    assert said[0] == "compared: 264 rounds, 6 preemption searches; 280 pods"
    assert said[-1] == "no difference"


def test_one_pod(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", DEMO, "--until", "demo/app-00-00012"]) == 0
    what, recorded, replayed, _, best, *others = capsys.readouterr().out.splitlines()
    assert what.startswith("round 16: pod demo/app-00-00012, judged on the state after change ")
    assert recorded == "recorded: node node-00035 (score 475)"
    assert replayed == "replayed: node node-00035 (score 475)"
    assert best.startswith("  node-00035: 475 (")
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
    assert first == "265 pods: 14 as with the recorded configuration, 251 moved, 0 now fit, 0 no longer fit"
    assert cpu.split() == ["cpu", "requested", "20.3%", "20.3%"]
