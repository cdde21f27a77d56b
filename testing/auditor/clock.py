"""The auditor's clock: steps of the system's clock do not change it, and nobody else's clock is compared with it."""

import time

_AHEAD = time.time() - time.monotonic()


def now() -> float:
    """Unix time when the process began, and the seconds since then: stories are readable, and durations right."""
    return time.monotonic() + _AHEAD
