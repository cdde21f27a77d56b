"""Every recording in tests/recordings is decided again without a difference.

With a round size of 1 that holds however the nodes are divided, and so these are divided otherwise as well. To add one:
flotilla replay FILE --as-test NAME.
"""

from pathlib import Path

import pytest

from tools.cli.replay import LARGEST_TEST
from tools.recording.file import RecordingReader
from tools.replay.replay import Comparison, Replay

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*.rec"))
MISSING = {"restarted-cycle": ["the decisions between two cycles"]}
HAVE = {"demo": {"placed", "nominated"}, "gangs-and-spreading": {"placed", "nominated"}, "restarted-cycle": {"placed"}}
OTHERWISE = 3
"""Workers; the recorded ones are mostly 2."""


def test_there_are_recordings() -> None:
    assert {path.stem for path in RECORDINGS} >= HAVE.keys()


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_replay_shows_no_difference(path: Path) -> None:
    assert path.stat().st_size <= LARGEST_TEST
    replay, found = replayed(path)
    assert found.gaps == MISSING.get(path.stem, [])
    assert HAVE.get(path.stem, set()) <= found.verdicts.keys()
    if replay.decisions is not None and replay.decisions.round_size == 1:
        _, otherwise = replayed(path, OTHERWISE)
        assert otherwise.verdicts == found.verdicts


def replayed(path: Path, shards: int | None = None) -> tuple[Replay, Comparison]:
    reader, replay = RecordingReader(path), Replay(shards)
    found = replay.take_all(reader.entries())
    assert not found.differences, "\n".join(each.text() for each in found.differences[:5])
    assert reader.damage == []
    assert not found.incomparable
    assert found.decisions
    return replay, found
