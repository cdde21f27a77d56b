"""A server that speaks TLS and asks clients for certificates: it has nothing, and knows who asked for it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.kube import pki
from tests.listening import listening

NOTHING = b'{"kind":"Status","code":404,"message":"nothing"}'
NOBODY = b'{"kind":"Status","code":401,"message":"Unauthorized"}'


@dataclass(frozen=True, slots=True)
class Asked:
    """`subject`: of the client's certificate; empty without one. `connection`: its number."""

    subject: str
    authorization: str
    agent: str
    connection: int


@dataclass(slots=True)
class TlsServer:
    admits: Callable[[Asked], bool] = lambda asked: True
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    names: list[str | None] = field(default_factory=list)
    _connections: int = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def subjects(self) -> list[str]:
        return [each.subject for each in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        connection = self._connections
        try:
            while head := await _head(reader):
                fields = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
                asked = Asked(_subject(writer), fields.get("Authorization", ""), fields["User-Agent"], connection)
                self.asked.append(asked)
                await self.answering.wait()
                code, body = ("404 Not Found", NOTHING) if self.admits(asked) else ("401 Unauthorized", NOBODY)
                writer.write(f"HTTP/1.1 {code}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()


async def _head(reader: asyncio.StreamReader) -> list[str]:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except asyncio.IncompleteReadError:
        return []


def _subject(writer: asyncio.StreamWriter) -> str:
    certificate = writer.get_extra_info("peercert") or {}
    return next((value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"), "")


@asynccontextmanager
async def tls_server(folder: Path) -> AsyncIterator[TlsServer]:
    pair = folder / "server.pem"
    pair.write_text(pki.SERVER + pki.SERVER_KEY)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=pki.AUTHORITY)
    context.load_cert_chain(pair)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # like an API server, which is more lenient than Python 3.13
    context.verify_mode = ssl.CERT_OPTIONAL
    server = TlsServer()
    server.answering.set()
    context.sni_callback = lambda _socket, name, _context: server.names.append(name)
    async with listening(server.serve, context) as server.port:
        yield server


@asynccontextmanager
async def proxy_server() -> AsyncIterator[tuple[str, list[str]]]:
    """An HTTP proxy that connects to any address: its URL, and where it connected to."""
    targets: list[str] = []

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await _head(reader)
        target = head[0].split(" ")[1]
        targets.append(target)
        host, port = target.rsplit(":", 1)
        there, to = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            await asyncio.gather(_pump(reader, to), _pump(there, writer))
        finally:
            to.close()

    async with listening(connect) as port:
        yield f"http://127.0.0.1:{port}", targets


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()
