"""Real servers for tests, each in a temporary folder and on a free port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.supervisor.servers import NatsServer, RedisServer, temporary_folder


@asynccontextmanager
async def nats_server() -> AsyncIterator[NatsServer]:
    async with temporary_folder() as folder:
        server = NatsServer(folder)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()


@asynccontextmanager
async def redis_server() -> AsyncIterator[RedisServer]:
    async with temporary_folder() as folder:
        server = RedisServer(folder)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()
