"""What a run says in the end, and when memory counts as grown."""

import pytest

from tools.cli.faults.checking import Check
from tools.cli.faults.memory import grown, table
from tools.cli.faults.report import verdicts
from tools.cli.resident import MIB

BEFORE = {"queue": 80 * MIB, "redis-server": 4 * MIB}


def test_every_check_says_at_how_much_it_has_looked() -> None:
    assert verdicts([Check("no pod was bound twice", "3 bindings"), Check("all rests", "")]) == [
        "  ✓ no pod was bound twice (3 bindings)",
        "  ✓ all rests",
    ]


def test_what_does_not_hold_is_told_in_short() -> None:
    lines = verdicts([Check("no pod was bound twice", "9 bindings", [f"pod {i}\n  its story" for i in range(7)])])
    assert lines[0] == "  ✗ no pod was bound twice (9 bindings)"
    assert lines[1:] == [*(f"      pod {i}" for i in range(5)), "      and 2 more"]


@pytest.mark.parametrize(("queue", "redis"), [(80, 4), (115, 20), (10, 1)])
def test_memory_that_is_about_what_it_was_is_fine(queue: int, redis: int) -> None:
    assert not grown(BEFORE, {"queue": queue * MIB, "redis-server": redis * MIB}).broken


def test_memory_that_has_grown_is_told_by_process() -> None:
    check = grown(BEFORE, {"queue": 117 * MIB, "redis-server": 4 * MIB})
    assert check.broken == ["queue had 80 MiB, and has 117 MiB"]
    assert check.count == "84 MiB before, 121 MiB after"


def test_a_process_that_is_gone_is_told() -> None:
    assert grown(BEFORE, {"queue": 80 * MIB}).broken == ["redis-server does not run any more"]


def test_the_table_has_both() -> None:
    assert table(BEFORE, BEFORE)[0].split() == ["queue", "80", "MiB", "80", "MiB"]
