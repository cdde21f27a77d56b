"""Deltas that no worker waits for: they are sent with the next thing that workers hear, because waking them costs more.

The cycle says of a commit whether anybody waits for its delta (`Commit.quiet`). If it asks workers after all, it has
the snapshot send them at once (NeedDeltas). The next heartbeat sends them in any case.
"""

from services.snapshot.events import Beat, Effect, Event, Tick
from shared.messages.state import Commit, Delta, Heartbeat, NeedDeltas

LONGEST_QUIET = 0.2
"""Seconds until they are sent although nobody has asked: shorter than a worker waits for a missing delta."""
MAX_QUIET = 1 << 8
"""Of more, all are sent."""


class QuietDeltas:
    def __init__(self) -> None:
        self._waiting: list[Delta] = []
        self._latest: float | None = None

    @property
    def next_deadline(self) -> float | None:
        return self._latest

    def clear(self) -> None:
        self._waiting, self._latest = [], None

    def arranged(self, event: Event, effects: list[Effect], now: float) -> list[Effect]:
        """The effects of the event, without a delta that can wait, or after those that have waited.

        Deltas and heartbeats are sent in the order of their numbers.
        """
        if isinstance(event, Commit) and event.quiet and len(self._waiting) < MAX_QUIET:
            quiet = [effect for effect in effects if isinstance(effect, Delta)]
            if quiet and self._latest is None:
                self._latest = now + LONGEST_QUIET
            self._waiting += quiet
            return [effect for effect in effects if not isinstance(effect, Delta)]
        if not self._waiting or not (_is_due(event, self._latest, now) or any(map(_is_for_workers, effects))):
            return effects
        waited = self._waiting
        self.clear()
        return [*waited, *effects]


def _is_due(event: Event, latest: float | None, now: float) -> bool:
    if isinstance(event, NeedDeltas | Beat):
        return True
    return isinstance(event, Tick) and latest is not None and now >= latest


def _is_for_workers(effect: Effect) -> bool:
    return isinstance(effect, Delta | Heartbeat)
