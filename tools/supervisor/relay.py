"""What processes say, passed on line by line: with the speaker's name for people, untouched as JSON for machines."""

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, TextIO

LONGEST_LINE = 8_192
"""Bytes of a line that are passed on."""
MOST_LINES = 10_000
"""So many of the last lines are kept."""
CHUNK = 65_536
OURSELVES = "flotilla"
TRACEBACK = "Traceback (most recent call last)"
INSIDE_TRACEBACK = re.compile(r"[ |+]|$")
COMPLAINT = re.compile(r"flotilla( [a-z-]+)?: ")
"""Begins a line with which a service, or the simulator, says why it ends."""

Level = Literal["info", "warning", "error"]


class Relay:
    def __init__(self, output: TextIO, *, as_json: bool, width: int = 0) -> None:
        """`width`: that of the longest name, so that the lines begin below each other."""
        self._output = output
        self._as_json = as_json
        self._width = max(width, len(OURSELVES))
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._last: dict[str, str] = {}
        self._tracing: set[str] = set()
        """Who is in the middle of a traceback."""

    @property
    def lines(self) -> list[str]:
        """The last lines, each as `name | line`."""
        return list(self._lines)

    def last_of(self, name: str) -> str:
        """The last that a process said, without what surrounds the message."""
        return self._last.get(name, "")

    def tell(self, text: str, level: Level = "info") -> None:
        """Our own word among those of the processes."""
        self.pass_on(OURSELVES, text, level)

    def pass_on(self, name: str, line: str, level: Level | None = None) -> None:
        """`level`: of a line that is not JSON; None: found by what the line looks like."""
        if not line.strip():
            return
        self._last[name] = message_in(line) or self._last.get(name, "")
        level = level or self._level_of(name, line)
        prefixed = f"{name:<{self._width}} | {line}"
        self._lines.append(prefixed)
        # When nobody reads any more, the processes are still to be minded.
        with suppress(OSError, ValueError):
            print(self._for_machines(name, line, level) if self._as_json else prefixed, file=self._output, flush=True)

    def _level_of(self, name: str, line: str) -> Level:
        """A traceback goes on until a line that is neither indented, nor framed, nor the exception that ends it."""
        traced = name in self._tracing
        if TRACEBACK in line:
            self._tracing.add(name)
            return "error"
        if traced and not INSIDE_TRACEBACK.match(line):
            self._tracing.discard(name)
        return "error" if traced or COMPLAINT.match(line) else "info"

    def _for_machines(self, name: str, line: str, level: Level) -> str:
        if line.startswith("{") and line.endswith("}"):
            return line
        clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return json.dumps({"time": clock, "level": level, "service": name, "name": name, "message": line})

    async def follow(self, name: str, stream: asyncio.StreamReader) -> None:
        """Passes lines on until the stream ends."""
        cutter = LineCutter()
        while chunk := await stream.read(CHUNK):
            for line in cutter.feed(chunk):
                self.pass_on(name, line)
        for line in cutter.feed(b"\n"):
            self.pass_on(name, line)


class LineCutter:
    """Bytes as lines. Of a line that is too long the beginning is kept, and it is told that it was cut."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._left_out = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield self._take()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        room = LONGEST_LINE - len(self._begun)
        self._begun += piece[:room]
        self._left_out += max(0, len(piece) - room)

    def _take(self) -> str:
        line = self._begun.decode(errors="replace").rstrip("\r")
        if self._left_out:
            line += f" ... ({self._left_out} bytes more)"
        self._begun, self._left_out = bytearray(), 0
        return line


def message_in(line: str) -> str:
    """The message of a log line; of an exception the line that names it. Empty where there is only decoration."""
    entry: object = None
    if line.startswith("{"):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
    if isinstance(entry, dict) and "message" in entry:
        told = [*str(entry["message"]).splitlines(), *str(entry.get("exception", "")).splitlines()]
        return next((text for text in map(_undecorated, reversed(told)) if text), "")
    return _undecorated(line)


def _undecorated(line: str) -> str:
    """Without the frame that Python draws around groups of exceptions."""
    return line.strip().lstrip("|+- ").rstrip("-+ ")
