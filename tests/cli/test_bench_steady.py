"""flotilla bench-pipeline --rate: its figures, and a small run from start to end."""

import os
import re
import select
from pathlib import Path

import pytest

from tests.cli.commands import flotilla
from tools.bench.steady.bench import Figures, lines_of
from tools.bench.steady.costs import Costs, added_up, voluntary_switches
from tools.bench.steady.load import percentile
from tools.bench.steady.pages import Pairs, Turn
from tools.cli.main import main

BEFORE = Costs(cpu={"cycle": 1.0}, messages={"watch": 10.0}, calls={"POST": 5.0, "PUT": 2.0})
AFTER = Costs(
    cpu={"cycle": 1.5, "worker-0": 0.25, "worker-1": 0.25},
    switches={"cycle": 300.0},
    messages={"watch": 110.0},
    bytes={"watch": 5_000.0},
    commands={"hset": 200.0},
    calls={"POST": 205.0, "PUT": 2.0},
)
METRICS = """\
# HELP flotilla_bus_messages_total Messages received and sent.
# TYPE flotilla_bus_messages_total counter
flotilla_bus_messages_total{direction="out",subject="watch"} 3.0
flotilla_bus_messages_total{direction="in",subject="watch"} 7.0
flotilla_bus_messages_total{direction="out",subject="reply"} 1.0
flotilla_bus_messages_created{direction="out",subject="watch"} 1.7e+09
"""


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2.0), (0.75, 3.0), (0.9, 4.0), (0.99, 4.0), (0.01, 1.0)])
def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed(share: float, expected: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], share) == expected


def test_a_percentile_of_nothing_is_zero() -> None:
    assert percentile([], 0.5) == 0.0


def test_counters_of_several_processes_add_up_by_a_label() -> None:
    assert added_up([METRICS, METRICS], "flotilla_bus_messages_total", "subject", {"direction": "out"}) == {
        "watch": 6.0,
        "reply": 2.0,
    }


def test_costs_are_differences_and_what_has_not_changed_is_left_out() -> None:
    costs = AFTER.since(BEFORE)
    assert costs.cpu == {"cycle": 0.5, "worker-0": 0.25, "worker-1": 0.25}
    assert costs.messages == {"watch": 100.0}
    assert costs.calls == {"POST": 200.0}


def test_costs_are_printed_per_pod() -> None:
    run = Figures(rate=50, pods=100, latencies=[0.01, 0.02, 0.03], costs=AFTER.since(BEFORE))
    text = "\n".join(lines_of(run))
    assert "50/s, 100 pods: created to bound p50 20 ms, p90 30 ms, p99 30 ms" in text
    head, cpu = (line.split() for line in text.splitlines()[2:4])
    assert cpu[4 + head.index("cycle")] == "5000"
    assert cpu[4 + head.index("workers")] == "5000"
    assert cpu[-1] == "10000"
    assert "messages a pod: 1.00, 50 bytes" in text
    assert "Redis commands a pod: hset 2.00" in text
    assert "API calls a pod: POST 2.00" in text


def test_switches_are_those_of_a_process_and_none_of_one_that_is_gone() -> None:
    before = voluntary_switches(os.getpid())
    select.select([], [], [], 0.001)  # gives the CPU up
    assert voluntary_switches(os.getpid()) > before
    assert voluntary_switches(2**22 + 1) == 0


@pytest.mark.asyncio
async def test_a_small_run_prints_latency_and_costs(tmp_path: Path) -> None:
    arguments = ("--rate", "40", "--seconds", "1", "--nodes", "20", "--classes", "2")
    async with flotilla(tmp_path, "bench-pipeline", *arguments) as command:
        code = await command.ends()
    assert code == 0, command.lines
    text = "\n".join(command.lines)
    assert re.search(r"^idle: \d+\.\d % of a core$", text, re.MULTILINE)
    assert re.search(r"^40/s, 40 pods: created to bound p50 \d+ ms, p90 \d+ ms, p99 \d+ ms$", text, re.MULTILINE)
    assert re.search(r"^  API calls a pod: POST 2\.\d\d", text, re.MULTILINE)


def test_a_cluster_of_ones_own_is_only_for_steady_rates(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench-pipeline", "--kubeconfig", "somewhere"]) == 2
    assert "--kubeconfig: only with --rate" in capsys.readouterr().err


def test_pairs_tell_how_much_more_a_page_costs() -> None:
    def turn(cpu: float, page: int | None = None, replies: float = 10.0) -> Turn:
        used = {"cycle": cpu, "nats": 0.1, "console": 0.5, "simulator": 9.0}
        return Turn(1_000, 10.0, Costs(cpu=used, messages={"reply": replies, "watch": 5.0}), page)

    pairs = Pairs([turn(0.9), turn(1.9)], [turn(1.0, 100, 30.0), turn(1.9, 100, 30.0)])
    assert list(pairs.lines()) == [
        "  CPU of services and servers, us a pod",
        "    without a page: 1000, 2000; with one: 1100, 2000",
        "    % more with one, by pair: +10.0, +0.0",
        "    mean +5.0 ± 5.0, median +5.0",
        "  console: 50.0 ms of CPU a second; the page gets 10 bytes a second",
        "  messages a second that services send in addition: reply 2.00",
    ]
