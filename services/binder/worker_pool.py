"""Pool: a bounded number of workers take from a bounded queue, in order."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Workers come when there is something to do and go when there is nothing, so that an idle pool costs nothing.

    `work` must not raise; if it does, that worker ends and `failed` hears of it.
    """

    def __init__(
        self,
        work: Callable[[T], Awaitable[None]],
        *,
        most_workers: int,
        most_waiting: int,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._work = work
        self._most_workers = most_workers
        self._most_waiting = most_waiting
        self._failed = failed
        self._waiting: deque[T] = deque()
        self._workers: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        return not self._workers

    @property
    def is_behind(self) -> bool:
        """Something waits, for all workers have their hands full."""
        return bool(self._waiting) and len(self._workers) >= self._most_workers

    def put(self, item: T) -> bool:
        """Whether there was room for it."""
        if len(self._waiting) >= self._most_waiting:
            return False
        self._waiting.append(item)
        if len(self._workers) < self._most_workers:
            self._start()
        return True

    async def close(self) -> None:
        """What waits is thrown away, and what is under way is cut off."""
        self._waiting.clear()
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _start(self) -> None:
        worker = asyncio.create_task(self._take())
        self._workers.add(worker)
        worker.add_done_callback(self._gone)

    async def _take(self) -> None:
        while self._waiting:
            await self._work(self._waiting.popleft())

    def _gone(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        cause = None if worker.cancelled() else worker.exception()
        if cause is not None:
            self._failed(cause)
        if self._waiting:  # since its last look, or because it has failed
            self._start()
