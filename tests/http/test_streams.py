"""Answers that are read as they come."""

import asyncio
from pathlib import Path

import pytest

from shared.http.errors import BadAnswer, HttpFailure, Late
from shared.http.response import ResponseParser
from tests.http.support import OK, PATIENCE, Peer, answer_byte_by_byte, client_of, serving, tls_contexts
from tests.kube.support import until

pytestmark = pytest.mark.asyncio


async def test_a_stream_is_read_as_it_comes() -> None:
    more = asyncio.Event()

    async def stream(peer: Peer) -> None:
        while await peer.request():
            await peer.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            await more.wait()
            await peer.answer(b"2\r\nbc\r\n0\r\n\r\n")

    async with serving(stream) as server, client_of(server) as client:
        for _ in range(2):
            more.clear()
            body = await client.stream()
            assert (body.status, await body.read(PATIENCE)) == (200, b"a")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(body.read(PATIENCE), 0.01)
            more.set()
            assert [await body.read(PATIENCE) for _ in range(2)] == [b"bc", b""]
        assert len(server.peers) == 1


async def test_a_request_after_a_stream_that_was_not_read() -> None:
    """1. The whole body has arrived. 2. It is closed unread. 3. The next answer comes byte by byte."""

    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await peer.request()
        await answer_byte_by_byte(peer)
        await peer.closed()

    async with serving(serve) as server, client_of(server) as client:
        (await client.stream()).close()
        assert await client.get() == (200, b"hello")
        assert len(server.peers) == 1


async def test_a_silent_stream() -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await peer.closed()

    async with serving(silent) as server, client_of(server) as client:
        body = await client.stream()
        assert await body.read(PATIENCE) == b"a"
        with pytest.raises(Late):
            await body.read(0.02)
        await until(server.peers[0].gone)
        body.close()


async def test_a_stream_that_breaks_off_is_read_to_there() -> None:
    async def breaking(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")

    async with serving(breaking) as server, client_of(server) as client:
        body = await client.stream()
        assert await body.read(PATIENCE) == b"a"
        with pytest.raises(BadAnswer, match="broke off"):
            await body.read(PATIENCE)
        body.close()


async def test_a_stream_that_nobody_reads_pauses() -> None:
    sent = 0

    async def flood(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        while sent < 64 << 20:
            await peer.answer(bytes(1 << 16))
            sent += 1 << 16

    async with serving(flood) as server, client_of(server) as client:
        body = await client.stream(limit=1 << 20)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.02)
        assert sent < 32 << 20, "it does not wait for a reader"
        read = 0
        while data := await body.read(PATIENCE):
            read += len(data)
        assert read == sent == 64 << 20


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "TLS"])
async def test_what_comes_while_nobody_reads_wakes_nobody_and_comes_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, secured: bool
) -> None:
    theirs, ours = tls_contexts(tmp_path) if secured else (None, None)
    received, goes_on = list[bytes](), asyncio.Event()
    feed = ResponseParser.feed

    def count(parser: ResponseParser, data: bytes) -> None:
        received.append(data)
        feed(parser, data)

    async def one_by_one(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na")
        await goes_on.wait()
        for letter in (b"b", b"c", b"d"):
            await peer.answer(letter)
        goes_on.clear()
        await peer.closed()

    monkeypatch.setattr(ResponseParser, "feed", count)
    async with serving(one_by_one, theirs) as server, client_of(server, tls=ours) as client:
        body = await client.stream()
        assert await body.read(PATIENCE) == b"a"
        received.clear()
        goes_on.set()
        await until(lambda: not goes_on.is_set())
        for _ in range(3):
            await asyncio.sleep(0)
        assert received == []
        assert await body.read(PATIENCE) == b"bcd"
        body.close()


async def test_closing_a_stream_ends_its_reading() -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await peer.closed()

    async with serving(silent) as server, client_of(server) as client:
        body = await client.stream()
        reading = asyncio.create_task(body.read(PATIENCE))
        await asyncio.sleep(0)
        body.close()
        with pytest.raises(HttpFailure):
            await reading
        await until(server.peers[0].gone)


# The end
