"""The way between a service and NATS: it carries, is blocked, and breaks off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tools.faults.nats_links import Link

pytestmark = pytest.mark.asyncio

PATIENCE = 5.0
MOMENT = 0.1
"""Seconds in which what is not to come does not come."""


@asynccontextmanager
async def an_echo() -> AsyncIterator[str]:
    """A server that says what it hears, by its URL."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1024):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        yield f"nats://user:p%40ss@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def a_link(target: str) -> AsyncIterator[Link]:
    link = Link(lambda: target)
    await link.start()
    try:
        yield link
    finally:
        await link.stop()


@asynccontextmanager
async def a_client(link: Link) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(link.url.rpartition(":")[2]))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def heard(reader: asyncio.StreamReader, patience: float = PATIENCE) -> bytes:
    """Nothing where nothing comes in time."""
    try:
        async with asyncio.timeout(patience):
            return await reader.read(1024)
    except TimeoutError:
        return b"(silence)"


async def test_its_address_has_the_same_credentials() -> None:
    async with an_echo() as target, a_link(target) as link:
        assert link.url.startswith("nats://user:p%40ss@127.0.0.1:")
        assert link.url != target


async def test_what_is_sent_while_it_is_blocked_arrives_late() -> None:
    async with an_echo() as target, a_link(target) as link, a_client(link) as (reader, writer):
        writer.write(b"one")
        assert await heard(reader) == b"one"
        link.block()
        link.block()
        writer.write(b"two")
        link.unblock()
        assert await heard(reader, MOMENT) == b"(silence)"
        link.unblock()
        assert await heard(reader) == b"two"


async def test_a_new_connection_waits_while_it_is_blocked() -> None:
    async with an_echo() as target, a_link(target) as link:
        link.block()
        async with a_client(link) as (reader, writer):
            writer.write(b"one")
            assert await heard(reader, MOMENT) == b"(silence)"
            link.unblock()
            assert await heard(reader) == b"one"


async def test_connections_break_off_and_new_ones_are_well() -> None:
    async with an_echo() as target, a_link(target) as link:
        async with a_client(link) as (reader, writer):
            writer.write(b"one")
            assert await heard(reader) == b"one"
            link.cut()
            with suppress(ConnectionError):
                assert await heard(reader) == b""
        async with a_client(link) as (reader, writer):
            writer.write(b"two")
            assert await heard(reader) == b"two"


async def test_when_the_server_is_gone_so_is_the_connection() -> None:
    async with an_echo() as target:
        pass
    async with a_link(target) as link, a_client(link) as (reader, _):
        with suppress(ConnectionError):
            assert await heard(reader) == b""
