"""Clients for an address. Each connection has its deadlines, and TLS is made anew for it from the files as they are."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool, SentinelManagedConnection
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.store.address import Address, Host, Login
from shared.tls import TlsFiles


class UnknownMaster(RedisError):
    """Sentinels answer, and have never heard of it."""


class Sentinels:
    """The next one is asked where one does not answer; whoever does not is asked last the next time."""

    def __init__(self, clients: Iterable[Redis]) -> None:
        self._clients = list(clients)

    async def discover_master(self, name: str) -> Host:
        """What a pool of connections calls."""
        silent: RedisError | None = None
        for client in tuple(self._clients):
            self._clients.remove(client)
            self._clients.append(client)
            try:
                found = await _execute(client, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
            except (RedisConnectionError, RedisTimeoutError) as cause:
                silent = cause
                continue
            if found is not None:
                self._clients.remove(client)
                self._clients.insert(0, client)
                host, port = found
                return host.decode(), int(port)
        if silent is not None:
            raise silent
        raise UnknownMaster(f"the sentinels know no master {name!r}")

    async def close(self) -> None:
        await asyncio.gather(*(client.aclose() for client in self._clients))


async def _execute(client: Redis, *command: str) -> Any:
    execute: Callable[..., Awaitable[Any]] = client.execute_command
    return await execute(*command)


CALL_PATIENCE = 5.0
"""Seconds that Redis may take for one call: far longer than any takes, shorter than a lease."""
SENTINEL_PATIENCE = 1.0
"""Seconds for one sentinel: several are asked within one call."""
MOST_CONNECTIONS = 8


class _TlsConnection(SSLConnection):
    """Trusts those only that it is told to."""

    def __init__(self, *, tls: TlsFiles, **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {**Connection._connection_arguments(self), "ssl": self._tls.context()}


class _TlsToMaster(SentinelManagedConnection, _TlsConnection):
    """Where sentinels say that the master is."""


def clients_for(address: Address) -> tuple[Redis, Sentinels | None]:
    """The client of the server, and the sentinels that it asks if there are any. Whoever has them closes both."""
    options = _options(address.login, address.tls, CALL_PATIENCE) | {"db": address.database}
    if address.path:
        pool = ConnectionPool(UnixDomainSocketConnection, path=address.path, **options)
    elif not address.master:
        ((host, port),) = address.hosts
        pool = ConnectionPool(_kind(address.tls), host=host, port=port, **options)
    else:
        sentinels = _sentinels(address)
        kind = SentinelManagedConnection if address.tls is None else _TlsToMaster
        pool = SentinelConnectionPool(address.master, sentinels, connection_class=kind, **options)  # type: ignore[no-untyped-call]
        return Redis.from_pool(pool), sentinels
    return Redis.from_pool(pool), None


def _sentinels(address: Address) -> Sentinels:
    options = _options(address.sentinel_login, address.tls, SENTINEL_PATIENCE) | {"socket_timeout": SENTINEL_PATIENCE}
    kind = _kind(address.tls)
    return Sentinels(
        Redis.from_pool(ConnectionPool(kind, host=host, port=port, **options)) for host, port in address.hosts
    )


def _kind(tls: TlsFiles | None) -> type[Connection]:
    return Connection if tls is None else _TlsConnection


def _options(login: Login, tls: TlsFiles | None, patience: float) -> dict[str, Any]:
    """Calls have deadlines of their own, so reading has none."""
    options = {
        "username": login.user,
        "password": login.password,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": MOST_CONNECTIONS,
        "socket_timeout": None,
        "socket_connect_timeout": patience,
    }
    return options if tls is None else options | {"tls": tls}
