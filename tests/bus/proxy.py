"""A network that can go bad between a client and its server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tools.supervisor.servers import NatsServer


class Proxy:
    """`stall`: the connections there are carry nothing any more and do not end; new ones are well."""

    def __init__(self, server: NatsServer) -> None:
        credentials, _, where = server.url.removeprefix("nats://").rpartition("@")
        self._credentials = credentials
        self._host, _, self._port = where.partition(":")
        self._flows: list[asyncio.Event] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.url = ""

    async def start(self) -> asyncio.Server:
        listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"nats://{self._credentials}@127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        return listening

    def stall(self) -> None:
        for flow in self._flows:
            flow.clear()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(self._host, int(self._port))
        flow = asyncio.Event()
        flow.set()
        self._flows.append(flow)
        self._writers += [writer, to_writer]
        for source, target in ((reader, to_writer), (to_reader, writer)):
            self._tasks.append(asyncio.create_task(_carry(source, target, flow)))


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter, flow: asyncio.Event) -> None:
    while flow.is_set():
        data = await source.read(1 << 16)
        await flow.wait()
        target.write(data)
        await target.drain()
        if not data:
            target.close()
            return
    await flow.wait()


@asynccontextmanager
async def a_proxy(server: NatsServer) -> AsyncIterator[Proxy]:
    proxy = Proxy(server)
    async with await proxy.start():
        try:
            yield proxy
        finally:
            await proxy.stop()
