"""The proxy between a service and NATS: it forwards data, blocks, and breaks connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.listening import listening
from tools.faults.nats_links import Link

pytestmark = pytest.mark.asyncio

PATIENCE = 5.0
MOMENT = 0.1
"""Seconds to wait for data that must not arrive."""


@asynccontextmanager
async def an_echo() -> AsyncIterator[str]:
    """An echo server; yields its URL."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1024):
                writer.write(data)
                await writer.drain()

    async with listening(echo) as port:
        yield f"nats://user:p%40ss@127.0.0.1:{port}"


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


async def received(reader: asyncio.StreamReader, patience: float = PATIENCE) -> bytes:
    """Empty if no data arrives in time."""
    try:
        async with asyncio.timeout(patience):
            return await reader.read(1024)
    except TimeoutError:
        return b"(silence)"


async def test_the_address_has_the_same_credentials() -> None:
    async with an_echo() as target, a_link(target) as link:
        assert link.url.startswith("nats://user:p%40ss@127.0.0.1:")
        assert link.url != target


async def test_data_sent_while_blocked_arrives_later() -> None:
    async with an_echo() as target, a_link(target) as link, a_client(link) as (reader, writer):
        writer.write(b"one")
        assert await received(reader) == b"one"
        link.block()
        link.block()
        writer.write(b"two")
        link.unblock()
        assert await received(reader, MOMENT) == b"(silence)"
        link.unblock()
        assert await received(reader) == b"two"


async def test_a_new_connection_waits_while_blocked() -> None:
    async with an_echo() as target, a_link(target) as link:
        link.block()
        async with a_client(link) as (reader, writer):
            writer.write(b"one")
            assert await received(reader, MOMENT) == b"(silence)"
            link.unblock()
            assert await received(reader) == b"one"


async def test_cut_connections_break_and_new_ones_work() -> None:
    async with an_echo() as target, a_link(target) as link:
        async with a_client(link) as (reader, writer):
            writer.write(b"one")
            assert await received(reader) == b"one"
            link.cut()
            with suppress(ConnectionError):
                assert await received(reader) == b""
        async with a_client(link) as (reader, writer):
            writer.write(b"two")
            assert await received(reader) == b"two"


async def test_a_connection_ends_with_its_server() -> None:
    async with an_echo() as target:
        pass
    async with a_link(target) as link, a_client(link) as (reader, _):
        with suppress(ConnectionError):
            assert await received(reader) == b""
