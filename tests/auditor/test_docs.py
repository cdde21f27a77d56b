"""The page about the auditor speaks of what there is."""

from pathlib import Path

from testing.auditor.violations import Invariant

PAGE = Path(__file__).parents[2] / "docs" / "auditor.md"


def test_every_invariant_has_its_row() -> None:
    rows = [line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert rows[1:] == [invariant.value for invariant in Invariant]
