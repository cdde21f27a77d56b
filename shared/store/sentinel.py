"""Sentinels: who knows which server is the master now. Asked for each new connection."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.store.address import Host


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
