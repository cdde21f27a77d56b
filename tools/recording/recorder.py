"""Records a running pipeline: listens on NATS, asks the cycle for its decisions, and writes files of bounded size."""

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO

from shared.bus.subjects import CYCLE_DECISIONS, CYCLE_RECORD, SNAPSHOT_DELTAS
from shared.errors import FlotillaError, UserError
from shared.messages.recording import (
    CommitAnswered,
    DeciderShown,
    PodsShown,
    RecordDecisions,
    RoundDecided,
    SearchDecided,
)
from shared.messages.state import Delta, Heartbeat
from tools import live_state
from tools.recording.anonymize import Pseudonyms
from tools.recording.core import Event as RecorderEvent
from tools.recording.core import Load, RecorderCore, Tick, Write
from tools.recording.file import Entry, Header, RecordingReader, RecordingWriter
from tools.recording.kept import kept
from tools.recording.without_devices import WithoutDevices

LEASE = 15.0
"""Seconds for which the cycle sends its decisions after each request."""
RENEW = 5.0
"""Seconds between two requests."""
FLUSH = 0.5
"""Seconds after which what was heard is in the file."""


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """UserError if the disk takes no more."""
    try:
        yield
    except OSError as cause:
        raise UserError(f"--output: cannot write {path}: {cause.strerror}") from cause


class Files:
    """The newest file of a recording has the given name, the one before it `.1`, and so on up to `.count`."""

    def __init__(self, path: Path, max_size: int, count: int, header: Header, *, force: bool = False) -> None:
        """UserError if the file cannot be written, or exists; `force`: overwrite it."""
        self.size = 0
        """Of all files written."""
        self._path = path
        self._max_size = max_size
        self._count = count
        self._header = header
        self._force = force
        self._part = 0
        self._open()

    @property
    def is_full(self) -> bool:
        return self._writer.size >= self._max_size

    @property
    def may_rotate(self) -> bool:
        return self._count > 0

    def add(self, entry: Entry) -> None:
        self._write(kept(entry))

    def flush(self) -> None:
        before = self._writer.size
        with _writing(self._path):
            self._writer.flush()
        self.size += self._writer.size - before

    def rotate(self) -> None:
        """Begins the next file; the oldest one goes."""
        self.close()
        for number in range(self._count, 0, -1):
            source = self._path if number == 1 else self._numbered(number - 1)
            with suppress(FileNotFoundError):
                source.replace(self._numbered(number))
        self._open()

    def close(self) -> None:
        with _writing(self._path), self._file:
            self.flush()

    def remove(self) -> None:
        if self._path.is_file():
            self._path.unlink()

    def _write(self, entry: Entry) -> None:
        before = self._writer.size
        with _writing(self._path):
            self._writer.add(entry)
        self.size += self._writer.size - before

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _open(self) -> None:
        self._part += 1
        self._file = self._created()
        self._writer = RecordingWriter(self._file)
        self._writer.add(Header(self._header.version, self._header.at, self._part))

    def _created(self) -> IO[bytes]:
        how = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if self._force else os.O_EXCL)
        with _writing(self._path):
            try:
                return os.fdopen(os.open(self._path, how, 0o600), "wb", buffering=1 << 16)
            except FileExistsError:
                raise UserError(
                    f"--output: {self._path} exists: choose another name, or overwrite it with --force"
                ) from None


class AnonymousFile(Files):
    """One file, in memory until it is closed: pseudonyms keep the order of names, so all of these must be known.

    No name ever gets onto the disk.
    """

    def __init__(self, path: Path, max_size: int, header: Header, *, force: bool = False) -> None:
        """UserError if the file cannot be written, or exists; `force`: overwrite it."""
        self._devices = WithoutDevices()
        self._names = Pseudonyms()
        super().__init__(path, max_size, 0, header, force=force)

    def add(self, entry: Entry) -> None:
        """UserError if the entry has something that no pseudonym can stand for."""
        entry = self._devices.of(kept(entry))
        self._names.see(entry)
        self._write(entry)

    def close(self) -> None:
        self.flush()
        self._names.settle()
        self._file.seek(0)
        with _writing(self._path), self._target:
            writer = RecordingWriter(self._target)
            for entry in RecordingReader(self._path).entries_in(self._file):
                writer.add(self._names.of(entry))
            writer.flush()
        self.size = writer.size

    def _created(self) -> IO[bytes]:
        self._target = super()._created()
        return BytesIO()


class Recorder:
    """`rounds`, `pods`: decisions written so far."""

    def __init__(self, client: live_state.Client, files: Files, clock: Callable[[], float] = time.monotonic) -> None:
        self._recording = secrets.token_hex(8)
        self.core = RecorderCore(self._recording)
        self.rounds = self.pods = 0
        self.is_full = False
        """The file has its size, and is not to be rotated."""
        self._client = client
        self._files = files
        self._clock = clock
        self._loading: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._failure: Exception | None = None

    async def run(self) -> None:
        """Until cancelled, or the file is full. ClusterError, and no file, if the state cannot be loaded.

        UserError if the disk is full, or the recording cannot be made anonymous.
        """
        bus = self._client.bus
        deltas = await bus.subscribe(SNAPSHOT_DELTAS, (Delta, Heartbeat), lambda message, _: self._feed(message))
        told = (DeciderShown, PodsShown, RoundDecided, SearchDecided, CommitAnswered)
        decisions = await bus.subscribe(CYCLE_DECISIONS, told, lambda message, _: self._feed(message))
        try:
            for effect in self.core.start():
                self._carry_out(effect)
            renewing = asyncio.create_task(self._renew())
            try:
                await self._ended.wait()
                if self._failure is not None:
                    raise self._failure
            finally:
                renewing.cancel()
        finally:
            if self._loading is not None:
                self._loading.cancel()
            await decisions.close()
            await deltas.close()
            try:
                self._files.close()
            finally:
                if self._failure is not None and not self.core.is_recording:
                    self._files.remove()

    async def _renew(self) -> None:
        """Asks the cycle, once there is a state, and writes what was heard."""
        renew_at = 0.0
        while True:
            now = self._clock()
            if self.core.is_recording and now >= renew_at:
                self._client.bus.post(CYCLE_RECORD, RecordDecisions(self._recording, LEASE))
                renew_at = now + RENEW
            self._feed(Tick())
            try:
                self._files.flush()
            except UserError as cause:
                self._fail(cause)
            await asyncio.sleep(FLUSH)

    def _feed(self, event: RecorderEvent) -> None:
        try:
            for effect in self.core.handle(event, self._clock()):
                self._carry_out(effect)
        except UserError as cause:
            self._fail(cause)

    def _fail(self, cause: Exception) -> None:
        self._failure = self._failure or cause
        self._ended.set()

    def _carry_out(self, effect: Load | Write) -> None:
        match effect:
            case Load():
                self._loading = asyncio.create_task(self._load())
            case Write(entry=entry):
                self._write(entry)

    def _write(self, entry: Entry) -> None:
        if self.is_full:
            return
        if isinstance(entry, RoundDecided | SearchDecided):
            self.rounds += 1
            self.pods += len(entry.pods)
        self._files.add(entry)
        if not self._files.is_full:
            return
        if not self._files.may_rotate:
            self.is_full = True
            self._ended.set()
            return
        self._files.rotate()
        for each in self.core.beginning():
            self._files.add(each)

    async def _load(self) -> None:
        try:
            live = await live_state.load(self._client)
            self._feed(live.state)
        except FlotillaError as cause:
            self._fail(cause)
