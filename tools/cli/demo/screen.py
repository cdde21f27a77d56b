"""What the demo shows: a block that is painted over itself on a terminal, a line now and then elsewhere."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

BAR = 40
CELLS_A_LINE = 4
PLAIN_EVERY = 1.0
"""Seconds between lines where there is no terminal."""
HIDE_CURSOR, SHOW_CURSOR, CLEAR_TO_END = "\x1b[?25l", "\x1b[?25h", "\x1b[J"


@dataclass(frozen=True, slots=True)
class Progress:
    """`rate`: pods bound a second in the last seconds. `cpu`: share of one CPU by process, as of now."""

    pods: int
    created: int
    bound: int
    seconds: float
    rate: float
    queues: Mapping[str, int] = field(default_factory=dict)
    cpu: Mapping[str, float] = field(default_factory=dict)


class Screen:
    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._terminal = output.isatty()
        self._painted = 0
        self._next_line = 0.0

    def say(self, line: str = "") -> None:
        print(line, file=self._output, flush=True)

    def settle(self, line: str = "") -> None:
        """Stays, in place of what was passing."""
        self.clear()
        self.say(line)

    def passing(self, text: str) -> None:
        """What is going on: painted over on a terminal, elsewhere a line that stays."""
        if self._terminal:
            self._paint([f"  {text}"])
        else:
            self.say(f"  {text}")

    def show(self, progress: Progress) -> None:
        if self._terminal:
            self._paint(block(progress))
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + PLAIN_EVERY
            self.say(one_line(progress))

    def clear(self) -> None:
        """Takes away what was painted, for what replaces it."""
        if self._painted:
            self._output.write(f"\x1b[{self._painted}F{CLEAR_TO_END}")
        self.leave()

    def leave(self) -> None:
        """What was painted stays as it is. To be called in the end in any case: the cursor is hidden meanwhile."""
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


def block(progress: Progress) -> list[str]:
    done = progress.bound / max(1, progress.pods)
    bar = "█" * round(BAR * done)
    lines = [
        f"  {bar:░<{BAR}}  {progress.bound:,} of {progress.pods:,} bound",
        "",
        f"  created  {progress.created:,}",
        f"  rate     {progress.rate:,.0f} pods/s   after {progress.seconds:.0f} s",
        f"  queue    {_queues(progress.queues)}",
    ]
    width = max(map(len, progress.cpu), default=0)
    cells = [f"{name:<{width}} {100 * share:>4.0f} %" for name, share in progress.cpu.items()]
    rows = ["    ".join(cells[begin : begin + CELLS_A_LINE]) for begin in range(0, len(cells), CELLS_A_LINE)]
    return lines + [f"  {'' if i else 'CPU':<7}  {row}" for i, row in enumerate(rows)]


def one_line(progress: Progress) -> str:
    cpu = sum(progress.cpu.values())
    return (
        f"{progress.seconds:5.1f} s  created {progress.created:>7,}  bound {progress.bound:>7,}  "
        f"{progress.rate:>6,.0f}/s  CPU {100 * cpu:>3.0f} %  {_queues(progress.queues)}"
    )


def table(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Names on the left, values aligned on the right."""
    left = max(len(name) for name, _ in rows)
    right = max(len(value) for _, value in rows)
    return [f"  {name:<{left}}  {value:>{right}}" for name, value in rows]


def _queues(queues: Mapping[str, int]) -> str:
    return "  ".join(f"{name} {count:,}" for name, count in queues.items()) or "empty"
