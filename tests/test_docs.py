"""The docs say what is so: links lead somewhere, commands exist, tables are those of the code."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from shared.bus import subjects
from shared.config.setting_sources import SOURCES
from shared.config.settings import ApiSettings, Settings
from shared.config.sources import settings_table
from tests import limits, message_table, state_machines
from tools.cli.main import parser

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
BY_NAME = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
SPAN = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CELL = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
OUR_FILE = re.compile(r"(?:docs|examples|services|shared|testing|tools|tests)/[\w/.-]+")
COMMAND = re.compile(r"(?:\S+=\S+ )*(make|flotilla) ((?!\S*:)\S.*)")
"""With variables before it; not `flotilla queue: ...`, which is a complaint."""
KUBE_SCHEDULER_METRICS = {
    f"scheduler_{name}"
    for name in re.findall(
        r"\w+",
        """
        async_api_call_execution_duration_seconds async_api_call_execution_total batch_attempts_total
        batch_cache_flushed_total cache_size dra_bindingconditions_allocations_total
        dra_bindingconditions_wait_duration_seconds event_handling_duration_seconds
        framework_extension_point_duration_seconds get_node_hint_duration_seconds goroutines inflight_events
        pending_async_api_calls pending_pods permit_wait_duration_seconds plugin_evaluation_total
        plugin_execution_duration_seconds pod_scheduled_after_flush_total pod_scheduling_attempts
        pod_scheduling_sli_duration_seconds podgroup_schedule_attempts_total
        podgroup_scheduling_algorithm_duration_seconds podgroup_scheduling_attempt_duration_seconds
        preemption_attempts_total preemption_goroutines_duration_seconds preemption_goroutines_execution_total
        preemption_victims queue_incoming_pods_total queueing_hint_execution_duration_seconds
        resourceclaim_creates_total schedule_attempts_total scheduling_algorithm_duration_seconds
        scheduling_attempt_duration_seconds store_schedule_results_duration_seconds unschedulable_pods
        volume_binder_cache_requests_total volume_scheduling_stage_error_total
        """,
    )
}
METRIC_KINDS = frozenset({"counter", "gauge", "histogram"})


# What a page holds


def code_lines(text: str) -> list[str]:
    """Fenced and indented lines, without prompts."""
    lines, fenced = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            lines.append(line.strip().removeprefix("$ "))
    return lines


def commands(text: str) -> Iterator[tuple[str, str]]:
    """(`make` or `flotilla`, what follows), from blocks and spans of code."""
    for line in code_lines(text) + SPAN.findall(text):
        found = COMMAND.fullmatch(line)
        if found:
            yield found[1], found[2]


def slug(heading: str) -> str:
    """As GitHub makes an anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def section(page: str, heading: str) -> str:
    _, _, rest = (ROOT / "docs" / page).read_text().partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0]


# What the code says


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def declared_metrics() -> set[str]:
    """The first argument of every call that makes a metric."""
    found: set[str] = set()
    for path in (
        path for folder in ("services", "shared", "testing", "tools") for path in (ROOT / folder).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node.func) in METRIC_KINDS:
                name = node.args[0]
                assert isinstance(name, ast.Constant), f"{path}:{node.lineno}: the metric's name is not written out"
                found.add(str(name.value))
    return found


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


# Everywhere


@BY_NAME
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"there is no {target}"
        if anchor:
            assert anchor in map(slug, HEADING.findall(there.read_text())), f"{target} has no heading for #{anchor}"


@BY_NAME
def test_our_files_that_are_named_exist(page: Path) -> None:
    named = {span for span in SPAN.findall(page.read_text()) if OUR_FILE.fullmatch(span)}
    assert {name for name in named if not (ROOT / name).exists()} == set()


@BY_NAME
def test_commands_that_are_named_exist(page: Path) -> None:
    targets = make_targets()
    for program, rest in commands(page.read_text()):
        words = shlex.split(rest, comments=True)
        if program == "make":
            unknown = {word for word in words if "=" not in word} - targets
            assert not unknown, f"no target: make {rest}"
        elif words[0] not in ("--help", "COMMAND"):
            with pytest.raises(SystemExit) as ended:
                parser().parse_args([words[0], "--help"])
            assert ended.value.code == 0, f"no command: flotilla {rest}"


@BY_NAME
def test_command_lines_are_understood(page: Path) -> None:
    for line in code_lines(page.read_text()):
        found = COMMAND.fullmatch(line)
        if found and found[1] == "flotilla":
            words = shlex.split(found[2], comments=True)
            try:
                parser().parse_args(words)
            except SystemExit as ended:
                assert ended.code == 0, line


def test_readme_begins_with_the_two_commands() -> None:
    lines = code_lines((ROOT / "README.md").read_text())
    assert [line.split("#")[0].strip() for line in lines[:2]] == ["make demo", "make test"]


def test_pre_commit_runs_the_checks_of_make_lint() -> None:
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    for tool in re.findall(r"\$\(BIN\)/([\w-]+(?: format| check)?)", lint):
        assert f".venv/bin/{tool}" in hooks, f"make lint runs {tool}, pre-commit does not"


def test_every_page_can_be_found_from_the_readme() -> None:
    linked = {target for target, _ in LINK.findall((ROOT / "README.md").read_text())}
    assert {str(page.relative_to(ROOT)) for page in PAGES[1:]} <= linked


# Tables


def test_settings_are_those_of_the_code() -> None:
    known = {source.field for source in SOURCES}
    assert known == {field.name for owner in (Settings, ApiSettings) for field in fields(owner)} - {"api"}
    table = settings_table()
    assert table in section("running.md", "Settings"), f"docs/running.md should have:\n\n{table}\n"


def test_state_machines_are_those_of_the_code() -> None:
    assert (ROOT / "docs" / "state-machines.md").read_text() == state_machines.page()


def test_limits_are_those_of_the_code() -> None:
    made = limits.page()
    assert (ROOT / "docs" / "limits.md").read_text() == made, "run: python -m tests.limits > docs/limits.md"


def test_messages_are_those_of_the_code() -> None:
    made = message_table.page()
    assert (ROOT / "docs" / "messages.md").read_text() == made, "run: python -m tests.message_table > docs/messages.md"


def test_metrics_are_those_that_are_declared() -> None:
    told = CELL.findall(section("telemetry.md", "Metrics"))
    assert len(told) == len(set(told)), "a metric stands there twice"
    assert set(told) == declared_metrics()


def test_every_metric_of_kube_scheduler_is_accounted_for() -> None:
    """Of v1.36.2, as its pkg/scheduler/metrics and the plugins register them."""
    ours = {name for name in declared_metrics() if name.startswith("scheduler_")}
    rows = [line.split(" | ") for line in section("telemetry.md", "kube-scheduler's metrics").splitlines()]
    told = {name: row[1] for row in rows if row[0].startswith("| `") for name in re.findall(r"`([^`]+)`", row[0])}
    assert told.keys() == KUBE_SCHEDULER_METRICS
    assert {name for name, has in told.items() if not has.startswith("none")} == ours


def test_subjects_are_those_of_the_bus() -> None:
    constants = {value for name, value in vars(subjects).items() if name.isupper() and isinstance(value, str)}
    constants = {value for value in constants if re.fullmatch(r"[a-z]+\.[a-z]+", value)}
    told = CELL.findall(section("pipeline.md", "Subjects"))
    assert sorted(told) == sorted(constants | {subjects.WATCH, subjects.worker("<name>"), subjects.binder("<name>")})
