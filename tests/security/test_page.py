"""docs/security.md: every promise names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()


def test_every_cannot_is_shown_by_a_test() -> None:
    tables = [table for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE) if "cannot" in table.splitlines()[0]]
    rows = [row for table in tables for row in table.splitlines()[2:]]
    assert len(rows) > 20
    for row in rows:
        assert re.search(r"`tests/\S+\.py::test_\w+` \|$", row), row


def test_the_tests_that_are_named_exist() -> None:
    for path, name in re.findall(r"`(tests/\S+\.py)::(\w+)`", PAGE):
        assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"
