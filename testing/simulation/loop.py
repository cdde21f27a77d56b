"""An event loop on which no time is waited for: when nothing is ready, the next timer's time has come."""

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any


class Stalled(RuntimeError):
    """Nothing is ready and nobody has set a timer: this would be waited for, for ever."""


class _Selector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stalled
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`errors`: what nobody has caught."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self.errors: list[str] = []
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self._virtual.now

    def _note(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")
