"""One connection: a request, its answer, the next request. What breaks off an answer ends the connection as well."""

import asyncio
from collections.abc import Callable
from typing import cast

from shared.http.errors import BadAnswer, Closed, HttpFailure, Late, words_of
from shared.http.response import Headers, Response, ResponseParser


class Connection(asyncio.Protocol):
    """Not for concurrent use. `generation`: of what it was opened with. `lost` is called once it is closed."""

    def __init__(self, generation: int, lost: "Callable[[Connection], None]") -> None:
        self.generation = generation
        self.uses = 0
        """Requests that were sent on it."""
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.below_tls: asyncio.Transport | None = None
        """What reads from the kernel. It is this that pauses: TLS itself would go on reading."""
        self._parser = ResponseParser()
        self._waiter: asyncio.Future[None] | None = None
        self._streams = False
        self._paused = False
        self._failure: HttpFailure | None = None

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent now."""
        transport, parser = self._transport, self._parser
        return (
            transport is not None
            and parser.complete
            and parser.reusable
            and not transport.is_closing()
            and not transport.get_write_buffer_size()  # else the server answered without reading everything
        )

    def close(self) -> None:
        """Between two requests."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Any time; what is awaited on it fails."""
        if self._transport is not None:
            self._transport.abort()

    # Requests

    async def exchange(self, request: bytes, deadline: float, limit: int) -> Response:
        """Raises HttpFailure without a whole answer. If it raises, or is cancelled, the connection is closed."""
        self._begin(limit, streams=False)
        timer = self._loop.call_at(deadline, self._expire)
        self._waiter = waiter = self._loop.create_future()
        try:
            self._write(request)
            await waiter
            if self._failure is not None:
                raise self._failure
            return self._parser.take()
        except BaseException:
            self.abort()
            raise
        finally:
            timer.cancel()
            self._waiter = None

    async def open(self, request: bytes, deadline: float, limit: int) -> None:
        """Like `exchange`, but returns once the headers have arrived; `read` then returns the body.

        `limit`: of what one `read` returns.
        """
        self._begin(limit, streams=True)
        timer = self._loop.call_at(deadline, self._expire)
        try:
            self._write(request)
            await self._wait()
            if self._failure is not None:
                raise self._failure
            self._parser.check_encoding()
        except BaseException:
            self.abort()
            raise
        finally:
            timer.cancel()

    @property
    def status(self) -> int:
        return self._parser.status

    @property
    def headers(self) -> Headers:
        return self._parser.headers

    async def read(self, patience: float) -> bytes:
        """What has arrived of the body, waiting for at least one byte; empty at its end.

        What comes while nobody reads stays with the kernel: it wakes no process, and comes together.
        HttpFailure if it breaks off, Late if nothing comes for `patience` seconds.
        """
        parser = self._parser
        while not parser.held:
            if self._failure is not None:
                raise self._failure
            if parser.complete:
                return b""
            timer = self._loop.call_later(patience, self._expire)
            self._resume()
            try:
                await self._wait()
            finally:
                timer.cancel()
        return parser.take_body()

    def _resume(self) -> None:
        if self._paused and self.below_tls is not None:
            self._paused = False
            self.below_tls.resume_reading()

    def _begin(self, limit: int, *, streams: bool) -> None:
        self.uses += 1
        self._streams = streams
        if self._paused:
            self._resume()
        self._parser.begin(limit)

    def _write(self, request: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise Closed("the server closed the connection", maybe_received=False)
        self._transport.write(request)

    async def _wait(self) -> None:
        """Until something has arrived or failed."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: HttpFailure) -> None:
        if self._failure is None and not self._parser.complete:
            self._failure = failure
        self.abort()
        self._wake()

    def _expire(self) -> None:
        self._fail(Late("no answer in time"))

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._parser.reusable:  # the server has sent something before this
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        try:
            parser.feed(data)
        except BadAnswer as failure:
            self._fail(failure)
            return
        if parser.complete:
            self._wake()
        elif self._streams and parser.status:
            self._wake()
            if parser.held and not self._paused and self.below_tls is not None:
                self._paused = True
                self.below_tls.pause_reading()

    def eof_received(self) -> None:
        """The transport closes itself after this."""
        self._end(None)

    def connection_lost(self, cause: Exception | None) -> None:
        self._end(cause)
        self._transport = None
        self._lost(self)

    def _end(self, cause: Exception | None) -> None:
        """`cause`: why the connection broke; None if the server closed it, or we."""
        parser = self._parser
        try:
            if cause is not None and not parser.complete:
                reason = words_of(cause) if isinstance(cause, OSError) else str(cause) or type(cause).__name__
                raise BadAnswer(reason) if parser.begun else Closed(reason)
            parser.end()
        except HttpFailure as failure:
            self._fail(failure)
        else:
            self._wake()
