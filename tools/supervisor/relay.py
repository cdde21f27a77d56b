"""Passes on the output of processes line by line: with the name of the process for people, or as JSON."""

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, TextIO

MAX_LINE_BYTES = 8_192
"""Longer lines are cut."""
MAX_LINES = 10_000
"""The last lines that are kept."""
CHUNK = 65_536
OURSELVES = "flotilla"
TRACEBACK = "Traceback (most recent call last)"
INSIDE_TRACEBACK = re.compile(r"[ |+]|$")
COMPLAINT = re.compile(r"flotilla( [a-z-]+)?: ")
"""Begins the line in which a service, or the simulator, says why it ends."""

Level = Literal["info", "warning", "error"]


class Relay:
    def __init__(self, output: TextIO, *, as_json: bool, width: int = 0) -> None:
        """`width`: of the longest name, so that lines are aligned."""
        self._output = output
        self._as_json = as_json
        self._width = max(width, len(OURSELVES))
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._last: dict[str, str] = {}
        self._tracing: set[str] = set()
        """Processes in the middle of a traceback."""

    @property
    def lines(self) -> list[str]:
        """The last lines, each as `name | line`."""
        return list(self._lines)

    def last_of(self, name: str) -> str:
        """The message in the last line of a process."""
        return self._last.get(name, "")

    def tell(self, text: str, level: Level = "info") -> None:
        """Write a line of our own."""
        self.pass_on(OURSELVES, text, level)

    def pass_on(self, name: str, line: str, level: Level | None = None) -> None:
        """`level`: of a line that is not JSON; None: derived from the line."""
        if not line.strip():
            return
        self._last[name] = message_in(line) or self._last.get(name, "")
        level = level or self._level_of(name, line)
        prefixed = f"{name:<{self._width}} | {line}"
        self._lines.append(prefixed)
        # The pipeline runs on when its output is closed.
        with suppress(OSError, ValueError):
            print(self._as_json_line(name, line, level) if self._as_json else prefixed, file=self._output, flush=True)

    def _level_of(self, name: str, line: str) -> Level:
        """A traceback goes on until a line that is neither indented, nor framed, nor the exception that ends it."""
        traced = name in self._tracing
        if TRACEBACK in line:
            self._tracing.add(name)
            return "error"
        if traced and not INSIDE_TRACEBACK.match(line):
            self._tracing.discard(name)
        return "error" if traced or COMPLAINT.match(line) else "info"

    def _as_json_line(self, name: str, line: str, level: Level) -> str:
        if line.startswith("{") and line.endswith("}"):
            return line
        clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return json.dumps({"time": clock, "level": level, "service": name, "name": name, "message": line})

    async def follow(self, name: str, stream: asyncio.StreamReader) -> None:
        """Pass lines on until the stream ends."""
        cutter = LineCutter()
        while chunk := await stream.read(CHUNK):
            for line in cutter.feed(chunk):
                self.pass_on(name, line)
        for line in cutter.feed(b"\n"):
            self.pass_on(name, line)


class LineCutter:
    """Cuts bytes into lines. A line that is too long is cut, and its end says so."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._dropped = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield self._take()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._line)
        self._line += piece[:room]
        self._dropped += max(0, len(piece) - room)

    def _take(self) -> str:
        line = self._line.decode(errors="replace").rstrip("\r")
        if self._dropped:
            line += f" ... ({self._dropped} bytes more)"
        self._line, self._dropped = bytearray(), 0
        return line


def message_in(line: str) -> str:
    """The message of a log line, or the line that names its exception. Empty for a line of decoration only."""
    entry: object = None
    if line.startswith("{"):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
    if isinstance(entry, dict) and "message" in entry:
        texts = [*str(entry["message"]).splitlines(), *str(entry.get("exception", "")).splitlines()]
        return next((text for text in map(_undecorated, reversed(texts)) if text), "")
    return _undecorated(line)


def _undecorated(line: str) -> str:
    """Without the frame that Python draws around groups of exceptions."""
    return line.strip().lstrip("|+- ").rstrip("-+ ")
