"""The rules: Prometheus takes them, alerts go off when they should and have runbooks, and what they look at exists."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.deploy.rendering import K8S, ROOT

RULES = ROOT / "deploy" / "rules.yml"
PROMETHEUS = ROOT / "deploy" / "prometheus.yml"
SERIES = re.compile(r"\b(?:flotilla|scheduler|leader_election)_\w+")
DECLARED = re.compile(r'"((?:flotilla|scheduler|leader_election)_\w+)"')
RECORDED = re.compile(r"\bflotilla:\w+:\w+")
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
    return [rule for group in read(RULES)["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def runbooks() -> dict[str, str]:
    """By alert."""
    parts = re.split(r"^## (Flotilla\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_both_forms_say_the_same() -> None:
    assert read(K8S / "monitoring" / "rules.yaml")["spec"] == read(RULES)


def test_what_they_look_at_exists() -> None:
    known = metrics()
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        named = SERIES.findall(rule["expr"])
        of_rules = set(RECORDED.findall(rule["expr"]))
        assert named or of_rules, rule
        assert {OF_HISTOGRAMS.sub("", name) for name in named} <= known, rule
        assert of_rules <= recorded, rule


def test_each_says_how_urgent_it_is_and_what_is_so() -> None:
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"].endswith(".")


def test_each_alert_has_a_runbook() -> None:
    found = runbooks()
    assert list(found) == [rule["alert"] for rule in alerts()], "in the same order"
    for rule in alerts():
        name, text = rule["alert"], found[rule["alert"]]
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{name.lower()}"
        assert text.lstrip().startswith(f"*{rule['labels']['severity'].capitalize()}.* "), name
        assert "**Do:**" in text, name


@promtool
def test_prometheus_takes_them() -> None:
    run("promtool", "check", "rules", str(RULES))
    run("promtool", "check", "config", str(PROMETHEUS))


@promtool
def test_they_go_off_when_they_should(tmp_path: Path) -> None:
    for path in (RULES, Path(__file__).parent / "rules.test.yml"):
        (tmp_path / path.name).write_text(path.read_text())
    run("promtool", "test", "rules", str(tmp_path / "rules.test.yml"))
