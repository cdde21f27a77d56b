"""New connections: TCP, through a proxy if there is one, and TLS."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import aiohappyeyeballs

from shared.http.connection import Connection
from shared.http.errors import BadAnswer, NotConnected, not_connected
from shared.http.request import Address, connect_request
from shared.http.response import ResponseParser

NEXT_ADDRESS = 0.25
"""Seconds until the next address of a host is tried beside the one before."""
GOODBYE = 1.0
"""Seconds that closing may take in TLS."""
AGENT = "flotilla"
"""Towards proxies."""
MAX_REFUSAL = 1 << 20
"""Bytes of a proxy's refusal."""
SUCCESS = range(200, 300)


P = TypeVar("P", bound=asyncio.BaseProtocol)
AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[object, ...]]
"""As getaddrinfo returns it."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way to a server. `server_name`: to be verified instead of the host's."""

    server: Address
    server_name: str | None = None
    proxy: Address | None = None


async def connect(
    route: Route, tls: ssl.SSLContext | None, make: Callable[[], Connection], patience: float
) -> Connection:
    """A connection to the server, within `patience` seconds. Raises NotConnected."""
    try:
        async with asyncio.timeout(patience):
            return await _connect(route, tls, make)
    except TimeoutError as cause:
        raise NotConnected(f"connection timeout: nothing within {patience:g} s") from cause
    except OSError as cause:  # of TLS, too
        raise not_connected(cause) from cause


async def _connect(route: Route, tls: ssl.SSLContext | None, make: Callable[[], Connection]) -> Connection:
    server, proxy = route.server, route.proxy
    inner = (tls or ssl.create_default_context()) if server.scheme == "https" else None
    name = route.server_name or server.host
    transport = below_tls = await _open(proxy or server)
    try:
        if proxy is not None:
            outer = (tls or ssl.create_default_context()) if proxy.scheme == "https" else None
            if inner is None:
                inner, name = outer, proxy.host
            else:
                tunnel = await _begin(transport, outer, proxy.host, _Tunnel())
                transport = await tunnel.to(server, proxy)
        made = await _begin(transport, inner, name, make())
    except BaseException:
        below_tls.abort()
        raise
    made.below_tls = below_tls
    return made


async def _open(address: Address) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    reached = await aiohappyeyeballs.start_connection(
        found, happy_eyeballs_delay=NEXT_ADDRESS, interleave=1, socket_factory=_socket
    )
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=reached)
    return transport


async def _begin(transport: asyncio.Transport, tls: ssl.SSLContext | None, name: str, made: P) -> P:
    """Hand the connection to `made`, over TLS if that is given."""
    if tls is not None and not transport.is_closing():
        upgraded = await asyncio.get_running_loop().start_tls(
            transport, made, tls, server_hostname=name, ssl_shutdown_timeout=GOODBYE
        )
        transport = upgraded or transport
    if transport.is_closing():
        raise NotConnected("the connection was closed while it was opened")
    if tls is None:
        transport.set_protocol(made)
    made.connection_made(transport)
    return made


def _socket(address: AddressInfo) -> socket.socket:
    """Sends at once, and detects a vanished peer within a minute, by TCP keep-alive."""
    made = socket.socket(*address[:3])
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


class _ProxyAnswer(ResponseParser):
    """Keeps the words after the status as well."""

    def __init__(self) -> None:
        super().__init__()
        self.words = ""

    def on_status(self, words: bytes) -> None:
        self.words += words.decode("latin-1")


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel, and waits for its answer."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._opened: asyncio.Future[None] | None = None
        self._parser = _ProxyAnswer()
        self._parser.begin(MAX_REFUSAL)

    async def to(self, server: Address, proxy: Address) -> asyncio.Transport:
        """Raises NotConnected if the proxy refuses."""
        self._opened = asyncio.get_running_loop().create_future()
        self.transport.write(connect_request(server, proxy, AGENT))
        await self._opened
        return self.transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._opened is None or self._opened.done():
            return
        try:
            self._parser.feed(data)
        except BadAnswer:
            self._refused("the proxy does not answer in HTTP")
            return
        status = self._parser.status
        if status in SUCCESS:
            self._opened.set_result(None)
        elif status:
            self._refused(f"the proxy says {status} {self._parser.words}".rstrip())

    def connection_lost(self, cause: Exception | None) -> None:
        self._refused("the proxy closed the connection")

    def _refused(self, reason: str) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(NotConnected(reason))
