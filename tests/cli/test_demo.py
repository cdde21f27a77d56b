"""flotilla demo: its workload, its output, and a small run from start to end."""

import io
import re
import signal
from pathlib import Path

import aiohttp
import pytest

from shared.errors import UserError
from testing.auditor.violations import Invariant, Violation
from tests.cli.commands import flotilla
from tests.supervisor.waiting import alive
from tests.telemetry.collector import a_collector
from tools.cli.output import Screen
from tools.demo.preemption import PreemptionResult, Preemptor
from tools.demo.progress import Progress, Result, pods_by_place, report
from tools.demo.workload import DemoWorkload

PROGRESS = Progress(
    pods=1_000,
    created=900,
    bound=500,
    seconds=2.0,
    rate=250.0,
    queues={"active": 1_234},
    cpu={"cycle": 0.5, "queue": 0.25},
)


def result(*violations: Violation, bound: int = 1_000) -> Result:
    cpu = {"cycle": 0.1, "worker-0": 0.1, "worker-1": 0.2, "simulator": 0.3}
    return Result(1_000, bound, 2.0, 0.5, 1.5, cpu, violations)


def test_the_workload_is_the_same_for_the_same_seed() -> None:
    one, same, other = (list(DemoWorkload(10, 100, 50, seed).make_pods()) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_the_workload_has_all_features() -> None:
    work = DemoWorkload(1_000, 10_000, 50, 1)
    nodes, specs = list(work.make_nodes()), [pod["spec"] for pod in work.make_pods()]
    assert len(nodes) == 1_000
    assert len({str(spec) for spec in specs}) == 50
    assert sum(bool(node["spec"]["taints"]) for node in nodes) == 100
    for feature in ("nodeSelector", "affinity", "tolerations", "priorityClassName"):
        assert sum(feature in spec for spec in specs) == 2_000
    assert sum("ports" in spec["containers"][0] for spec in specs) == 400


@pytest.mark.parametrize("nodes", [1, 2, 3, 9, 10, 50])
def test_every_kind_of_pod_has_a_node_and_all_pods_fit(nodes: int) -> None:
    work = DemoWorkload(nodes, 60 * nodes, 50, 1)
    labels = [node["metadata"]["labels"] for node in work.make_nodes() if not node["spec"]["taints"]]
    milli = 0
    for pod in work.make_pods():
        wanted = pod["spec"].get("nodeSelector", {})
        assert any(wanted.items() <= each.items() for each in labels)
        milli += int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))
    room = sum(int(node["status"]["allocatable"]["cpu"]) * 1_000 for node in work.make_nodes())
    assert milli < 0.75 * room


def test_more_pods_than_fit_are_rejected() -> None:
    with pytest.raises(UserError, match="--pods: must be at most 60 per node, 60 here, not 61"):
        DemoWorkload(1, 61, 1, 1)


def test_queue_depths_are_read_from_metrics() -> None:
    exposition = (
        "# HELP scheduler_pending_pods Pods that wait, by where.\n"
        'scheduler_pending_pods{queue="active"} 12.0\nscheduler_pending_pods{queue="gated"} 0.0\n'
        'flotilla_queue_pods{place="in-flight"} 3.0\nother{queue="active"} 9.0\n'
    )
    assert pods_by_place(exposition) == {"active": 12, "in flight": 3}
    assert pods_by_place("") == {}


def test_without_a_terminal_progress_lines_are_rare() -> None:
    output = io.StringIO()
    screen = Screen(output)
    for _ in range(3):
        screen.progress(PROGRESS.block(), PROGRESS.line())
    screen.clear()
    assert output.getvalue() == PROGRESS.line() + "\n"
    assert PROGRESS.line() == "  2.0 s  created     900  bound     500     250/s  CPU  75 %  queue: active 1,234"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_block_is_repainted() -> None:
    output = Terminal()
    screen = Screen(output)
    screen.progress(PROGRESS.block(), PROGRESS.line())
    lines = len(PROGRESS.block())
    output.truncate(0)
    screen.progress(PROGRESS.block(), PROGRESS.line())
    assert output.getvalue().lstrip("\0").startswith(f"\x1b[{lines}F")
    output.truncate(0)
    screen.clear()
    assert output.getvalue().lstrip("\0") == f"\x1b[{lines}F\x1b[J\x1b[?25h"


def test_the_block_shows_progress_queue_and_cpu() -> None:
    text = "\n".join(PROGRESS.block())
    assert "█" * 20 + "░" * 20 + "  500 of 1,000 bound" in text
    assert "CPU      cycle   50 %    queue   25 %" in text
    assert "queue    active 1,234" in text


def test_the_report_has_rate_latency_and_cpu_per_pod() -> None:
    lines = report(result())
    assert lines[1:4] == [
        "  1,000 of 1,000 pods bound in 2.0 s: 500 pods/s, latency 0.50 s (median), 1.50 s (p99)",
        "  CPU per pod, services: 400 µs (cycle 100, worker 300)",
        "  CPU per pod, servers: 300 µs (simulator 300)",
    ]
    assert not [line for line in lines if "✗" in line]
    assert result().passed


def test_a_failed_check_is_shown_with_an_example() -> None:
    broken = [Violation(Invariant.CAPACITY, 0.0, "too much", node=f"node-{i}", story=("a story",)) for i in range(3)]
    text = "\n".join(report(result(*broken)))
    assert "  ✗ no node exceeds its capacity" in text
    assert "\n      capacity: node node-0: too much (and 2 more)" in text
    assert text.count("✗") == 1
    assert not result(*broken).passed


@pytest.mark.parametrize("invariant", list(Invariant))
def test_every_violated_invariant_fails_a_check(invariant: Invariant) -> None:
    assert any("✗" in line for line in report(result(Violation(invariant, 0.0, "broken"))))


