"""The connection to NATS: opened with patience, and once open, opened again for ever."""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from nats import errors
from nats.aio.client import Server

from shared.bus.client import NatsClient
from shared.errors import ClusterError, UserError
from shared.telemetry.logs import Repeated

DEFAULT_PORT = 4222
SCHEMES = ("nats", "tls")
CONNECT_TIMEOUT = 2
RECONNECT_WAIT = 0.1
RECONNECT_JITTER = 0.1
OPENING_WAIT = 0.2
"""Seconds between two attempts to connect."""
SAY_EVERY = 3.0
"""Seconds between two log lines about a server that is not there."""
PING_INTERVAL = 2
MOST_PINGS = 2
"""A connection is given up when it has been silent for PING_INTERVAL * (MOST_PINGS + 1) seconds."""
FLUSH_SECONDS = 2.0
"""What the client itself has to say, subscriptions mostly, is waited for so long."""
REFUSES = "authorization violation"


class Connection:
    """`on_lost` and `on_back` are told each time; `on_error` hears what the client reports while it is open."""

    def __init__(
        self,
        url: str,
        name: str,
        log: logging.Logger,
        *,
        on_lost: Callable[[], None],
        on_back: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self.where = where(url)
        self.client = NatsClient()
        self._url = url
        self._name = name
        self._log = log
        self._sparingly = Repeated(log, SAY_EVERY)
        self._on_lost = on_lost
        self._on_back = on_back
        self._on_error = on_error
        self._opening = self._open = False
        self._refused: asyncio.Event = asyncio.Event()
        self._last: Exception | None = None

    @property
    def connected(self) -> bool:
        return self._open and self.client.is_connected

    async def open(self, patience: float) -> None:
        """Tries until the server answers; ClusterError when `patience` is over, UserError at once if it refuses us."""
        self._opening = True
        opening = asyncio.create_task(self._connect())
        refused = asyncio.create_task(self._refused.wait())
        try:
            await asyncio.wait((opening, refused), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if self._refused.is_set():
                raise UserError(f"NATS at {self.where} refuses the credentials")
            if not opening.done():
                raise ClusterError(f"NATS at {self.where} cannot be reached: {_reason(self._last)}")
            await opening
            self._open = True
        finally:
            self._opening = False
            for task in (opening, refused):
                task.cancel()
            await asyncio.gather(opening, refused, return_exceptions=True)
            if not self._open:
                await self.client.close()

    async def close(self) -> None:
        """What was sent before still arrives, if the server is well."""
        if self.connected:
            await self.client.round_trip()
        self._open = False
        await self.client.close()

    async def _connect(self) -> None:
        options: dict[str, Any] = {
            "name": self._name,
            "error_cb": self._heard_error,
            "disconnected_cb": self._heard(self._lost),
            "reconnected_cb": self._heard(self._back),
            "reconnect_to_server_handler": _next_server,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": OPENING_WAIT,
            "connect_timeout": CONNECT_TIMEOUT,
            "ping_interval": PING_INTERVAL,
            "max_outstanding_pings": MOST_PINGS,
            "flush_timeout": FLUSH_SECONDS,
        }
        try:
            await self.client.connect(self._url, **options)
        except errors.Error as cause:
            raise UserError(f"NATS at {self.where}: {cause}") from cause

    async def _heard_error(self, error: Exception) -> None:
        self._last = error
        refused = REFUSES in str(error).lower()
        if self._open:
            if refused:
                self._sparingly.error("refused", "NATS at %s refuses the credentials", self.where)
            self._on_error(error)
        elif refused:
            self._refused.set()
        elif self._opening:
            self._sparingly.warning("away", "NATS at %s cannot be reached yet: %s", self.where, _reason(error))

    def _heard(self, what: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        async def heard() -> None:
            if self._open:
                what()

        return heard

    def _lost(self) -> None:
        self._log.warning("NATS at %s is lost: %s; trying again", self.where, _reason(self.client.lost_by))
        self._on_lost()

    def _back(self) -> None:
        self._log.info("NATS at %s is back", self.where)
        self._on_back()


def where(url: str) -> str:
    """host:port of a NATS URL, which can be told to anybody; UserError if it is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError as cause:
        raise UserError("the NATS URL cannot be read: nats://user:password@host:port is expected") from cause
    if parts.scheme not in SCHEMES or not host:
        raise UserError("the NATS URL cannot be read: nats://user:password@host:port is expected")
    return f"{host}:{port}"


def _next_server(servers: list[Server], info: dict[str, Any]) -> tuple[Server | None, float]:
    """Any that is known, after a wait that differs between clients, so that they do not come back all at once."""
    return random.choice(servers), RECONNECT_WAIT + random.uniform(0, RECONNECT_JITTER)


def _reason(error: Exception | None) -> str:
    if error is None:
        return "no answer"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    text = str(error) or type(error).__name__
    return text.splitlines()[0].removeprefix("nats: ")
