"""HttpClient: requests to one server over kept connections.

Each connection carries one request at a time: on a pipelined connection that breaks, it is unknown how many of the
requests were carried out. A request that waits for a connection, or for the handshake of a new one, was not sent.
"""

import asyncio
import ssl
from collections.abc import Callable

from shared.http.connecting import Route, connect
from shared.http.connection import Connection
from shared.http.errors import Closed, Late, NotConnected
from shared.http.pool import Pool
from shared.http.response import Response, header_of

IDLE_SECONDS = 15.0
"""An idle connection is closed after this: sooner than servers and load balancers do, whose closing may cross a
request.
"""
CLOSE_PATIENCE = 1.0
"""Seconds for closing all connections."""
MAX_ANSWER_BYTES = 1 << 30
"""A page of 5,000 large objects has some hundred MB."""


class HttpClient:
    """Supports concurrent requests. To be made where an event loop runs."""

    def __init__(
        self,
        route: Route,
        tls: ssl.SSLContext | None,
        *,
        most: int,
        connect_patience: float,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`most`: connections. `connect_patience`: seconds for making one, proxy and TLS included."""
        self._route = route
        self._tls = tls
        self._most = most
        self._connect_patience = connect_patience
        self._loop = asyncio.get_running_loop()
        self._generation = 0
        """Of the TLS context."""
        self._pool: Pool[Connection, asyncio.Future[Connection | None]] = Pool(most, idle_seconds)
        self._open_ones: set[Connection] = set()
        self._connecting: set[asyncio.Timeout] = set()
        """Of connections that are being made: `close` interrupts them by these."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_lost: asyncio.Future[None] | None = None

    @property
    def held(self) -> int:
        """Connections that are open."""
        return len(self._open_ones)

    def use(self, tls: ssl.SSLContext | None) -> None:
        """For new connections. Others serve what they are in use for, and then close."""
        if tls is not self._tls:
            self._tls = tls
            self._generation += 1
            for connection in self._pool.drain():
                connection.close()

    async def request(
        self, request: bytes, deadline: float, *, repeatable: bool = False, limit: int = MAX_ANSWER_BYTES
    ) -> Response:
        """The answer, with any status. `request`: by RequestFormat. `deadline`: by the loop's clock.

        `repeatable`: it may be sent once more if a kept connection turns out to be closed. Raises HttpFailure.
        """
        for again in (False, True):
            connection = self._take(fresh=again) or await self._acquire(deadline)
            try:
                return await connection.exchange(request, deadline, limit)
            except Closed as failure:
                if again or connection.uses < 2 or (failure.maybe_received and not repeatable):
                    raise
            finally:
                self._release(connection)
        raise AssertionError("unreachable")

    async def open(self, request: bytes, deadline: float, limit: int = MAX_ANSWER_BYTES) -> "HttpStream":
        """The answer once its headers have arrived, which must be before the deadline. Raises HttpFailure.

        `limit`: bytes of the body that arrive together.
        """
        connection = self._take() or await self._acquire(deadline)
        try:
            await connection.open(request, deadline, limit)
        except BaseException:
            self._release(connection)
            raise
        return HttpStream(connection, self._release)

    async def close(self) -> None:
        """What is under way fails."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._pool.dismiss():
            if not waiter.done():
                waiter.set_exception(NotConnected("the client is closed"))
        self._pool.drain()
        for connection in list(self._open_ones):
            if connection.reusable:
                connection.close()
            else:
                connection.abort()
        for connecting in self._connecting:
            connecting.reschedule(self._loop.time())
        if self._open_ones or self._connecting:
            self._all_lost = self._loop.create_future()
            await asyncio.wait([self._all_lost], timeout=CLOSE_PATIENCE)
        for connection in list(self._open_ones):
            connection.abort()

    # Connections

    def _take(self, *, fresh: bool = False) -> Connection | None:
        """An idle connection, to be given to `_release`. `fresh`: only if there is no room for a new one."""
        pool = self._pool
        if fresh and len(pool) < self._most:
            return None
        while (connection := pool.take()) is not None:
            if connection.reusable:
                return connection
            self._release(connection)
        return None

    async def _acquire(self, deadline: float) -> Connection:
        """Where none is idle: a new one, or the next that is free, to be given to `_release`."""
        if not self._pool.reserve():
            handed = await self._wait(deadline)
            if handed is not None:
                return handed
        return await self._connect(deadline)

    async def _wait(self, deadline: float) -> Connection | None:
        """For a connection, or for leave to open one."""
        waiter: asyncio.Future[Connection | None] = self._loop.create_future()
        self._pool.wait(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except BaseException as cause:
            self._pool.stop_waiting(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._hand_on(waiter.result())
            if isinstance(cause, TimeoutError):
                raise Late("no connection was free in time", maybe_received=False) from cause
            raise

    async def _connect(self, deadline: float) -> Connection:
        try:
            if self._closed:
                raise NotConnected("the client is closed")
            connection = await self._connect_until_closed(deadline)
        except BaseException:
            self._hand_on(None)
            raise
        self._open_ones.add(connection)
        return connection

    async def _connect_until_closed(self, deadline: float) -> Connection:
        left = deadline - self._loop.time()
        generation = self._generation
        try:
            async with asyncio.timeout(None) as connecting:
                self._connecting.add(connecting)
                try:
                    connection = await connect(
                        self._route,
                        self._tls,
                        lambda: Connection(generation, self._lost),
                        min(left, self._connect_patience),
                    )
                finally:
                    self._connecting.discard(connecting)
                    self._note_end()
        except TimeoutError:
            raise NotConnected("the client is closed") from None
        except NotConnected as cause:
            if self._loop.time() >= deadline:
                raise Late("not connected in time", maybe_received=False) from cause
            raise
        if self._closed:
            connection.abort()
            raise NotConnected("the client is closed")
        return connection

    def _release(self, connection: Connection) -> None:
        """Keep a connection that was in use, or close it."""
        if connection.reusable and connection.generation == self._generation and not self._closed:
            self._hand_on(connection)
        else:
            connection.close()
            self._hand_on(None)

    def _hand_on(self, connection: Connection | None) -> None:
        """To the first that waits, else to the pool. None: there is room for another one."""
        now = self._loop.time()
        while True:
            waiter = self._pool.lost() if connection is None else self._pool.give_back(connection, now)
            if waiter is None:
                if self._timer is None:
                    self._arm()
                return
            if not waiter.done():
                waiter.set_result(connection)
                return

    def _lost(self, connection: Connection) -> None:
        self._pool.drop(connection)
        self._open_ones.discard(connection)
        self._note_end()

    def _note_end(self) -> None:
        if self._all_lost is not None and not (self._open_ones or self._connecting or self._all_lost.done()):
            self._all_lost.set_result(None)

    # Idle connections

    def _arm(self) -> None:
        if not self._closed:
            expires = self._pool.expires_at()
            if expires is not None:
                self._timer = self._loop.call_at(expires, self._close_idle)

    def _close_idle(self) -> None:
        self._timer = None
        for connection in self._pool.expired(self._loop.time()):
            connection.close()
        self._arm()


class HttpStream:
    """An answer whose body is read as it comes; close it."""

    def __init__(self, connection: Connection, release: Callable[[Connection], None]) -> None:
        self.status = connection.status
        self._headers = connection.headers
        self._connection = connection
        self._release = release
        self._open = True

    def header(self, name: bytes) -> str | None:
        """The value of the first header of this name, which is in lower case."""
        return header_of(self._headers, name)

    async def read(self, patience: float) -> bytes:
        """As `Connection.read`."""
        data = await self._connection.read(patience)
        if not data:
            self.close()
        return data

    def close(self) -> None:
        """Also ends a `read` in progress."""
        if self._open:
            self._open = False
            if not self._connection.reusable:
                self._connection.abort()
            self._release(self._connection)
