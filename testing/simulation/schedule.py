"""Schedules: the actions and mishaps of a run and their times. They are drawn from a seed, printed, shortened, read.

One entry a line: its number, second, name and arguments. The number names the objects that the entry creates (pod p17
by entry 17) and seeds its draws, so leaving out entries does not change the others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Self

from shared.errors import UserError

HEAD = "flotilla-simulation"
NUMBERS = frozenset({"api", "by", "doubled", "for", "messages", "share", "versions"})
"""Arguments that are numbers."""


@dataclass(frozen=True, slots=True)
class Entry:
    number: int
    at: float
    what: str
    arguments: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.number:4d} {self.at:8.3f} {self._happening}"

    @property
    def told(self) -> str:
        """The entry without its second."""
        return f"{self.number:4d} {self._happening}"

    @property
    def _happening(self) -> str:
        return " ".join([self.what, *(f"{name}={value}" for name, value in self.arguments.items())])

    def number_of(self, name: str) -> float:
        return float(self.arguments[name])


@dataclass(frozen=True, slots=True)
class Schedule:
    """`seconds`: when actions and mishaps end."""

    seed: int
    scene: str
    round_size: int
    seconds: float
    entries: tuple[Entry, ...]

    def with_only(self, entries: Iterable[Entry]) -> Self:
        return replace(self, entries=tuple(entries))

    def __str__(self) -> str:
        settings = f"seed={self.seed} scene={self.scene} round_size={self.round_size} seconds={self.seconds:g}"
        return "\n".join([f"{HEAD} {settings}", *map(str, self.entries)])

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse a printed schedule; UserError names the line that is wrong."""
        head, *lines = [line for line in text.splitlines() if line.strip()] or [""]
        words = head.split()
        settings = _arguments(words[1:], 1)
        if words[:1] != [HEAD] or settings.keys() != {"seed", "scene", "round_size", "seconds"}:
            raise UserError(f"line 1: expected: {HEAD} seed=N scene=NAME round_size=N seconds=N")
        entries = tuple(_entry(line.split(), number) for number, line in enumerate(lines, 2))
        try:
            size, seconds = int(settings["round_size"]), float(settings["seconds"])
            return cls(int(settings["seed"]), settings["scene"], size, seconds, entries)
        except ValueError as cause:
            raise UserError(f"line 1: {cause}") from cause


def _entry(words: Sequence[str], line: int) -> Entry:
    try:
        return Entry(int(words[0]), float(words[1]), words[2], _arguments(words[3:], line))
    except (ValueError, IndexError) as cause:
        raise UserError(f"line {line}: expected: NUMBER SECOND WHAT NAME=VALUE ...: {cause}") from cause


def _arguments(words: Sequence[str], line: int) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    if any(not equals for _, equals, _ in pairs):
        raise UserError(f"line {line}: expected NAME=VALUE, found {' '.join(words)!r}")
    for name, _, value in pairs:
        if name in NUMBERS and not _is_number(value):
            raise UserError(f"line {line}: {name}: takes a number, not {value!r}")
    return {name: value for name, _, value in pairs}


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False
