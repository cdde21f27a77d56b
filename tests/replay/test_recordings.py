"""Every recording in tests/recordings is decided again without a difference.

They are of real pipelines with a round size of 1, so that the answer is the same however the nodes are divided. To add
one: flotilla record --output tests/recordings/NAME.rec.
"""

from pathlib import Path

import pytest

from tools.recording.file import RecordingReader
from tools.replay.replay import Replay

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*.rec"))
MAX_SIZE = 200_000
"""Bytes: they are part of every clone."""
MISSING = {"restarted-cycle": ["the decisions between two cycles"]}
HAVE = {"demo": {"placed", "nominated"}, "gangs-and-spreading": {"placed", "nominated"}, "restarted-cycle": {"placed"}}


def test_there_are_recordings() -> None:
    assert {path.stem for path in RECORDINGS} >= HAVE.keys()


@pytest.mark.parametrize("shards", [1, 2, 7])
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_replay_shows_no_difference(path: Path, shards: int) -> None:
    assert path.stat().st_size < MAX_SIZE
    reader = RecordingReader(path)
    found = Replay(shards).take_all(reader.entries())
    assert not found.differences, "\n".join(each.text() for each in found.differences[:5])
    assert reader.damage == []
    assert not found.incomparable
    assert found.gaps == MISSING.get(path.stem, [])
    assert HAVE.get(path.stem, set()) <= found.verdicts.keys()
