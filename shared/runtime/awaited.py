"""Awaited: a word that others owe this process. While it does not come, the process is not ready, and says so."""

from collections.abc import Callable

from shared.runtime.health import Health

PATIENCE = 10.0
"""Seconds for a word: longer than a process takes that starts again."""


class Awaited:
    """Registers a check under `key`. `missing`: what is wrong once the word has not come for PATIENCE."""

    def __init__(self, health: Health, clock: Callable[[], float], key: str, missing: str) -> None:
        self._clock = clock
        self._missing = missing
        self._since: float | None = clock()
        health.check(key, self.problem)

    def awaits(self) -> None:
        """From now on, unless it was awaited before."""
        if self._since is None:
            self._since = self._clock()

    def settled(self) -> None:
        """The word has come, or is owed no longer."""
        self._since = None

    def heard(self) -> None:
        """The word has come, and the next one is awaited."""
        self._since = self._clock()

    def problem(self) -> str:
        waited = 0.0 if self._since is None else self._clock() - self._since
        return f"{self._missing} for {waited:.0f} s" if waited > PATIENCE else ""
