"""Logs why a process is not ready, once for each check, and when that is over.

A peer that is silent, or a server that is away, shows at /readyz; this is for readers of the log.
"""

import logging
from collections.abc import Callable

from shared.runtime.context import STARTING, Health

LOOK_INTERVAL = 5.0
"""Seconds between two looks. What is there at two of them is logged: a start or a restart takes less."""


class ReadinessLog:
    def __init__(self, health: Health, log: logging.Logger, clock: Callable[[], float]) -> None:
        self._health = health
        self._log = log
        self._clock = clock
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    def look(self) -> None:
        """Called every LOOK_INTERVAL."""
        now, reasons = self._clock(), {key: why for key, why in self._health.checks().items() if why}
        if len(reasons) > 1:
            reasons.pop(STARTING, None)  # the others say why it does not start
        for key in [each for each in self._since if each not in reasons]:
            seconds = now - self._since.pop(key)
            if key in self._told:
                self._told.remove(key)
                self._log.info("ready again after %.0f s: %s", seconds, key)
        for key, why in reasons.items():
            if key not in self._since:
                self._since[key] = now
            elif key not in self._told:
                self._told.add(key)
                self._log.warning("not ready: %s: %s", key, why)
