"""The network between services and NATS: a proxy for each service, which can block or break connections."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

from testing.listening import close

LOOPBACK = "127.0.0.1"
CHUNK = 1 << 16


class Link:
    """One service's connection to NATS. While it is blocked nothing gets through in either direction, silently.

    Afterwards the delayed data arrives, as after a short network outage, unless connections are cut.
    """

    def __init__(self, target: Callable[[], str]) -> None:
        """`target` returns the URL of NATS; called for each connection."""
        self._target = target
        self._open = asyncio.Event()
        self._open.set()
        self._blocked = 0
        self._listening: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self._port = 0

    @property
    def url(self) -> str:
        parts = urlsplit(self._target())
        credentials, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{credentials}{at}{LOOPBACK}:{self._port}"))

    async def start(self) -> None:
        self._listening = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self._port = self._listening.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._listening is not None:
            await close(self._listening)
        self.cut()
        await asyncio.gather(*self._carrying, return_exceptions=True)
        if self._listening is not None:
            await self._listening.wait_closed()

    def block(self) -> None:
        self._blocked += 1
        self._open.clear()

    def unblock(self) -> None:
        """Call it once for each `block`."""
        self._blocked -= 1
        if not self._blocked:
            self._open.set()

    def cut(self) -> None:
        """Break all current connections."""
        for task in self._carrying:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):  # `cut` cancels
                await self._open.wait()
                await self._connect(reader, writer)
        finally:
            self._carrying.discard(task)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(self._target())
        to_reader, to_writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            ways = [asyncio.ensure_future(self._carry(reader, to_writer))]
            ways.append(asyncio.ensure_future(self._carry(to_reader, writer)))
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            to_writer.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Copy data until one side disconnects."""
        while data := await source.read(CHUNK):
            if not self._open.is_set():
                await self._open.wait()
            target.write(data)
            await target.drain()
