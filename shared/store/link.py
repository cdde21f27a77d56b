"""The connection to Redis: every call has a deadline, and what fails is told in one line that holds no password."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, NoScriptError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.errors import UserError
from shared.store.errors import StoreUnreachable
from shared.store.scripts import Script

CONNECT_PATIENCE = 30.0
"""Seconds that an unreachable Redis is waited for: a restart takes less."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to connect; twice as long each time."""
CALL_PATIENCE = 5.0
"""Seconds that Redis may take for one call: far longer than any takes, shorter than a lease."""
MOST_CONNECTIONS = 8
DEFAULT_PORT = 6379
ACCEPTED = "redis://, rediss:// or unix://, special characters in a password percent-encoded"

T = TypeVar("T")
Argument = str | bytes | int
Refused = (AuthenticationError, AuthorizationError, NoPermissionError)
Unreachable = (RedisConnectionError, RedisTimeoutError, OSError, TimeoutError)


class RedisLink:
    """Nothing is sent a second time by itself: only the caller knows whether that does harm."""

    def __init__(self, client: Redis, where: str) -> None:
        self.client = client
        self.where = where
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

    async def within(self, patience: float, doing: Awaitable[T]) -> T:
        """Whatever fails is a UserError if somebody has to change a setting, and a StoreUnreachable otherwise."""
        try:
            async with asyncio.timeout(patience):
                return await doing
        except NoScriptError:
            raise
        except TimeoutError as error:
            raise StoreUnreachable(f"Redis at {self.where} does not answer within {patience:.3g} s") from error
        except (RedisError, OSError) as error:
            cause = _root(error)
            if isinstance(cause, Refused):
                raise UserError(f"Redis at {self.where} refuses access: {_line(cause)}") from cause
            why = "cannot be reached" if isinstance(cause, Unreachable) else "does not take this"
            raise StoreUnreachable(f"Redis at {self.where} {why}: {_line(cause)}") from cause

    async def close(self) -> None:
        await self.client.aclose()


async def connect(url: str, log: logging.Logger, patience: float = CONNECT_PATIENCE) -> RedisLink:
    """Returns once Redis answers. UserError at once for a bad URL or password, StoreUnreachable after `patience`."""
    link = RedisLink(_client(url), _where(url))
    try:
        await _wait_for_answer(link, log, patience)
    except BaseException:
        await link.close()
        raise
    return link


async def _wait_for_answer(link: RedisLink, log: logging.Logger, patience: float) -> None:
    clock = asyncio.get_running_loop().time
    ends, pause = clock() + patience, FIRST_PAUSE
    while True:
        try:
            await link.call("PING", patience=max(min(CALL_PATIENCE, ends - clock()), FIRST_PAUSE))
            return
        except StoreUnreachable as cause:
            if not isinstance(cause.__cause__, Unreachable):
                raise UserError(str(cause)) from cause
            left = ends - clock()
            if left <= pause:
                raise StoreUnreachable(f"{cause}; tried for {patience:g} s") from cause
            log.warning("%s; trying again for another %.0f s", cause, left)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _client(url: str) -> Redis:
    _where(url)
    try:
        client: Redis = Redis.from_url(
            url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            max_connections=MOST_CONNECTIONS,
            socket_timeout=None,
            socket_connect_timeout=CALL_PATIENCE,
        )
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # tells of options that it does not have
    except (TypeError, ValueError, RedisError, ssl.SSLError):
        # The cause may repeat parts of the URL, so it is left out.
        raise UserError(f"redis URL: an option after the question mark cannot be; use {ACCEPTED}") from None
    return client


def _where(url: str) -> str:
    """The server that a URL names, without user and password; UserError where the URL cannot be."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
        options = parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        raise UserError(f"redis URL: host, port or options cannot be read; use {ACCEPTED}") from None
    if parts.fragment or not all(name == "db" or name.startswith("ssl_") for name, _ in options):
        raise UserError(f"redis URL: only the options db and ssl_... can be given; use {ACCEPTED}")
    if parts.scheme == "unix" and parts.path:
        return unquote(parts.path)
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise UserError(f"redis URL: no server is named; use {ACCEPTED}")
    database = parts.path.strip("/")
    if database and not database.isdecimal():
        raise UserError(f"redis URL: the path is the number of a database, not a name; use {ACCEPTED}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port}"


def _root(error: BaseException) -> BaseException:
    """What the server said, also where the client tells of it as a connection that failed."""
    while isinstance(error.__cause__, RedisError):
        error = error.__cause__
    return error


def _line(cause: BaseException) -> str:
    return " ".join(str(cause).split()) or type(cause).__name__
