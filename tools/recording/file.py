"""The file of a recording.

    magic line | frame | frame | ...       frame: length, checksum, then that many bytes of zlib

A frame holds a msgpack list of entries. The first one of a file is its header, then come the decider and a state; the
other entries follow in the order in which the recorder got them. Each frame can be read without the ones before it. A
file that ends within a frame was cut off there.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, get_args

import msgspec

from shared.errors import FlotillaError
from shared.messages.recording import CommitAnswered, DeciderShown, PodsShown, RoundDecided, SearchDecided
from shared.messages.state import Delta, Heartbeat, State
from shared.model.base import Count, Seconds
from shared.model.objects import dec_hook, encode_msgpack

MAGIC = b"flotilla recording 1\n"
FRAME = struct.Struct(">II")
FULL_FRAME = 1 << 18
"""Bytes before compression at which a frame is written: larger ones hardly get smaller."""
LARGEST_FRAME = 1 << 30
"""Bytes before compression; a larger one is not read."""


class Header(msgspec.Struct, frozen=True, omit_defaults=True, tag="header"):
    """`version`: of the Flotilla that recorded. `at`: Unix time. `part`: of a recording in several files, from 1."""

    version: str
    at: Seconds
    part: Count = 1


class Gap(msgspec.Struct, frozen=True, omit_defaults=True, tag="gap"):
    """Something is missing here. After lost deltas a state follows."""

    lost: str
    at: Seconds = 0.0


Entry = (
    Header | Gap | State | Delta | Heartbeat | DeciderShown | PodsShown | RoundDecided | SearchDecided | CommitAnswered
)
ENTRIES: tuple[type[Entry], ...] = get_args(Entry)
_DECODER = msgspec.msgpack.Decoder(list[Entry], dec_hook=dec_hook)


class UnreadableRecording(FlotillaError):
    """A file is not a recording, or not one that this release reads."""


class RecordingWriter:
    """Writes entries to a file, in frames. Its size is what it has written, without the frame that is not full yet."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._waiting: list[msgspec.Raw] = []
        self._waiting_bytes = 0
        self.size = len(MAGIC)
        file.write(MAGIC)

    def add(self, entry: Entry) -> None:
        raw = encode_msgpack(entry)
        self._waiting.append(msgspec.Raw(raw))
        self._waiting_bytes += len(raw)
        if self._waiting_bytes >= FULL_FRAME:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        packed = zlib.compress(msgspec.msgpack.encode(self._waiting))
        self._waiting, self._waiting_bytes = [], 0
        self._file.write(FRAME.pack(len(packed), zlib.crc32(packed)) + packed)
        self._file.flush()
        self.size += FRAME.size + len(packed)


class RecordingReader:
    """Reads the entries of a file. `damage`: what is wrong with it, as far as it has been read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damage: list[str] = []

    def entries(self) -> Iterator[Entry]:
        """UnreadableRecording if it is no recording; frames that are damaged are skipped."""
        try:
            with self._path.open("rb") as file:
                yield from self.entries_in(file)
        except OSError as cause:
            raise UnreadableRecording(f"{self._path}: cannot be read: {cause.strerror}") from cause

    def entries_in(self, file: IO[bytes]) -> Iterator[Entry]:
        """Likewise, of what an open file has."""
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            raise UnreadableRecording(f"{self._path}: {_why_not(magic)}")
        for number, frame in enumerate(self._frames(file), 1):
            yield from self._decoded(number, frame)

    def _frames(self, file: IO[bytes]) -> Iterator[bytes | None]:
        """None for a frame with a wrong checksum."""
        while head := file.read(FRAME.size):
            length, checksum = FRAME.unpack(head) if len(head) == FRAME.size else (LARGEST_FRAME, 0)
            packed = file.read(length) if length < LARGEST_FRAME else b""
            if len(packed) < length:
                self.damage.append("the file was cut off within its last frame")
                return
            yield packed if zlib.crc32(packed) == checksum else None

    def _decoded(self, number: int, frame: bytes | None) -> Iterator[Entry]:
        try:
            if frame is None:
                raise ValueError("its checksum is wrong")
            unpacker = zlib.decompressobj()
            plain = unpacker.decompress(frame, LARGEST_FRAME)
            if unpacker.unconsumed_tail:
                raise ValueError(f"it holds more than {LARGEST_FRAME} bytes")
            entries = _DECODER.decode(plain)
        except (ValueError, zlib.error, RecursionError) as cause:
            self.damage.append(f"frame {number} cannot be read: {cause}")
            yield Gap(f"frame {number} of the file")
            return
        yield from entries


def _why_not(magic: bytes) -> str:
    if magic.startswith(MAGIC.rpartition(b" ")[0]):
        return f"is a recording of a later release ({magic.decode(errors='replace').strip()!r})"
    return "is no recording: write one with flotilla record"
