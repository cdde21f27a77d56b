"""The dashboards: their files are those of the description, and what their queries name exists."""

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.deploy.rendering import K8S, ROOT, named, rendered
from tools.dashboards.grafana import file_name, made, queries
from tools.dashboards.model import Dashboard
from tools.dashboards.pages import DASHBOARDS

FOLDER = K8S / "monitoring" / "dashboards"
PROVISIONING = ROOT / "deploy" / "grafana" / "provisioning"
KINDS = {"counter", "gauge", "histogram"}
SCRAPED = {"instance", "service"}
"""Labels of the target, in deploy/prometheus.yml as in k8s/monitoring/servicemonitor.yaml."""
OF_PROCESSES = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
METRIC = re.compile(r"(?<![\w:])((?:flotilla|scheduler|rest_client|leader_election|process)_\w+)(?:\{([^}]*)\})?")
RECORDED = re.compile(r"flotilla:\w+:\w+")
GROUPED = re.compile(r"by \(([^)]*)\)")
OF_HISTOGRAMS = re.compile(r"_(bucket|sum|count)$")

every_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)


def declared() -> dict[str, tuple[str, set[str]]]:
    """Kind and labels of every metric that the code makes."""
    found: dict[str, tuple[str, set[str]]] = {name: ("gauge", set()) for name in OF_PROCESSES}
    for path in (path for folder in ("services", "shared", "tools") for path in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        assigned = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (kind := _called(node.func)) in KINDS and node.args:
                name = node.args[0]
                if isinstance(name, ast.Constant):
                    found[str(name.value)] = kind, set(_labels(node, assigned))
    return found


def _called(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def _labels(made: ast.Call, assigned: dict[str, ast.expr]) -> Iterator[str]:
    given = made.args[2:3] + [keyword.value for keyword in made.keywords if keyword.arg == "labels"]
    for labels in given:
        written = assigned.get(labels.id) if isinstance(labels, ast.Name) else labels
        if isinstance(written, ast.List | ast.Tuple):
            yield from (str(each.value) for each in written.elts if isinstance(each, ast.Constant))


def recorded() -> dict[str, set[str]]:
    """Labels of every recording rule."""
    groups = yaml.safe_load((ROOT / "deploy" / "rules.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"] if "record" in rule]
    return {rule["record"]: set(grouped_by(rule["expr"])) - {"le"} for rule in rules}


def grouped_by(expr: str) -> list[str]:
    return [label.strip() for labels in GROUPED.findall(expr) for label in labels.split(",")]


def test_files_are_those_of_the_description() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {file_name(dashboard) for dashboard in DASHBOARDS}
    for dashboard in DASHBOARDS:
        assert (FOLDER / file_name(dashboard)).read_text() == made(dashboard), "run: make dashboards"


@every_dashboard
def test_what_queries_name_exists(dashboard: Dashboard) -> None:
    metrics, rules = declared(), recorded()
    for panel, expr in queries(dashboard):
        allowed = set(SCRAPED)
        for rule in RECORDED.findall(expr):
            allowed |= rules[rule]
        for name, matchers in METRIC.findall(expr):
            base = OF_HISTOGRAMS.sub("", name)
            kind, labels = metrics[name if name in metrics else base]
            assert (name != base) == (kind == "histogram"), f"{panel}: {name} is a {kind}"
            assert name in metrics or kind == "histogram", f"{panel}: {name}"
            allowed |= labels | ({"le"} if name.endswith("_bucket") else set())
            assert set(re.findall(r"(\w+)[=!]", matchers)) <= labels | SCRAPED, f"{panel}: {expr}"
        assert RECORDED.search(expr) or METRIC.search(expr), f"{panel}: {expr}"
        assert set(grouped_by(expr)) <= allowed, f"{panel}: {expr}"


@every_dashboard
def test_counters_are_read_as_rates(dashboard: Dashboard) -> None:
    metrics = declared()
    for panel, expr in queries(dashboard):
        for name, _ in METRIC.findall(expr):
            grows = name not in metrics or metrics[name][0] == "counter" or name == "process_cpu_seconds_total"
            assert grows == bool(re.search(rf"(?:rate|increase)\({name}\b", expr)), f"{panel}: {expr}"


@every_dashboard
def test_panels_do_not_overlap_and_say_what_they_show(dashboard: Dashboard) -> None:
    panels: list[dict[str, Any]] = json.loads(made(dashboard))["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool, of Debian's prometheus")
def test_prometheus_understands_the_queries(tmp_path: Path) -> None:
    exprs = [expr for dashboard in DASHBOARDS for _, expr in queries(dashboard)]
    rules = [
        {"record": f"panel:{number}", "expr": expr.replace("$__rate_interval", "5m")}
        for number, expr in enumerate(exprs)
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(exprs)} rules" in done.stdout


def test_the_cluster_gets_the_same_files() -> None:
    data = named(rendered("monitoring"), "ConfigMap", "flotilla-dashboards")["data"]
    assert data == {path.name: path.read_text() for path in FOLDER.iterdir()}


def test_grafana_in_compose_finds_its_sources_and_dashboards() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "docker-compose.yml").read_text())["services"]
    sources = yaml.safe_load((PROVISIONING / "datasources" / "flotilla.yaml").read_text())["datasources"]
    published = {name: {port.rpartition(":")[2] for port in each.get("ports", ())} for name, each in compose.items()}
    for source in sources:
        server, _, port = source["url"].removeprefix("http://").partition(":")
        assert port in published[server], source
    assert [source["type"] for source in sources if source.get("isDefault")] == ["prometheus"]
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "flotilla.yaml").read_text())["providers"]
    mounts = dict(reversed(each.removesuffix(":ro").split(":")) for each in compose["grafana"]["volumes"])
    assert (ROOT / "deploy" / mounts[provider["options"]["path"]]).resolve() == FOLDER
    assert (ROOT / "deploy" / mounts["/etc/grafana/provisioning"]).resolve() == PROVISIONING
    assert not [name for name in compose["grafana"]["environment"] if "PASSWORD" in name or "SECRET" in name]
