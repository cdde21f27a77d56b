"""When what was refused may be asked again."""

import random

import aiohttp

from shared.kube.outcome import Answer

FIRST_RETRY_AFTER = 0.1
"""Seconds until the first retry, where the server names no time; twice as long each time."""
LONGEST_WAIT = 5.0
"""Of a longer Retry-After the caller hears at once."""
JITTER = 0.25
"""By so much of itself a wait may be longer, so that not all who were refused come back at once."""


def wait_before_retry(repeatable: bool, answer: Answer, retries: int) -> float | None:
    """Seconds after which the same may be asked again, None if it may not.

    `repeatable`: it does no harm to do it twice.
    """
    if answer.status == 429 or (answer.status >= 500 and repeatable):
        wait = answer.retry_after if answer.retry_after is not None else FIRST_RETRY_AFTER * 2**retries
        return jittered(wait) if wait <= LONGEST_WAIT else None
    return None


def jittered(wait: float) -> float:
    return wait * random.uniform(1.0, 1.0 + JITTER)


def retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Seconds, where the server names them."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None
