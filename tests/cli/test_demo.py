"""flotilla demo: what it makes up, what it shows, and a small one from start to end."""

import io
import signal
from pathlib import Path

import pytest

from shared.errors import UserError
from testing.auditor.violations import Invariant, Violation
from tests.cli.commands import flotilla
from tests.supervisor.waiting import alive
from tools.cli.demo.overtaking import Late, Overtaken, overtaken_lines
from tools.cli.demo.queues import pods_by_place
from tools.cli.demo.report import Result, report
from tools.cli.demo.screen import Progress, Screen, block, one_line, table
from tools.cli.demo.workload import Workload

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
    cpu = {"cycle": 0.1, "queue": 0.2, "simulator": 0.3}
    return Result(1_000, bound, 2.0, 500.0, 0.5, 1.5, cpu, violations)


def test_the_workload_is_the_same_for_the_same_seed() -> None:
    one, same, other = (list(Workload(10, 100, 50, seed).make_pods()) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_the_workload_has_something_of_everything() -> None:
    work = Workload(1_000, 10_000, 50, 1)
    nodes, specs = list(work.make_nodes()), [pod["spec"] for pod in work.make_pods()]
    assert len(nodes) == 1_000
    assert len({str(spec) for spec in specs}) == 50
    assert sum(bool(node["spec"]["taints"]) for node in nodes) == 100
    for feature in ("nodeSelector", "affinity", "tolerations", "priorityClassName"):
        assert sum(feature in spec for spec in specs) == 2_000
    assert sum("ports" in spec["containers"][0] for spec in specs) == 400


@pytest.mark.parametrize("nodes", [1, 2, 3, 9, 10, 50])
def test_every_kind_of_pod_has_a_node_and_all_fit_in_total(nodes: int) -> None:
    work = Workload(nodes, 60 * nodes, 50, 1)
    labels = [node["metadata"]["labels"] for node in work.make_nodes() if not node["spec"]["taints"]]
    milli = 0
    for pod in work.make_pods():
        wanted = pod["spec"].get("nodeSelector", {})
        assert any(wanted.items() <= each.items() for each in labels)
        milli += int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))
    room = sum(int(node["status"]["allocatable"]["cpu"]) * 1_000 for node in work.make_nodes())
    assert milli < 0.75 * room


def test_more_pods_than_fit_are_refused() -> None:
    with pytest.raises(UserError, match="--pods: takes at most 60 a node, 60 here, not 61"):
        Workload(1, 61, 1, 1)


def test_queue_depths_are_read_from_metrics() -> None:
    exposition = (
        "# HELP scheduler_pending_pods Pods that wait, by where.\n"
        'scheduler_pending_pods{queue="active"} 12.0\nscheduler_pending_pods{queue="gated"} 0.0\n'
        'flotilla_queue_pods{place="in-flight"} 3.0\nother{queue="active"} 9.0\n'
    )
    assert pods_by_place(exposition) == {"active": 12, "in flight": 3}
    assert pods_by_place("") == {}


def test_without_a_terminal_there_are_plain_lines_now_and_then() -> None:
    output = io.StringIO()
    screen = Screen(output)
    for _ in range(3):
        screen.show(PROGRESS)
    screen.clear()
    assert output.getvalue() == one_line(PROGRESS) + "\n"
    assert one_line(PROGRESS) == "  2.0 s  created     900  bound     500     250/s  CPU  75 %  active 1,234"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_block_is_painted_over_itself() -> None:
    output = Terminal()
    screen = Screen(output)
    screen.show(PROGRESS)
    lines = len(block(PROGRESS))
    output.truncate(0)
    screen.show(PROGRESS)
    assert output.getvalue().lstrip("\0").startswith(f"\x1b[{lines}F")
    output.truncate(0)
    screen.clear()
    assert output.getvalue().lstrip("\0") == f"\x1b[{lines}F\x1b[J\x1b[?25h"


def test_the_block_shows_how_far_it_is() -> None:
    text = "\n".join(block(PROGRESS))
    assert "█" * 20 + "░" * 20 + "  500 of 1,000 bound" in text
    assert "CPU      cycle   50 %    queue   25 %" in text
    assert "queue    active 1,234" in text


