"""A server that answers as a test says, and a client of it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shared.certificates import Authority
from shared.http.client import HttpClient, HttpStream
from shared.http.connecting import Route
from shared.http.request import Address, RequestFormat
from tests.listening import listening

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
PATIENCE = 20.0
LIMIT = 1 << 20

Serve = Callable[["Peer"], Awaitable[None]]
"""Of one connection; it is closed when this returns."""


def tls_contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's."""
    authority = Authority.create("test", datetime.now(UTC), timedelta(days=1))
    pair = authority.sign(("127.0.0.1",), datetime.now(UTC), timedelta(days=1))
    (folder / "pair").write_text(pair.certificate + pair.key)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(folder / "pair")
    return theirs, ssl.create_default_context(cadata=authority.certificate)


class Peer:
    """The server's end of a connection. `number`: 1 for the first one."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """Head and body of the next request; IncompleteReadError once the client has closed."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        _, found, rest = head.partition(b"Content-Length: ")
        return head + (await self.reader.readexactly(int(rest.split(b"\r\n")[0])) if found else b"")

    async def answer(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def gone(self) -> bool:
        """Whether the client has closed."""
        return self.reader.at_eof() or self.reader.exception() is not None

    async def closed(self) -> None:
        """Wait until the client has closed."""
        while await self.reader.read(1 << 16):
            pass


async def answer_byte_by_byte(peer: Peer) -> None:
    for at in range(len(OK)):
        await peer.answer(OK[at : at + 1])
        await asyncio.sleep(0)


class Server:
    def __init__(self, serve: Serve) -> None:
        self.peers: list[Peer] = []
        self.url = ""
        self._serve = serve

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(len(self.peers) + 1, reader, writer)
        self.peers.append(peer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await self._serve(peer)


@asynccontextmanager
async def serving(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(serve)
    async with listening(server.serve, tls) as port:
        server.url = f"http{'' if tls is None else 's'}://127.0.0.1:{port}"
        yield server


class Client:
    """An HttpClient with the requests that tests send."""

    def __init__(
        self, url: str, *, most: int = 4, tls: ssl.SSLContext | None = None, proxy: str = "", idle_seconds: float = 15.0
    ) -> None:
        address, through = Address.of(url), Address.of(proxy) if proxy else None
        self._format = RequestFormat(address, through, {"User-Agent": "test"})
        self.http = HttpClient(
            Route(address, proxy=through), tls, most=most, connect_patience=20.0, idle_seconds=idle_seconds
        )

    async def get(self, path: str = "/", patience: float = PATIENCE, limit: int = LIMIT) -> tuple[int, bytes]:
        request = self._format.request("GET", path, self._format.head({}), None)
        answer = await self.http.request(request, _deadline(patience), repeatable=True, limit=limit)
        return answer.status, answer.body

    async def post(self, body: bytes = b"{}", patience: float = PATIENCE) -> tuple[int, bytes]:
        request = self._format.request("POST", "/", self._format.head({}), body)
        answer = await self.http.request(request, _deadline(patience))
        return answer.status, answer.body

    async def stream(self, limit: int = LIMIT) -> HttpStream:
        request = self._format.request("GET", "/stream", self._format.head({}), None)
        return await self.http.open(request, _deadline(PATIENCE), limit)


def _deadline(patience: float) -> float:
    return asyncio.get_running_loop().time() + patience


@asynccontextmanager
async def client_of(
    server: Server, *, most: int = 4, tls: ssl.SSLContext | None = None, idle_seconds: float = 15.0
) -> AsyncIterator[Client]:
    client = Client(server.url, most=most, tls=tls, idle_seconds=idle_seconds)
    try:
        yield client
    finally:
        await client.http.close()
