"""A bounded number of workers that take from a bounded queue."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class WorkerPool(Generic[T]):
    """Workers start when there is work and end when there is none, so that an idle pool costs nothing.

    `work` must not raise; if it does, that worker ends and `failed` is called.
    """

    def __init__(
        self,
        work: Callable[[T], Awaitable[None]],
        *,
        max_workers: int,
        max_waiting: int,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._work = work
        self._max_workers = max_workers
        self._max_waiting = max_waiting
        self._failed = failed
        self._waiting: deque[T] = deque()
        self._workers: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        return not self._workers

    @property
    def is_behind(self) -> bool:
        """Items wait, and all workers are busy."""
        return bool(self._waiting) and len(self._workers) >= self._max_workers

    def put(self, item: T, *, ahead: bool = False) -> bool:
        """Returns whether there was room for the item. `ahead`: it goes before those that wait."""
        if len(self._waiting) >= self._max_waiting:
            return False
        if ahead:
            self._waiting.appendleft(item)
        else:
            self._waiting.append(item)
        if len(self._workers) < self._max_workers:
            self._start()
        return True

    async def close(self) -> None:
        """Drops what waits, and cancels what is under way."""
        self._waiting.clear()
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _start(self) -> None:
        worker = asyncio.create_task(self._run())
        self._workers.add(worker)
        worker.add_done_callback(self._ended)

    async def _run(self) -> None:
        while self._waiting:
            await self._work(self._waiting.popleft())

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        cause = None if worker.cancelled() else worker.exception()
        if cause is not None:
            self._failed(cause)
        if self._waiting:  # since its last look, or because it has failed
            self._start()
