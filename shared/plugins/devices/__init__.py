"""Dynamic resource allocation: pods' claims of devices."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

PREVIEW = "FLOTILLA_DEVICES"
"""Set to 1: pods with claims are scheduled. Not the default, because late writes of allocations are not fenced yet."""


def enabled() -> bool:
    return os.environ.get(PREVIEW) == "1"


@contextmanager
def switched_on() -> Iterator[None]:
    """For replays and tests in this process."""
    before = os.environ.get(PREVIEW)
    os.environ[PREVIEW] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[PREVIEW]
        else:
            os.environ[PREVIEW] = before
