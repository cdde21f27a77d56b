"""What commands print: ages, tables, and a screen with a part that is repainted."""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

LINE_INTERVAL = 2.0
"""Seconds between progress lines where there is no terminal."""
GAP = "  "
"""Between columns."""
NARROWEST = 12
"""Characters of a column that is cut."""
RED, GREEN, YELLOW = 31, 32, 33
HIDE_CURSOR, SHOW_CURSOR, CLEAR_TO_END = "\x1b[?25l", "\x1b[?25h", "\x1b[J"


def uses_colour(output: TextIO) -> bool:
    """On a terminal, unless NO_COLOR is set (https://no-color.org) or the terminal is dumb."""
    return output.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, colour: int, *, when: bool) -> str:
    """`colour`: of ANSI, such as RED."""
    return f"\x1b[{colour}m{text}\x1b[0m" if when else text


def age(seconds: float) -> str:
    """At most two units: `12s`, `5m3s`, `2h10m`, `3d4h`."""
    left = max(0, int(seconds))
    for size, unit, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if left >= size:
            rest = left % size // smaller
            return f"{left // size}{unit}{f'{rest}{small}' if rest else ''}"
    return f"{left}s"


def terminal_width(output: TextIO) -> int | None:
    """The columns of the terminal; None if the output is no terminal, so that nothing is cut."""
    return shutil.get_terminal_size().columns if output.isatty() else None


def table(rows: Sequence[Sequence[str]], width: int | None = None) -> Iterator[str]:
    """Rows with aligned columns. Given a width, the longest cells are cut until the rows fit, as far as possible."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        widths = _narrowed(widths, width - len(GAP) * (len(widths) - 1))
    for row in rows:
        cells = [cut(cell, most).ljust(most) for cell, most in zip(row, widths, strict=True)]
        yield GAP.join(cells).rstrip()


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(most - 1, 0)]}…"


def _narrowed(widths: Sequence[int], total: int) -> list[int]:
    """These widths, the widest ones made equally narrow until they have this sum, or are as narrow as is readable."""
    if sum(widths) <= total:
        return list(widths)
    narrow = [min(width, NARROWEST) for width in widths]
    for most in range(max(widths), NARROWEST, -1):
        narrow = [min(width, most) for width in widths]
        if sum(narrow) <= total:
            break
    return narrow


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
