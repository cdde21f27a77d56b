"""A response body read as it comes, and sockets for connections that may be silent for long."""

import asyncio
import socket

import aiohttp

from shared.kube.errors import Silent, Unreachable


class Stream:
    """`server`, `asked`: for error messages. `patience`: seconds without a byte after which reading fails."""

    def __init__(self, response: aiohttp.ClientResponse, server: str, asked: str, patience: float) -> None:
        self.patience = patience
        self._response = response
        self._server = server
        self._asked = asked

    async def read(self) -> bytes:
        """What has arrived, waiting for at least one byte; empty at the end.

        Raises Unreachable if the connection breaks, Silent if nothing comes; it cannot be read on then.
        """
        try:
            async with asyncio.timeout(self.patience):
                return await self._response.content.readany()
        except TimeoutError as cause:
            self.close()
            reason = f"nothing has come for {self.patience:g} s"
            raise Silent(self._server, self._asked, reason, maybe_done=True) from cause
        except (aiohttp.ClientError, OSError) as cause:
            reason = str(cause) or type(cause).__name__
            raise Unreachable(self._server, self._asked, reason, maybe_done=True) from cause

    def close(self) -> None:
        """Also ends a `read` in progress."""
        self._response.close()


def keeping_alive(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that detects a vanished peer within a minute, by TCP keep-alive."""
    made = socket.socket(*address[:3])
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
