"""NatsClient: nats-py's client, without its limits that matter here."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from nats import errors
from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport
from nats.protocol.parser import PERMISSIONS_ERR

from shared.errors import UserError

ROUND_TRIP_SECONDS = 1
"""Seconds for a round trip to NATS when the client closes."""
HEADERS_BEGIN = b"NATS/1.0\r\n"
MAX_AT_ONCE = 1 << 16
"""Bytes that are given to the system without waiting until it has taken them."""
MAX_REMEMBERED_HEADERS = 256
"""In bytes; longer headers are not ours, and are parsed each time."""


class WithoutTls(errors.Error):
    def __str__(self) -> str:
        return "the server does not support TLS"


class _Transport(TcpTransport):
    """Closes at once; a stuck peer would make nats-py wait until it reads the rest."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __bool__(self) -> bool:
        return True  # the client replaces a false one by its own

    def close(self) -> None:
        if self._io_writer is not None:
            self._io_writer.transport.abort()


class NatsClient(Client):
    """Survives most errors that a server can send, on which nats-py's client gives up its connection for good.

    Sends well-formed messages at a third of the cost. `tls` is called for each connection. With `insists`, a server
    without TLS learns nothing.
    """

    lost_by: Exception | None = None
    """Why the connection was lost the last time."""
    version = ""
    """Of the current or last server."""
    network = ""
    """The name of the cluster of the current or last server, or the identity of that server alone: servers with the
    same value pass each other's messages on.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext], *, insists: bool) -> None:
        super().__init__()
        self._will_write = False
        self._tls = tls
        self._insists = insists

    @property
    def server(self) -> str:
        """host:port of the current or last server."""
        return "" if self._current_server is None else self._current_server.uri.netloc

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Built each time, because certificates may have been rotated."""
        try:
            return self._tls()
        except UserError as cause:
            raise errors.Error(str(cause)) from cause

    def send(self, command: bytes) -> None:
        """Like `publish`, without waiting and without parsing the command. Those of one turn of the loop are written
        together.
        """
        self._pending.append(command)
        self._pending_data_size += len(command)
        if not self._will_write:
            self._will_write = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        """Write what is pending. Where that may fail or take long, the client's own task does, which costs more."""
        self._will_write = False
        if not self._pending or not self.is_connected:
            return
        assert self._transport is not None and self._flush_queue is not None
        writer: asyncio.StreamWriter = self._transport._io_writer  # type: ignore[attr-defined]
        is_slow = self._pending_data_size > MAX_AT_ONCE or writer.transport.get_write_buffer_size()
        if is_slow or writer.is_closing():
            if self._flush_queue.empty():
                self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
            return
        pending, self._pending, self._pending_data_size = self._pending, [], 0
        writer.writelines(pending)

    def accepts(self, most: int) -> bool:
        """Whether it is connected and has at most `most` pending bytes."""
        return self._status == Client.CONNECTED and self._pending_data_size <= most

    def message(self, subject: str, reply_to: str, headers: bytes, body: bytes) -> Msg:
        """As it would be received. `headers`: as they are sent, with their first line."""
        return Msg(_client=self, subject=subject, reply=reply_to, data=body, headers=_parse_sent_headers(headers))

    async def flushed(self, patience: float) -> None:
        """Wait until pending data was given to the system, at most `patience`."""
        assert self._flush_queue is not None
        if not self._flush_queue.full():
            flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flush_queue.put_nowait(flush)
            await asyncio.wait((flush,), timeout=patience)

    async def round_trip(self) -> None:
        """Wait a bounded time until the server has read everything sent before.

        The client's own `flush` would overtake pending data, may lose a cancellation (before Python 3.12), and stops
        reading for good when an answer comes that nobody waits for any more.
        """
        with suppress(errors.Error, OSError):
            await self.flushed(ROUND_TRIP_SECONDS)
            answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            await self._send_ping(answer)
            await asyncio.wait((answer,), timeout=ROUND_TRIP_SECONDS)

    def forget_pending(self, kind: bytes) -> list[bytes]:
        """Take back pending commands of this kind; release the tasks that wait for them."""
        while self._flush_queue is not None and not self._flush_queue.empty():
            flush = self._flush_queue.get_nowait()
            if not flush.done():
                flush.set_result(None)
        forgotten = [command for command in self._pending if command.startswith(kind)]
        self._pending = [command for command in self._pending if not command.startswith(kind)]
        self._pending_data_size = sum(map(len, self._pending))
        return forgotten

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        return _parse_headers(raw) if len(raw) <= MAX_REMEMBERED_HEADERS else Client._parse_header_lines(raw)

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        """Unreadable headers count as none; nats-py would stop reading after them."""
        try:
            return await super()._process_headers(headers)
        except (ValueError, IndexError):
            return None

    async def _connect_to_server(self, s: Srv) -> None:
        if self._transport is None:
            self._transport = _Transport()
        self._transport.close()  # type: ignore[no-untyped-call]  # what an attempt has left that failed half-way
        await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        await super()._process_connect_init()
        if not self.is_connected:  # the client takes an end of the stream for an answer
            for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
                if task is not None:
                    task.cancel()
            raise errors.UnexpectedEOF

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self._insists and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise WithoutTls
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)
        self.version = str(info.get("version") or "")
        self.network = str(info.get("cluster") or info.get("server_id") or "")
        self._forget_servers_but(info.get("connect_urls") or [])

    def _forget_servers_but(self, told: list[str]) -> None:
        """Forget discovered servers that the current one does not name: they may be gone for good."""
        self._server_pool = [
            each
            for each in self._server_pool
            if not each.discovered or each.uri.netloc in told or each is self._current_server
        ]

    async def _process_op_err(self, e: Exception) -> None:
        self.lost_by = e
        await super()._process_op_err(e)

    async def _process_err(self, err_msg: str) -> None:
        if PERMISSIONS_ERR in err_msg:
            await super()._process_err(err_msg)
        else:
            await self._process_op_err(errors.Error(f"nats: {err_msg}"))


@lru_cache(maxsize=256)
def _parse_sent_headers(headers: bytes) -> dict[str, str]:
    return Client._parse_header_lines(headers[len(HEADERS_BEGIN) :])


@lru_cache(maxsize=256)
def _parse_headers(raw: bytes) -> dict[str, str]:
    """The same few headers repeat. The result must not be modified."""
    return Client._parse_header_lines(raw)
