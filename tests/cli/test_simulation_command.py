"""The command line of flotilla simulation."""

from pathlib import Path

import pytest

from tools.cli.main import main

HEAD = b"flotilla-simulation seed=1 scene=%s round_size=1 seconds=9\n"


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        HEAD % b"plain" + b"1 2.0 messages share=abc for=1\n",
        HEAD % b"small",
        HEAD % b"plain" + b"1 2.0 luck share=0.1\n",
        HEAD % b"plain" + b"1 2.0 run\n",
        HEAD % b"plain" + b"1 2.0 create_gang\n",
        HEAD % b"plain" + b"1 2.0 kill\n",
        HEAD % b"plain" + b"1 2.0 kill name=w9\n",
        HEAD % b"plain" + b"1 2.0 release name=w1 is=older\n",
    ],
    ids=[
        "not UTF-8",
        "no number",
        "unknown scene",
        "unknown happening",
        "a method of the world that is no happening",
        "a happening of another scene",
        "missing argument",
        "unknown process",
        "unknown release",
    ],
)
def test_an_unreadable_schedule_is_reported_in_one_line(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "schedule"
    file.write_bytes(content)
    assert main(["simulation", "--schedule", str(file)]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"flotilla: --schedule: {file}: ") and errors.count("\n") == 1
