"""docs/auditor.md matches the code."""

from pathlib import Path

from testing.auditor.violations import Invariant

PAGE = Path(__file__).parents[2] / "docs" / "auditor.md"


def test_every_invariant_is_documented() -> None:
    rows = [line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert rows[1:] == [invariant.value for invariant in Invariant]