def test_unbound_pods_do_not_pass() -> None:
    assert not result(bound=999).passed


def preemption(**changes: Preemptor) -> PreemptionResult:
    preemptors = {
        "late-0": Preemptor("0", 0.1, "n0", 0.2, ["a", "b"], {"n0"}),
        "late-1": Preemptor("1", 0.1, "n1", 0.4, ["d", "e"], {"n1"}),
    }
    priorities = {"a": 1, "b": 1, "c": 5, "d": 1, "e": 1, "f": 1}
    nodes = {"a": "n0", "b": "n0", "c": "n0", "d": "n1", "e": "n1", "f": "n1"}
    return PreemptionResult(preemptors | changes, priorities, nodes)


def test_the_preemption_report_counts_victims() -> None:
    lines = preemption().report()
    assert lines[0] == "  2 of 2 pods bound, 4 victims evicted; nominated after 0.10 s, bound after 0.30 s (median)"
    assert preemption().passed
    assert not [line for line in lines if "✗" in line]


PLACE, VAIN, LOWEST = range(3)
"""The checks, by their order."""


@pytest.mark.parametrize(
    ("late", "failing"),
    [
        (Preemptor("1"), {PLACE, VAIN}),
        (Preemptor("1", 0.1, "n0", 0.3, ["d", "e"], {"n1"}), {PLACE}),
        (Preemptor("1", 0.1, "n1", 0.3, ["d", "e", "f"], {"n1"}), {VAIN}),
        (Preemptor("1", 0.1, "n1", 0.3, ["a", "e"], {"n1"}), {VAIN}),
        (Preemptor("1", 0.1, "n0", 0.3, ["c", "e"], {"n0", "n1"}), {PLACE}),
    ],
)
def test_a_wrong_preemption_fails_its_check(late: Preemptor, failing: set[int]) -> None:
    broken = preemption(**{"late-1": late})
    assert {number for number, (_, passed) in enumerate(broken.checks()) if not passed} == failing
    assert not broken.passed


def test_a_victim_of_higher_priority_than_a_survivor_is_reported() -> None:
    broken = preemption(**{"late-0": Preemptor("0", 0.1, "n0", 0.2, ["a", "c"], {"n0"})})
    assert [passed for _, passed in broken.checks()] == [True, True, False]
    assert "  ✗ the victims are the lowest-priority pods of their nodes" in broken.report()


@pytest.mark.asyncio
async def test_a_small_demo_passes_exports_traces_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("demo", "--nodes", "30", "--pods", "300", "--kinds", "25", "--workers", "1", "--round-size", "64")
    with a_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("FLOTILLA_TRACE_RATIO", "1")
        async with flotilla(tmp_path, *arguments, "--late", "4", "--training", "4") as command:
            code = await command.ends()
        text = "\n".join(command.lines)
        names = {each.value.string_value for resource in collector.resources for each in resource.attributes}
        services = ("watcher", "queue", "cycle", "worker", "snapshot", "binder")
        assert {f"flotilla-{service}" for service in services} <= names
        assert code == 0, text
        assert "300 of 300" in text
        assert command.lines[0].endswith("(1 worker, 1 binder, rounds of at most 64 pods)")
        assert "All checks passed." in command.lines[-1]
        assert text.count("✓") == 4 + 3 + 1 + 4 + 1
        assert "  4 of 4 pods bound, 8 victims evicted" in text
        assert "8 jobs evicted" in text
        assert "✗" not in text
        assert "INFO" not in text
        assert list(tmp_path.iterdir()) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("moment", ["starting", "created  "])
async def test_ctrl_c_cleans_up(moment: str, tmp_path: Path) -> None:
    async with flotilla(tmp_path, "demo", "--nodes", "100", "--pods", "5000", "--workers", "1") as command:
        await command.prints(lambda line: moment in line)
        family = command.family()
        command.process.send_signal(signal.SIGINT)
        assert await command.ends() == 130
        assert list(tmp_path.iterdir()) == []
        assert not [process for process in family if alive(process.pid)]


@pytest.mark.asyncio
async def test_pods_that_claim_devices_get_one_each(tmp_path: Path) -> None:
    arguments = ("demo", "--devices", "--nodes", "30", "--pods", "30", "--kinds", "6", "--late", "0", "--console")
    async with flotilla(tmp_path, *arguments) as command:
        code = await command.ends()
        text = "\n".join(command.lines)
        assert code == 0, text
        assert "30 of 30 pods bound" in text
        assert "each of 30 claims has a device (30 do)" in text
        assert "no device has two claims" in text
        assert "✗" not in text


@pytest.mark.asyncio
async def test_on_a_terminal_the_console_stays_until_ctrl_c(tmp_path: Path) -> None:
    small = ("demo", "--nodes", "3", "--pods", "30", "--kinds", "5", "--late", "0", "--workers", "1")
    async with flotilla(tmp_path, *small, "--console", terminal=True) as command:
        told = await command.prints(lambda line: "stays open" in line)
        url = re.findall(r"http://[0-9.:]+/", told)[0]
        async with aiohttp.ClientSession() as session, session.get(url) as page:
            assert page.status == 200
        assert any("All checks passed" in line for line in command.lines)
        command.process.send_signal(signal.SIGINT)
        assert await command.ends() == 0
        assert list(tmp_path.iterdir()) == []


def test_more_claims_than_devices_are_rejected() -> None:
    DemoWorkload(30, 40, 6, 1, devices=True)
    with pytest.raises(UserError, match="with --devices at most 40 for 30 nodes, not 41"):
        DemoWorkload(30, 41, 6, 1, devices=True)
