"""The verdict of a run, and memory growth."""

import pytest

from tools.cli.processes import MIB
from tools.faults.checks import Check, memory_growth, memory_table, verdicts

BEFORE = {"queue": 80 * MIB, "redis-server": 4 * MIB}


def test_a_verdict_shows_how_much_was_checked() -> None:
    assert verdicts([Check("no pod was bound twice", "3 bindings"), Check("idle", "")]) == [
        "  ✓ no pod was bound twice (3 bindings)",
        "  ✓ idle",
    ]


def test_failures_are_shortened() -> None:
    lines = verdicts([Check("no pod was bound twice", "9 bindings", [f"pod {i}\n  its story" for i in range(7)])])
    assert lines[0] == "  ✗ no pod was bound twice (9 bindings)"
    assert lines[1:] == [*(f"      pod {i}" for i in range(5)), "      and 2 more"]


@pytest.mark.parametrize(("queue", "redis"), [(80, 4), (115, 20), (10, 1)])
def test_small_memory_growth_is_allowed(queue: int, redis: int) -> None:
    assert not memory_growth(BEFORE, {"queue": queue * MIB, "redis-server": redis * MIB}).broken


def test_memory_growth_is_reported_by_process() -> None:
    check = memory_growth(BEFORE, {"queue": 117 * MIB, "redis-server": 4 * MIB})
    assert check.broken == ["queue grew from 80 MiB to 117 MiB"]
    assert check.count == "84 MiB before, 121 MiB after"


def test_a_missing_process_is_reported() -> None:
    assert memory_growth(BEFORE, {"queue": 80 * MIB}).broken == ["redis-server is no longer running"]


def test_the_memory_table_shows_before_and_after() -> None:
    assert memory_table(BEFORE, BEFORE)[0].split() == ["queue", "80", "MiB", "80", "MiB"]
