"""flotilla simulation, as it is typed."""

from pathlib import Path

import pytest

from tools.cli.main import main


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"flotilla-simulation seed=1 scene=small round_size=1 seconds=9\n1 2.0 luck share=abc\n"],
    ids=["not UTF-8", "no number"],
)
def test_a_schedule_that_cannot_be_read_is_one_line(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "schedule"
    file.write_bytes(content)
    assert main(["simulation", "--schedule", str(file)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"flotilla: --schedule: {file}: ") and told.count("\n") == 1
