"""Redis clients for an address, and the sentinels that they ask. Each connection reads its TLS files again."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import hiredis
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
    """The sentinels answer, but do not know this master."""


class Sentinels:
    """Asks the next sentinel if one does not answer, and a silent one last the next time."""

    def __init__(self, clients: Iterable[Redis]) -> None:
        self._clients = list(clients)

    async def discover_master(self, name: str) -> Host:
        """Called by redis-py's connection pool."""
        silent: RedisError | None = None
        for client in tuple(self._clients):
            self._clients.remove(client)
            self._clients.append(client)
            try:
                execute: Callable[..., Awaitable[Any]] = client.execute_command
                found = await execute("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
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


CALL_PATIENCE = 5.0
"""Seconds for one call: far longer than any takes, shorter than a Lease."""
SENTINEL_PATIENCE = 1.0
"""Seconds for one sentinel; several are asked within one call."""
MAX_CONNECTIONS = 8
"""Connections of one process to Redis."""


class _Packing:
    """Commands are packed in C: redis-py spends more on it than on everything else about a write of the snapshot."""

    def pack_command(self, *args: Any) -> list[bytes]:
        return [hiredis.pack_command((*args[0].split(), *args[1:]))]  # a name may be of two words: CLIENT SETINFO


class _Connection(_Packing, Connection):
    pass


class _SocketConnection(_Packing, UnixDomainSocketConnection):
    pass


class _ToMaster(_Packing, SentinelManagedConnection):
    """A connection to the master that the sentinels name."""


class _TlsConnection(_Packing, SSLConnection):
    """Trusts only the given authorities."""

    def __init__(self, *, tls: TlsFiles, **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {**Connection._connection_arguments(self), "ssl": self._tls.context()}


class _TlsToMaster(_ToMaster, _TlsConnection):
    pass


class _Client(Redis):
    """Runs commands on the connection of the last one while that is sound and free: redis-py's way through its pool
    costs more than the command.
    """

    _kept: Connection | None = None

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        kept, self._kept = self._kept, None
        connection: Connection = kept or await self.connection_pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            sound = connection.is_connected and _leads_to_master(connection, self.connection_pool)
            if not sound or await connection.can_read():  # it was closed meanwhile
                await connection.disconnect()
                await connection.connect()  # type: ignore[no-untyped-call]
            await connection.send_command(*args)
            answer = await self.parse_response(connection, args[0], **options)
        except BaseException:
            await self.connection_pool.release(connection)
            raise
        if self._kept is None:
            self._kept = connection
        else:
            await self.connection_pool.release(connection)
        return answer

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            await self.connection_pool.release(kept)
        await super().aclose(close_connection_pool)


def _leads_to_master(connection: Connection, pool: ConnectionPool) -> bool:
    """Whether the sentinels, if any, name no other master since: a connection in use hears nothing of that."""
    return not isinstance(pool, SentinelConnectionPool) or pool.master_address == (connection.host, connection.port)


def clients_for(address: Address) -> tuple[Redis, Sentinels | None]:
    """The client, and the sentinels that it asks, if any. The caller closes both."""
    options = _options(address.login, address.tls, CALL_PATIENCE) | {"db": address.database}
    kind: type[Connection] = _Connection if address.tls is None else _TlsConnection
    if address.path:
        pool = ConnectionPool(_SocketConnection, path=address.path, **options)
    elif not address.master:
        ((host, port),) = address.hosts
        pool = ConnectionPool(kind, host=host, port=port, **options)
    else:
        asking = _options(address.sentinel_login, address.tls, SENTINEL_PATIENCE)
        asking["socket_timeout"] = SENTINEL_PATIENCE
        pools = (ConnectionPool(kind, host=host, port=port, **asking) for host, port in address.hosts)
        sentinels = Sentinels(map(Redis.from_pool, pools))
        to_master = _ToMaster if address.tls is None else _TlsToMaster
        pool = SentinelConnectionPool(address.master, sentinels, connection_class=to_master, **options)  # type: ignore[no-untyped-call]
        return _Client.from_pool(pool), sentinels
    return _Client.from_pool(pool), None


def _options(login: Login, tls: TlsFiles | None, patience: float) -> dict[str, Any]:
    """Calls have their own deadlines, so reads have none."""
    options = {
        "username": login.user,
        "password": login.password,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": MAX_CONNECTIONS,
        "socket_timeout": None,
        "socket_connect_timeout": patience,
    }
    return options if tls is None else options | {"tls": tls}
