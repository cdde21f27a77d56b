"""Randomness by purpose: each draws from a stream of its own, so that what one thing draws does not shift another."""

import random
import zlib
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class Dice:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def of(self, *purpose: object) -> random.Random:
        """The stream of this purpose, which goes on where it was."""
        name = " ".join(map(str, purpose))
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = random.Random(f"{self.seed} {name}")
        return stream

    def pick(self, salt: object, things: Iterable[T], name: Callable[[T], str]) -> T | None:
        """One of them, by name: another choice only if that one is not there (rendezvous hashing)."""
        return min(things, key=lambda each: zlib.crc32(f"{self.seed} {salt} {name(each)}".encode()), default=None)