def test_tables_are_aligned() -> None:
    assert table([("a", "1"), ("long", "1,000")]) == ["  a         1", "  long  1,000"]


def test_the_report_has_the_cost_a_pod() -> None:
    text = "\n".join(report(result()))
    assert "pods bound" in text
    assert "✗" not in text
    costs = [line.split() for line in text.splitlines() if "µs" in line]
    assert costs == [
        ["cycle", "100", "µs"],
        ["queue", "200", "µs"],
        ["all", "services", "300", "µs"],
        ["simulator", "300", "µs"],
        ["everything", "600", "µs"],
    ]
    assert result().held


def test_what_did_not_hold_is_shown_with_an_example() -> None:
    broken = [Violation(Invariant.CAPACITY, 0.0, "too much", node=f"node-{i}", story=("a story",)) for i in range(3)]
    text = "\n".join(report(result(*broken)))
    assert "  ✗ no node holds more than its allocatable\n      capacity: node node-0: too much (and 2 more)" in text
    assert text.count("✗") == 1
    assert not result(*broken).held


@pytest.mark.parametrize("invariant", list(Invariant))
def test_every_invariant_is_shown_when_broken(invariant: Invariant) -> None:
    assert any("✗" in line for line in report(result(Violation(invariant, 0.0, "broken"))))


def test_pods_that_are_not_bound_do_not_pass() -> None:
    assert not result(bound=999).held


def overtaken(**changes: Late) -> Overtaken:
    late = {
        "late-0": Late("0", 0.1, "n0", 0.2, ["a", "b"], {"n0"}),
        "late-1": Late("1", 0.1, "n1", 0.3, ["d", "e"], {"n1"}),
    }
    priorities = {"a": 1, "b": 1, "c": 5, "d": 1, "e": 1, "f": 1}
    places = {"a": "n0", "b": "n0", "c": "n0", "d": "n1", "e": "n1", "f": "n1"}
    return Overtaken(late | changes, priorities, places)


def test_the_second_scene_tells_who_made_way_for_whom() -> None:
    lines = overtaken_lines(overtaken())
    first = "  late-0  on n0: nominated after 0.10 s, bound after 0.20 s, instead of a (priority 1), b (priority 1)"
    assert first in lines
    assert "pods that made way 4" in [" ".join(line.split()) for line in lines]
    assert overtaken().held
    assert not [line for line in lines if "✗" in line]


@pytest.mark.parametrize(
    ("late", "complaint"),
    [
        (Late("1"), "every pod of high priority is bound"),
        (Late("1", 0.1, "n0", 0.3, ["d", "e"], {"n1"}), "each got the node on which others made way for it"),
        (Late("1", 0.1, "n1", 0.3, ["d", "e", "f"], {"n1"}), "nobody made way in vain"),
        (Late("1", 0.1, "n1", 0.3, ["a", "e"], {"n1"}), "nobody made way for two"),
        (Late("1", 0.1, "n0", 0.3, ["c", "e"], {"n0", "n1"}), "each got the node on which others made way for it"),
    ],
)
def test_what_did_not_hold_in_the_second_scene_is_shown(late: Late, complaint: str) -> None:
    broken = overtaken(**{"late-1": late})
    assert f"  ✗ {complaint}" in overtaken_lines(broken)
    assert not broken.held


def test_somebody_important_who_made_way_is_noticed() -> None:
    broken = overtaken(**{"late-0": Late("0", 0.1, "n0", 0.2, ["a", "c"], {"n0"})})
    assert "  ✗ on each node the least important made way" in overtaken_lines(broken)


@pytest.mark.asyncio
async def test_a_small_demo_binds_all_checks_all_and_leaves_nothing(tmp_path: Path) -> None:
    arguments = ("demo", "--nodes", "30", "--pods", "300", "--kinds", "25", "--workers", "1", "--round-size", "64")
    async with flotilla(tmp_path, *arguments, "--late", "4") as command:
        code = await command.ends()
        text = "\n".join(command.lines)
        assert code == 0, text
        assert "300 of 300" in text
        assert text.count("✓") == 6 + 5 + 6
        assert "pods of high priority bound 4 of 4" in [" ".join(line.split()) for line in command.lines]
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
