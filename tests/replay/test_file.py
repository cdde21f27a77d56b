"""The file of a recording: what is written can be read, and damage is named and not fatal."""

from pathlib import Path

import pytest

from shared.messages.recording import PodsShown, RecordedPod
from shared.messages.state import Delta, NodeUpserted, ObjectUpserted
from shared.model.base import LAST_APPLIED
from shared.model.objects import ObjectKind, object_from, pod_from_msgpack
from testing.builders import node, pod
from testing.inprocess.batches import queued_pod
from tools.cli.main import main
from tools.recording.file import FRAME, MAGIC, Entry, Gap, Header, RecordingReader, RecordingWriter, UnreadableRecording
from tools.recording.kept import kept

ENTRIES: list[Entry] = [
    Header("1.0", 1.5),
    Delta(1, 2, [NodeUpserted(node("a").capacity(cpu=1).build())]),
    Gap("deltas from 3"),
]


def written(path: Path) -> Path:
    """A frame for each entry."""
    with path.open("wb") as file:
        writer = RecordingWriter(file)
        for entry in ENTRIES:
            writer.add(entry)
            writer.flush()
    assert writer.size == path.stat().st_size
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    reader = RecordingReader(written(tmp_path / "r"))
    assert list(reader.entries()) == ENTRIES
    assert reader.damage == []


def test_a_file_may_end_anywhere(tmp_path: Path) -> None:
    whole = written(tmp_path / "r").read_bytes()
    cut = tmp_path / "cut"
    for size in range(len(MAGIC), len(whole)):
        cut.write_bytes(whole[:size])
        reader = RecordingReader(cut)
        read = list(reader.entries())
        assert read == ENTRIES[: len(read)]
        at_a_frame = size == len(MAGIC) or (len(read) and _length(read, tmp_path) == size)
        assert bool(reader.damage) != bool(at_a_frame), f"{size} bytes"


def _length(entries: list[Entry], folder: Path) -> int:
    with (folder / "part").open("wb") as file:
        writer = RecordingWriter(file)
        for entry in entries:
            writer.add(entry)
            writer.flush()
    return writer.size


def test_a_damaged_frame_is_a_gap(tmp_path: Path) -> None:
    path = written(tmp_path / "r")
    damaged = bytearray(path.read_bytes())
    damaged[len(MAGIC) + FRAME.size + 3] ^= 1
    path.write_bytes(damaged)
    reader = RecordingReader(path)
    assert list(reader.entries()) == [Gap("frame 1 of the file"), *ENTRIES[1:]]
    assert reader.damage == ["frame 1 cannot be read: its checksum is wrong"]


@pytest.mark.parametrize(
    ("content", "why"), [(b"kind: Pod\n", "is no recording"), (b"flotilla recording 2\n...", "of a later release")]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(UnreadableRecording, match=why):
        list(RecordingReader(path).entries())
    assert main(["replay", str(path)]) == 2
    assert why in capsys.readouterr().err


def test_what_deciding_does_not_read_is_not_kept() -> None:
    shown = pod("p").request(cpu="1").build()
    annotated = pod_from_msgpack(queued_pod(shown).pod)
    annotated.metadata.annotations["token"] = "hunter2"
    entry = kept(PodsShown(1, "c", 1, [RecordedPod("p", queued_pod(annotated))]))
    assert isinstance(entry, PodsShown)
    assert pod_from_msgpack(entry.pods[0].queued.pod) == shown
    annotations = {LAST_APPLIED: "hunter2", "pv.kubernetes.io/bind-completed": "yes"}
    claim = object_from(ObjectKind.PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": "c", "annotations": annotations}})
    delta = kept(Delta(1, 2, [ObjectUpserted(claim)]))
    assert isinstance(delta, Delta)
    (change,) = delta.changes
    assert isinstance(change, ObjectUpserted)
    assert change.object.metadata.annotations == {"pv.kubernetes.io/bind-completed": "yes"}
