"""Changes of the cluster that wake pods only once the snapshot has made them part of its state.

The queue hears of a change from the watcher as soon as the snapshot does. A pod that was tried at once would be judged
by workers who do not know yet, be rejected again, and wait for something else to happen.
"""

from collections import deque
from collections.abc import Iterator

from services.queue.events import Position
from services.queue.waking import ChangeKind

MOST = 1 << 10
"""So many positions are told apart; what comes after them waits for the last one of all."""


class Deferred:
    def __init__(self) -> None:
        self._absorbed: Position = (0, 0)
        self._waiting: deque[tuple[Position, set[ChangeKind]]] = deque()

    def add(self, kind: ChangeKind, at: Position) -> bool:
        """False if it need not wait."""
        if at <= self._absorbed:
            return False
        if self._waiting and (self._waiting[-1][0] == at or len(self._waiting) >= MOST):
            _, kinds = self._waiting.pop()
        else:
            kinds = set()
        kinds.add(kind)
        self._waiting.append((at, kinds))
        return True

    def absorb(self, position: Position) -> Iterator[ChangeKind]:
        """What has waited for this, in order."""
        self._absorbed = position
        while self._waiting and self._waiting[0][0] <= position:
            yield from sorted(self._waiting.popleft()[1])
