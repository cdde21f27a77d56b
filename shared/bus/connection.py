"""The connection to NATS: opened within a time limit, then restored for ever."""

import asyncio
import logging
import os
import random
import re
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from nats import errors
from nats.aio.client import Server

from shared.bus.access import NatsAccess, read_credentials, read_url
from shared.bus.client import NatsClient, WithoutTls
from shared.errors import ClusterError, UserError
from shared.telemetry.logs import Repeated

CONNECT_TIMEOUT = 2
"""Seconds for one attempt to connect."""
RECONNECT_WAIT = 0.1
"""Seconds between two attempts to reconnect."""
RECONNECT_JITTER = 0.1
"""Seconds added to that at random, at most."""
OPENING_WAIT = 0.2
"""Seconds between two attempts to connect."""
SAY_EVERY = 3.0
"""Seconds between two log lines about an unreachable server."""
PING_INTERVAL = 2
"""Seconds between two pings."""
MAX_PINGS = 2
"""A connection is given up after PING_INTERVAL * (MAX_PINGS + 1) seconds of silence."""
FLUSH_SECONDS = 2.0
"""Seconds to wait for the client's own commands, mostly subscriptions."""
_REFUSES = re.compile(r"authorization violation|authentication (expired|revoked)", re.IGNORECASE)


class Connection:
    """`on_lost` and `on_back` are called each time, `on_error` for errors while the connection is open, `on_away` with
    the reason when an attempt to open it has failed.

    The server must accept messages of `payload` bytes.
    """

    def __init__(
        self,
        access: NatsAccess,
        name: str,
        log: logging.Logger,
        *,
        payload: int,
        on_lost: Callable[[], None],
        on_back: Callable[[], None],
        on_error: Callable[[Exception], None],
        on_away: Callable[[str], None],
    ) -> None:
        self._servers = read_url(access.url)
        self.where = self._servers.where
        self.client = NatsClient(access.files.context, insists=self._servers.insists_on_tls)
        self._access = access
        self._name = name
        self._payload = payload
        self._log = log
        self._limited_log = Repeated(log, SAY_EVERY)
        self._on_lost = on_lost
        self._on_back = on_back
        self._on_error = on_error
        self._on_away = on_away
        self._opening = self.is_open = False
        self._refusals: dict[str, str] = {}
        self._refused: asyncio.Event = asyncio.Event()
        self._last: Exception | None = None

    @property
    def connected(self) -> bool:
        return self.is_open and self.client.is_connected

    async def open(self, patience: float) -> None:
        """Try until a server answers; ClusterError after `patience`.

        UserError at once if all servers refuse us or we them, or a needed file is unusable.
        """
        self._access.files.check()
        if self._access.credentials is not None:
            read_credentials(self._access.credentials)
        self._opening = True
        opening = asyncio.create_task(self._connect())
        refused = asyncio.create_task(self._refused.wait())
        try:
            await asyncio.wait((opening, refused), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if self._refused.is_set():
                raise UserError(f"NATS at {self.where}{self._why_refused()}")
            if not opening.done():
                raise ClusterError(f"NATS at {self.where} cannot be reached: {self._reason(self._last)}")
            await opening
            if problem := self._too_narrow():
                raise UserError(problem)
            self.is_open = True
        finally:
            self._opening = False
            for task in (opening, refused):
                task.cancel()
            await asyncio.gather(opening, refused, return_exceptions=True)
            if not self.is_open:
                await self.client.close()

    async def close(self) -> None:
        """Messages sent before still arrive if the server works."""
        if self.connected:
            await self.client.round_trip()
        self.is_open = False
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
            "max_outstanding_pings": MAX_PINGS,
            "flush_timeout": FLUSH_SECONDS,
            "no_echo": True,
            **self._authentication(),
        }
        try:
            await self.client.connect(self._servers.urls, **options)
        except errors.Error as cause:
            raise UserError(f"NATS at {self.where}: {cause}") from cause

    def _authentication(self) -> dict[str, Any]:
        """The client sends signature and JWT if the server sends a nonce, else user or token."""
        servers, path = self._servers, self._access.credentials
        options: dict[str, Any] = {}
        if servers.password is None:
            options["token"] = servers.user
        else:
            options |= {"user": servers.user or "", "password": servers.password}
        if path is not None:
            options["user_jwt_cb"] = lambda: _as_told(lambda: read_credentials(path).jwt.encode())
            options["signature_cb"] = lambda nonce: _as_told(lambda: read_credentials(path).sign(nonce))
        return options

    async def _heard_error(self, error: Exception) -> None:
        self._last = error
        refusal = self._refusal(error)
        if self.is_open:
            if refusal:
                self._limited_log.error("refused", "NATS at %s%s", self.client.server, refusal)
            self._on_error(error)
        elif refusal and self.client.server not in self._refusals:
            self._refusals[self.client.server] = refusal
            if len(self._refusals) >= len(self._servers.urls):
                self._refused.set()
        elif self._opening and not refusal:
            why = f"NATS at {self.where} cannot be reached yet: {self._reason(error)}"
            self._limited_log.warning("away", "%s", why)
            self._on_away(why)

    def _refusal(self, error: Exception) -> str:
        """What the user has to correct, as the rest of a sentence about the server; empty otherwise."""
        if isinstance(error, ssl.SSLError) and self._access.files.refuses(error):
            return f": {self._access.files.problem(error)}"
        if isinstance(error, WithoutTls):
            return f": {error}"
        if _REFUSES.search(str(error)):
            return " refuses the credentials"
        return ""

    def _why_refused(self) -> str:
        """For several servers, each reason with its server if they differ."""
        reasons = set(self._refusals.values())
        if len(reasons) == 1:
            return reasons.pop()
        return "; ".join(["", *(f"{server}{reason}" for server, reason in sorted(self._refusals.items()))])[1:]

    def _too_narrow(self) -> str:
        most = self.client.max_payload
        if most >= self._payload:
            return ""
        server = self.client.server
        return (
            f"NATS at {server} takes messages of {most:,} bytes only: its max_payload must be at least {self._payload}"
        )

    def _heard(self, what: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        async def heard() -> None:
            if self.is_open:
                what()

        return heard

    def _lost(self) -> None:
        self._log.warning("NATS at %s is lost: %s; trying again", self.where, self._reason(self.client.lost_by))
        self._on_lost()

    def _back(self) -> None:
        self._log.info("NATS at %s is back", self.client.server)
        if problem := self._too_narrow():
            self._log.error("%s", problem)
        self._on_back()

    def _reason(self, error: Exception | None) -> str:
        if error is None:
            return "no answer"
        if isinstance(error, ssl.SSLError):
            return self._access.files.problem(error)
        if isinstance(error, OSError) and error.errno:
            return os.strerror(error.errno)
        if isinstance(error, TimeoutError):
            return (
                "no NATS greets there in time: no packet comes back, it hangs, or something else listens at that port"
            )
        text = str(error) or type(error).__name__
        return text.splitlines()[0].removeprefix("nats: ")


def _as_told(read: Callable[[], bytes]) -> bytes:
    """nats-py continues after errors of its own and stops at others."""
    try:
        return read()
    except UserError as cause:
        raise errors.Error(str(cause)) from cause


def _next_server(servers: list[Server], info: dict[str, Any]) -> tuple[Server | None, float]:
    """One of the servers with the fewest failures, after a random wait, so that clients do not return together."""
    fewest = min(each.reconnects for each in servers)
    server = random.choice([each for each in servers if each.reconnects == fewest])
    return server, RECONNECT_WAIT + random.uniform(0, RECONNECT_JITTER)
