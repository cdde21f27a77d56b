"""The shortest schedule that still fails: parts are left out as long as what is left fails in the same way."""

import time
from collections.abc import Callable, Sequence

from testing.simulation.running import Result
from testing.simulation.schedule import Entry, Schedule

Play = Callable[[Schedule], Result]


def shrink(schedule: Schedule, failed: Result, play: Play, seconds: float) -> tuple[Schedule, Result]:
    """Halves first, then ever smaller parts, down to single entries; what was found when `seconds` are over."""
    ends = time.monotonic() + seconds
    entries, result = list(schedule.entries), failed
    size = max(len(entries) // 2, 1)
    while entries:
        removed = False
        start = 0
        while start < len(entries):
            if time.monotonic() >= ends:
                return schedule.with_only(entries), result
            found = _fails_without(schedule, entries, start, size, failed.kind, play)
            if found is None:
                start += size
            else:
                entries, result, removed = [*entries[:start], *entries[start + size :]], found, True
        if size == 1 and not removed:
            break
        size = max(size // 2, 1)
    return schedule.with_only(entries), result


def _fails_without(
    schedule: Schedule, entries: Sequence[Entry], start: int, size: int, kind: str, play: Play
) -> Result | None:
    result = play(schedule.with_only([*entries[:start], *entries[start + size :]]))
    return result if result.kind == kind else None
