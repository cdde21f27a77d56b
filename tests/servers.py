"""Real servers for tests, each in a temporary folder and on a free port."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from tools.supervisor.servers import (
    NatsServer,
    RedisServer,
    Server,
    bundled_redis,
    listens,
    temporary_folder,
    write_secret,
)

S = TypeVar("S", bound=Server)
REDIS = os.environ.get("REDIS_SERVER") or str(bundled_redis())
"""What tests run against: not what happens to be on PATH. CI runs those of the store with a later version as well."""


class ConfiguredNats(NatsServer):
    """Lets in whom `admission` says: lines of its configuration. The URL names no user."""

    def __init__(self, folder: Path, admission: str) -> None:
        super().__init__(folder)
        self.admission = admission

    def as_user(self, user: str) -> str:
        return self.url.replace("://", f"://{user}@")

    def _admission(self) -> str:
        return self.admission

    def _url(self, port: int) -> str:
        return f"nats://127.0.0.1:{port}"


@asynccontextmanager
async def configured_nats(admission: str = "") -> AsyncIterator[ConfiguredNats]:
    async with temporary_folder() as folder, running(ConfiguredNats(folder, admission)) as server:
        yield server


@asynccontextmanager
async def nats_server() -> AsyncIterator[NatsServer]:
    async with temporary_folder() as folder, running(NatsServer(folder)) as server:
        yield server


class TriedRedis(RedisServer):
    def _executable(self) -> str:
        return REDIS


@asynccontextmanager
async def redis_server() -> AsyncIterator[RedisServer]:
    async with temporary_folder() as folder, running(TriedRedis(folder)) as server:
        yield server


class ConfiguredRedis(TriedRedis):
    """Has further lines in its configuration, and listens on a port as well."""

    def __init__(self, folder: Path, lines: str) -> None:
        super().__init__(folder)
        self.port = a_free_port() if "cluster-enabled" not in lines else a_port_with_another()
        self._lines = lines

    def _more(self) -> str:
        return f"bind 127.0.0.1\nport {self.port}\nrepl-diskless-sync yes\nrepl-diskless-sync-delay 0\n{self._lines}"


class Sentinel(Server):
    """Watches the master at a port, called `main`, by itself; it takes it for gone after half a second."""

    name = "redis-sentinel"

    def __init__(self, folder: Path, master: int, lines: str = "") -> None:
        super().__init__(folder)
        self.port = a_free_port()
        self._watched = master
        self._lines = lines

    async def start(self) -> None:
        config = self.folder / "sentinel.conf"
        write_secret(
            config,
            f'bind 127.0.0.1\nport {self.port}\ndir "{self.folder}"\n{self._lines}'
            f"sentinel monitor main 127.0.0.1 {self._watched} 1\nsentinel down-after-milliseconds main 500\n"
            "sentinel failover-timeout main 3000\n",
        )
        await self._launch([REDIS, str(config), "--sentinel"], lambda: listens(self.port))
        self.url = f"redis://127.0.0.1:{self.port}"


@asynccontextmanager
async def configured_redis(lines: str = "") -> AsyncIterator[ConfiguredRedis]:
    async with temporary_folder() as folder, running(ConfiguredRedis(folder, lines)) as server:
        yield server


@asynccontextmanager
async def sentinel(master: int, lines: str = "") -> AsyncIterator[Sentinel]:
    async with temporary_folder() as folder, running(Sentinel(folder, master, lines)) as server:
        yield server


@asynccontextmanager
async def running(server: S) -> AsyncIterator[S]:
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def a_port_with_another() -> int:
    """A server of a Redis Cluster needs the port 10,000 above its own as well."""
    while True:
        port = a_free_port()
        with socket.socket() as probe, suppress(OSError, OverflowError):
            probe.bind(("127.0.0.1", port + 10_000))
            return port
