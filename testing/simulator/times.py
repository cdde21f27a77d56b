"""Times as Kubernetes writes them."""

from datetime import UTC, datetime
from functools import lru_cache


def timestamp(now: float) -> str:
    """Whole seconds, as in metadata and conditions."""
    return _of_second(int(now))


@lru_cache(maxsize=16)
def _of_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
