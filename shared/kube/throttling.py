"""Throttling of calls to the API server: our own rate limit, and the delays before retries."""

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

    from shared.kube.outcome import ApiResponse

FIRST_RETRY_AFTER = 0.1
"""Seconds until the first retry unless the server says when; doubled each time."""
LONGEST_WAIT = 5.0
"""With a longer Retry-After the call fails at once."""
JITTER = 0.25
"""Share by which a wait may be longer, so that not all callers retry together."""


class TokenBucket:
    """`rate` tokens a second, above 0; at most `burst`, at least 1. Starts full. First come, first served.

    It does not wait itself, and a caller that would wait too long takes nothing from those behind it.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self._interval = 1.0 / rate
        self._grace = (max(burst, 1) - 1) * self._interval
        self._full_at = float("-inf")
        """When the bucket will be full unless more is taken."""

    def take(self, now: float, deadline: float) -> float | None:
        """When the caller may go; None, and nothing is taken, if that is after the deadline."""
        at = max(now, self._full_at - self._grace)
        if at > deadline:
            return None
        self._full_at = max(now, self._full_at) + self._interval
        return at

    def give_back(self) -> None:
        """Return an unused token."""
        self._full_at -= self._interval


def wait_before_retry(repeatable: bool, answer: "ApiResponse", retries: int) -> float | None:
    """Seconds until the call may be retried, None if it may not. `repeatable`: doing it twice does no harm."""
    if answer.status == 429 or (answer.status >= 500 and repeatable):
        wait = answer.retry_after if answer.retry_after is not None else FIRST_RETRY_AFTER * 2**retries
        return jittered(wait) if wait <= LONGEST_WAIT else None
    return None


def jittered(wait: float) -> float:
    return wait * random.uniform(1.0, 1.0 + JITTER)


def retry_after(response: "aiohttp.ClientResponse") -> float | None:
    """The seconds of a Retry-After header, if there is one."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None
