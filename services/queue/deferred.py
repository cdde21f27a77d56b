"""What has happened in the cluster, until the snapshot has made it part of its state.

The queue hears of a change from the watcher as soon as the snapshot does. A pod that was tried at once would be judged
by workers who do not know yet, be rejected again, and wait for something else to happen.
"""

from collections import deque
from collections.abc import Iterator

from services.queue.events import Position
from services.queue.happenings import Happening, anything

MOST = 1 << 12
"""So many are told apart; what comes after them is anything, and waits for the last one of all."""


class Deferred:
    def __init__(self) -> None:
        self._absorbed: Position = (0, 0)
        self._waiting: deque[tuple[Position, Happening]] = deque()

    def add(self, happening: Happening, at: Position) -> bool:
        """False if it need not wait."""
        if at <= self._absorbed:
            return False
        if len(self._waiting) >= MOST:
            self._waiting.pop()
            happening = anything()
        self._waiting.append((at, happening))
        return True

    def absorb(self, position: Position) -> Iterator[Happening]:
        """What has waited for this, in order."""
        self._absorbed = position
        while self._waiting and self._waiting[0][0] <= position:
            yield self._waiting.popleft()[1]
