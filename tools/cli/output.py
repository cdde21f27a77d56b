"""What commands print: ages, tables, and a screen with a part that is repainted."""

import shutil
import time
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

LINE_INTERVAL = 2.0
"""Seconds between progress lines where there is no terminal."""
HIDE_CURSOR, SHOW_CURSOR, CLEAR_TO_END = "\x1b[?25l", "\x1b[?25h", "\x1b[J"


def age(seconds: float) -> str:
    """At most two units: `12s`, `5m3s`, `2h10m`, `3d4h`."""
    left = max(0, int(seconds))
    for size, unit, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if left >= size:
            rest = left % size // smaller
            return f"{left // size}{unit}{f'{rest}{small}' if rest else ''}"
    return f"{left}s"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def plain(struct: Any) -> Any:
    """Structs as dictionaries, with all fields but encoded objects."""
    if hasattr(struct, "__struct_fields__"):
        fields = ((field, getattr(struct, field)) for field in struct.__struct_fields__)
        return {field: plain(value) for field, value in fields if not isinstance(value, bytes)}
    if isinstance(struct, list | tuple):
        return [plain(each) for each in struct]
    if isinstance(struct, dict):
        return {key: plain(value) for key, value in struct.items()}
    return struct


class Screen:
    """Lines that stay, and below them a status that is repainted on a terminal."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._terminal = output.isatty()
        self._painted = 0
        self._next_line = 0.0

    def say(self, line: str = "") -> None:
        """Print a line that stays, in place of the status."""
        self.clear()
        print(line, file=self._output, flush=True)

    def status(self, text: str) -> None:
        """What is going on now: replaced on a terminal, an ordinary line elsewhere."""
        if self._terminal:
            self._paint([f"  {text}"])
        else:
            self.say(f"  {text}")

    def progress(self, block: Sequence[str], line: str) -> None:
        """Repaint the block on a terminal; elsewhere print the line, but only every few seconds."""
        if self._terminal:
            self._paint(block)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_INTERVAL
            self.say(line)

    def clear(self) -> None:
        """Remove the status."""
        if self._painted:
            self._output.write(f"\x1b[{self._painted}F{CLEAR_TO_END}")
        self.release()

    def release(self) -> None:
        """Keep the status as it is and show the cursor. Call this at the end in any case."""
        if self._painted:
            self._painted = 0
            self._output.write(SHOW_CURSOR)
            self._output.flush()

    def _paint(self, lines: Sequence[str]) -> None:
        width = shutil.get_terminal_size().columns
        up = f"\x1b[{self._painted}F" if self._painted else HIDE_CURSOR
        text = "".join(f"{line[: width - 1]}\x1b[K\n" for line in lines)
        self._output.write(f"{up}{text}{CLEAR_TO_END}")
        self._output.flush()
        self._painted = len(lines)
