"""A network that can go bad between a client and its server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.listening import listening
from tools.supervisor.servers import NatsServer


class Proxy:
    """`stall`: the connections there are carry nothing any more and do not end; new ones are well."""

    def __init__(self, server: NatsServer) -> None:
        credentials, _, where = server.url.removeprefix("nats://").rpartition("@")
        self._credentials = credentials
        self._host, _, self._port = where.partition(":")
        self._flows: list[asyncio.Event] = []
        self.url = ""

    def at(self, port: int) -> None:
        self.url = f"nats://{self._credentials}@127.0.0.1:{port}"

    def stall(self) -> None:
        for flow in self._flows:
            flow.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(self._host, int(self._port))
        flow = asyncio.Event()
        flow.set()
        self._flows.append(flow)
        try:
            async with asyncio.TaskGroup() as carrying:
                for source, target in ((reader, to_writer), (to_reader, writer)):
                    carrying.create_task(_carry(source, target, flow))
        except* ConnectionError:
            pass
        finally:
            for each in (writer, to_writer):
                each.transport.abort()


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
    async with listening(proxy.serve) as port:
        proxy.at(port)
        yield proxy
