"""Requests that are repeated until they are answered."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from shared.errors import InvariantBroken

K = TypeVar("K")
R = TypeVar("R")


def doubling(first: float, longest: float) -> tuple[float, ...]:
    """Waits of `first` seconds, then twice as long each, up to `longest`."""
    waits = [first]
    while waits[-1] < longest:
        waits.append(min(2 * waits[-1], longest))
    return tuple(waits)


class Unanswered(Generic[K, R]):
    """Requests without an answer, by key, and when each is due to be sent again.

    The first repetition is due `waits[0]` seconds after the request, the next one `waits[1]` seconds later; the last
    wait repeats. The caller sends, so a request is any value. Every operation takes constant time, for any number of
    requests.
    """

    def __init__(self, waits: Sequence[float]) -> None:
        self._waits = waits
        self._waiting: list[OrderedDict[K, tuple[R, float]]] = [OrderedDict() for _ in waits]
        """For each wait: by key, the request and when it is due, the first due first."""
        self._steps: dict[K, int] = {}
        """Which wait each request is in."""

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[K]:
        for waiting in self._waiting:
            yield from waiting

    def requests(self) -> Iterator[R]:
        for waiting in self._waiting:
            for request, _ in waiting.values():
                yield request

    def sent(self, key: K, request: R, now: float) -> None:
        """A request was sent. If the last one with this key is unanswered, this replaces it and waits longer."""
        before, step = self._steps.get(key), 0
        if before is not None:
            del self._waiting[before][key]
            step = min(before + 1, len(self._waits) - 1)
        self._steps[key] = step
        self._waiting[step][key] = request, now + self._waits[step]

    def answered(self, key: K) -> R | None:
        """Returns the request, which is not repeated any more; None if there was none."""
        step = self._steps.pop(key, None)
        return None if step is None else self._waiting[step].pop(key)[0]

    def due(self, now: float) -> list[R]:
        """The requests that the caller is to send again now, those with the longest wait first."""
        if not self._steps:
            return []
        due = [self._due(waiting, now) for waiting in self._waiting]
        requests: list[R] = []
        for of_wait in reversed(due):
            for key, request in of_wait:
                self.sent(key, request, now)
                requests.append(request)
        return requests

    def _due(self, waiting: OrderedDict[K, tuple[R, float]], now: float) -> list[tuple[K, R]]:
        due: list[tuple[K, R]] = []
        for key, (request, at) in waiting.items():
            if at > now:
                break
            due.append((key, request))
        return due

    def next_deadline(self) -> float | None:
        """When the next request is due; None without requests."""
        if not self._steps:
            return None
        return min(next(iter(waiting.values()))[1] for waiting in self._waiting if waiting)

    def validate(self) -> None:
        """Raises InvariantBroken if a request waits twice or not at all, or behind one that is due later."""
        steps = [(key, step) for step, waiting in enumerate(self._waiting) for key in waiting]
        if len(steps) != len(self._steps) or dict(steps) != self._steps:
            raise InvariantBroken("an unanswered request waits twice, or not at all")
        for waiting in self._waiting:
            due = [at for _, at in waiting.values()]
            if due != sorted(due):
                raise InvariantBroken("unanswered requests are not in the order in which they are due")
