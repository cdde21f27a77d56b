"""The alerts: Prometheus takes them, they go off when they should, and what they look at exists."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.deploy.rendering import K8S, ROOT

ALERTS = ROOT / "deploy" / "alerts.yml"
PROMETHEUS = ROOT / "deploy" / "prometheus.yml"
SERIES = re.compile(r"\b(?:flotilla|scheduler|leader_election)_\w+")
DECLARED = re.compile(r'"((?:flotilla|scheduler|leader_election)_\w+)"')
OF_HISTOGRAMS = re.compile(r"_(?:bucket|sum|count)$")

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool, of Debian's prometheus")


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def metrics() -> set[str]:
    """All that the code has a name for."""
    sources = [path for folder in ("services", "shared", "testing", "tools") for path in (ROOT / folder).rglob("*.py")]
    return {name for path in sources for name in DECLARED.findall(path.read_text())}


def rules() -> list[dict[str, Any]]:
    return [rule for group in read(ALERTS)["groups"] for rule in group["rules"]]


def test_both_forms_say_the_same() -> None:
    assert read(K8S / "monitoring" / "rules.yaml")["spec"] == read(ALERTS)


def test_what_they_look_at_exists() -> None:
    known = metrics()
    for rule in rules():
        named = SERIES.findall(rule["expr"])
        assert named, rule["alert"]
        assert {OF_HISTOGRAMS.sub("", name) for name in named} <= known, rule["alert"]


def test_each_says_how_urgent_it_is_and_what_is_so() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"].endswith(".")


def test_each_is_in_the_docs() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    told = re.findall(r"^\| `(Flotilla\w+)` \|", text, re.MULTILINE)
    assert sorted(told) == sorted(rule["alert"] for rule in rules())


@promtool
def test_prometheus_takes_them() -> None:
    run("promtool", "check", "rules", str(ALERTS))
    run("promtool", "check", "config", str(PROMETHEUS))


@promtool
def test_they_go_off_when_they_should(tmp_path: Path) -> None:
    for path in (ALERTS, Path(__file__).parent / "alerts.test.yml"):
        (tmp_path / path.name).write_text(path.read_text())
    run("promtool", "test", "rules", str(tmp_path / "alerts.test.yml"))
