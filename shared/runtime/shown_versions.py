"""Finds out whether the API server can have shown what the watcher's stream named.

Followers refuse states older than one that they were shown. A version that was never shown, because a process forged
it or because the server's store was restored from a backup, would have them refuse everything. So once they refuse a
state they compare with a version that the server gives out afterwards.
"""

from collections.abc import Awaitable, Callable, Iterable

from shared.runtime.corerunner import sleep_until_tick
from shared.watch import Effect, WatchReader

INTERVAL = 2.0
"""Seconds between two looks whether a state was refused."""


async def compare_shown_versions(
    reader: WatchReader,
    later_version: Callable[[], Awaitable[int]],
    clock: Callable[[], float],
    carry_out: Callable[[Iterable[Effect]], None],
) -> None:
    """Runs until cancelled. `later_version`: as that of `Leadership`."""
    while True:
        await sleep_until_tick(INTERVAL)
        if reader.is_contradicted:
            shown = reader.versions
            carry_out(reader.correct(shown, await later_version(), clock()))
