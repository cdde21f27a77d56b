"""The connection to Redis: every call has a deadline, and failures become errors that say whose fault they are."""

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterCrossSlotError,
    ClusterDownError,
    NoPermissionError,
    NoScriptError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.errors import UserError
from shared.store.address import read_url
from shared.store.connecting import CALL_PATIENCE, Sentinels, clients_for
from shared.store.errors import StoreUnreachable
from shared.store.scripts import Script
from shared.telemetry.logs import Repeated
from shared.tls import TlsFiles

CONNECT_PATIENCE = 30.0
"""Seconds to wait for an unreachable Redis at the start; a restart takes less."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to connect, doubled each time."""
SAY_EVERY = 10.0
"""Seconds between two log lines about an unreachable server."""
_EXCEEDS_RIGHTS = re.compile("user executing the script can't|ACL failure in script|discarded because of: NOPERM")
"""How Redis 6 and 7 report that a script exceeds its user's rights, and both that a transaction does."""

_WHY_NO_WRITES = (
    (re.compile(r"\bOOM\b|used memory > 'maxmemory'"), "it is full (maxmemory): give it more memory"),
    (re.compile(r"\bMISCONF\b|to the AOF|stop-writes-on-bgsave"), "it cannot write its file: is its disk full?"),
    (re.compile(r"\bREADONLY\b|read only replica"), "it is a replica, which takes no writes"),
)
"""What servers say in many words, and from within scripts with lines of these."""
_OF_SCRIPT = re.compile(
    r"^Error running script.*?: |,? ?script: \w+, on @user_script:\d+\.?$|@user_script:? ?\d*:? ?-?"
)
"""What a server adds to the error of a command in a script: before Redis 7, and from then on."""

T = TypeVar("T")
Argument = str | bytes | int
Refused = (AuthenticationError, AuthorizationError, NoPermissionError)
OfCluster = (AskError, ClusterCrossSlotError, ClusterDownError)
"""MovedError is an AskError as well."""
Unreachable = (RedisConnectionError, RedisTimeoutError, OSError, TimeoutError)


class RedisLink:
    """Never retries by itself: only the caller knows whether that does harm."""

    def __init__(self, client: Redis, where: str, tls: TlsFiles, sentinels: Sentinels | None = None) -> None:
        self.client = client
        self.where = where
        self._tls = tls
        self._sentinels = sentinels
        self._execute: Callable[..., Awaitable[Any]] = client.execute_command

    async def call(self, *command: Argument, patience: float = CALL_PATIENCE) -> Any:
        return await self.within(patience, self._execute(*command))

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> list[Any]:
        """One round trip, unless the server does not know the script yet."""
        try:
            answer = await self.call("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            answer = await self.call("EVAL", script.text, len(keys), *keys, *arguments)
        return list(answer)

    async def info(self) -> dict[str, Any]:
        """The server's INFO."""
        return dict(await self.call("INFO"))

    async def within(self, patience: float, doing: Awaitable[T]) -> T:
        """Convert failures: UserError if a setting has to change, StoreUnreachable otherwise."""
        try:
            async with asyncio.timeout(patience):
                return await doing
        except NoScriptError:
            raise
        except TimeoutError as error:
            raise StoreUnreachable(f"Redis at {self.where} does not answer within {patience:.3g} s") from error
        except (RedisError, OSError) as error:
            raise self._told(error) from _root(error)

    def _told(self, error: RedisError | OSError) -> UserError | StoreUnreachable:
        cause = _root(error)
        if isinstance(cause, Refused) or _EXCEEDS_RIGHTS.search(str(cause)):
            return UserError(f"Redis at {self.where} refuses access: {_line(cause)}")
        if isinstance(cause, OfCluster):
            return UserError(f"Redis at {self.where} is part of a Redis Cluster, which cannot be used: {_line(cause)}")
        if isinstance(cause, ssl.SSLError):
            return StoreUnreachable(f"Redis at {self.where} cannot be reached: {self._tls.problem(cause)}")
        why = "cannot be reached" if isinstance(cause, Unreachable) else "refuses the command"
        return StoreUnreachable(f"Redis at {self.where} {why}: {_line(cause)}")

    async def close(self) -> None:
        await self.client.aclose()
        if self._sentinels is not None:
            await self._sentinels.close()


async def connect(
    url: str,
    log: logging.Logger,
    patience: float = CONNECT_PATIENCE,
    on_away: Callable[[str], object] = lambda why: None,
) -> RedisLink:
    """Returns once Redis answers; StoreUnreachable after `patience`. `on_away` gets the reason each time it fails.

    UserError at once for a bad URL, password or certificate.
    """
    address = read_url(url)
    tls = address.tls or TlsFiles()
    tls.check()
    client, sentinels = clients_for(address)
    link = RedisLink(client, address.where, tls, sentinels)
    try:
        await _wait_for_answer(link, log, patience, on_away)
    except BaseException:
        await link.close()
        raise
    return link


async def _wait_for_answer(
    link: RedisLink, log: logging.Logger, patience: float, on_away: Callable[[str], object]
) -> None:
    clock, limited_log = asyncio.get_running_loop().time, Repeated(log, SAY_EVERY)
    ends, pause = clock() + patience, FIRST_PAUSE
    while True:
        try:
            await link.call("PING", patience=max(min(CALL_PATIENCE, ends - clock()), FIRST_PAUSE))
            return
        except StoreUnreachable as cause:
            if not isinstance(cause.__cause__, Unreachable) or TlsFiles.refuses(cause.__cause__):
                raise UserError(str(cause)) from cause
            left = ends - clock()
            if left <= pause:
                raise StoreUnreachable(f"{cause}; tried for {patience:g} s") from cause
            on_away(str(cause))
            limited_log.warning("away", "%s; trying again for another %.0f s", cause, left)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _root(error: BaseException) -> BaseException:
    """The server's or TLS's own error, also where redis-py reports it as a failed connection."""
    while isinstance(error.__cause__, RedisError):
        error = error.__cause__
    within = error.__context__
    return within if isinstance(within, ssl.SSLError) else error


def _line(cause: BaseException) -> str:
    """The system's own words for a failed connection: redis-py adds numbers and addresses in Python's form."""
    inner: BaseException | None = cause
    while inner is not None:
        if isinstance(inner, OSError) and inner.errno and not isinstance(inner, ssl.SSLError):
            return os.strerror(inner.errno) if inner.errno > 0 else str(inner.strerror)
        inner = inner.__cause__ or inner.__context__
    text = " ".join(str(cause).split())
    for pattern, why in _WHY_NO_WRITES:
        if pattern.search(text):
            return why
    return _OF_SCRIPT.sub("", text) or type(cause).__name__
