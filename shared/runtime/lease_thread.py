"""LeaseThread: the thread of a process in which all its Leases are kept, with an event loop of its own.

So neither a busy service nor other calls to the API server delay a renewal, and Leases of one process are renewed
together: the process wakes up once for all of them.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable


class LeaseThread:
    """It runs while there is work. `held`: the Leases that this process holds, for use in the thread."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self._lock = threading.Lock()
        self._works = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._ending: threading.Thread | None = None

    def start(self, work: Callable[[], Awaitable[None]], ended: Callable[[], None]) -> None:
        """Begin the work in the thread, which calls `ended` at its end."""
        with self._lock:
            self._works += 1
            if self._thread is None:
                began = threading.Event()
                self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(began)), name="leases")
                self._thread.daemon = True
                self._thread.start()
                began.wait()
            assert self._loop is not None
            asyncio.run_coroutine_threadsafe(self._do(work, ended), self._loop)

    def join(self) -> None:
        """Wait for the thread to end, if all its work has."""
        with self._lock:
            ending, self._ending = self._ending, None
        if ending is not None:
            ending.join()

    async def _serve(self, began: threading.Event) -> None:
        self._loop, over = asyncio.get_running_loop(), asyncio.Event()
        self._over = over
        began.set()
        await over.wait()

    async def _do(self, work: Callable[[], Awaitable[None]], ended: Callable[[], None]) -> None:
        try:
            await work()
        finally:
            with self._lock:
                self._works -= 1
                if not self._works and self._over is not None:
                    self._ending, self._thread = self._thread, None
                    self._over.set()
            ended()
