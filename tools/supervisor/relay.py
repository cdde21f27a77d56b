"""Passes on the output of processes line by line: with the name of the process for people, or as JSON."""

import asyncio
import json
import re
import shutil
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, TextIO

from tools.supervisor.causes import Causes

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

CLEAR_LINE = "\r\x1b[K"
LEVEL_WORD = re.compile(r"(?<=\d )(WARNING|ERROR)(?= )")
COLOURS = {"WARNING": 33, "ERROR": 31}

Level = Literal["info", "warning", "error"]


class Relay:
    def __init__(
        self, output: TextIO, *, as_json: bool, width: int = 0, colour: bool = False, live: bool = False
    ) -> None:
        """`width`: of the longest name, so that lines are aligned. `live`: the output is a terminal, which has a status
        line below all others.
        """
        self._output = output
        self._as_json = as_json
        self._colour = colour
        self._live = live and not as_json
        self._status = ""
        self._causes = Causes()
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

    def status(self, text: str) -> None:
        """Replace the status line, on a terminal; empty for none."""
        if self._live and text != self._status:
            self._status = text
            self._write("")

    def settle(self) -> None:
        """Call this now and then: says who else reported what was printed once."""
        if not self._as_json:
            for line in self._causes.due(time.monotonic()):
                self._print(OURSELVES, line, "warning")

    def pass_on(self, name: str, line: str, level: Level | None = None) -> None:
        """`level`: of a line that is not JSON; None: derived from the line."""
        if not line.strip():
            return
        self._last[name] = message_in(line) or self._last.get(name, "")
        level = level or self._level_of(name, line)
        prefixed = f"{name:<{self._width}} | {line}"
        self._lines.append(prefixed)
        if self._as_json:
            self._write(f"{self._as_json_line(name, line, level)}\n")
        elif name == OURSELVES or self._causes.is_new(name, line, time.monotonic()):
            self._print(name, line, level)

    def _print(self, name: str, line: str, level: Level) -> None:
        """A line of text; ours get the form that those of services have."""
        if name == OURSELVES:
            now = time.time()
            clock = time.strftime("%H:%M:%S", time.localtime(now))
            line = f"{clock}.{int(now % 1 * 1000):03d} {level.upper():<7} {line}"
        if self._colour:
            line = LEVEL_WORD.sub(_coloured, line, count=1)
        self._write(f"{name:<{self._width}} | {line}\n")

    def _write(self, text: str) -> None:
        """Put the text in place of the status line, and that below it."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            text = f"{CLEAR_LINE}{text}{self._status[:width]}"
        # The pipeline runs on when its output is closed.
        with suppress(OSError, ValueError):
            self._output.write(text)
            self._output.flush()

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
        now = time.time()
        clock = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z"
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


def _coloured(word: re.Match[str]) -> str:
    return f"\x1b[{COLOURS[word[0].strip()]}m{word[0]}\x1b[0m"


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
