"""Which connection carries the next request. Pure: connections and waiters are only handed on.

The connection that was used last is used first, so that only as many stay open as are needed.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from shared.errors import InvariantBroken

C = TypeVar("C")
W = TypeVar("W")


class Pool(Generic[C, W]):
    """At most `most` connections, those being opened included. Waiters are served first come, first served."""

    def __init__(self, most: int, idle_seconds: float) -> None:
        self._most = most
        self._idle_seconds = idle_seconds
        self._idle: deque[tuple[C, float]] = deque()
        """With the time since when; the least recently used first."""
        self._waiting: deque[W] = deque()
        self._taken = 0
        """In use, or being opened."""

    def __len__(self) -> int:
        """Connections, those being opened included."""
        return self._taken + len(self._idle)

    def take(self) -> C | None:
        """An idle connection, which is in use from now on."""
        if not self._idle:
            return None
        self._taken += 1
        return self._idle.pop()[0]

    def reserve(self) -> bool:
        """Whether one more may be opened; it counts from now on."""
        if len(self) >= self._most:
            return False
        self._taken += 1
        return True

    def wait(self, waiter: W) -> None:
        self._waiting.append(waiter)

    def stop_waiting(self, waiter: W) -> bool:
        """Whether it still waited."""
        try:
            self._waiting.remove(waiter)
        except ValueError:
            return False
        return True

    def give_back(self, connection: C, now: float) -> W | None:
        """The connection is free. It goes to the waiter that is returned, or is idle from now on."""
        if self._waiting:
            return self._waiting.popleft()
        self._taken -= 1
        self._idle.append((connection, now))
        return None

    def lost(self) -> W | None:
        """A connection that was in use, or being opened, is no more. The returned waiter may open another one."""
        if self._waiting:
            return self._waiting.popleft()
        self._taken -= 1
        return None

    def drop(self, connection: C) -> bool:
        """Whether the connection was idle; it is no more."""
        for held in self._idle:
            if held[0] is connection:
                self._idle.remove(held)
                return True
        return False

    def expired(self, now: float) -> Iterator[C]:
        """Removes connections that were idle for too long."""
        while self._idle and now - self._idle[0][1] >= self._idle_seconds:
            yield self._idle.popleft()[0]

    def expires_at(self) -> float | None:
        """When the first idle connection has been so for too long."""
        return self._idle[0][1] + self._idle_seconds if self._idle else None

    def drain(self) -> list[C]:
        """Removes all idle connections."""
        drained = [connection for connection, _ in self._idle]
        self._idle.clear()
        return drained

    def dismiss(self) -> list[W]:
        """Removes all waiters."""
        dismissed = list(self._waiting)
        self._waiting.clear()
        return dismissed

    def validate(self) -> None:
        if self._taken < 0 or len(self) > self._most:
            raise InvariantBroken(f"{self._taken} connections in use, {len(self._idle)} idle, {self._most} at most")
        if self._waiting and (self._idle or len(self) < self._most):
            raise InvariantBroken(f"{len(self._waiting)} requests wait although there is a connection for one")
