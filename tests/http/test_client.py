"""Requests over real connections: slow, odd and vanished servers, deadlines, and which connections are used again."""

import asyncio
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from shared.http.errors import BadAnswer, Closed, Late, NotConnected
from shared.http.response import MAX_HEAD_BYTES
from tests.http.support import OK, PATIENCE, Client, Peer, answer_byte_by_byte, client_of, serving, tls_contexts
from tests.kube.support import until

pytestmark = pytest.mark.asyncio


async def answer_all(peer: Peer) -> None:
    while await peer.request():
        await peer.answer(OK)


async def test_a_connection_is_kept() -> None:
    async with serving(answer_all) as server, client_of(server) as client:
        for _ in range(3):
            assert await client.get() == (200, b"hello")
        assert await client.post() == (200, b"hello")
        assert len(server.peers) == 1


async def test_concurrent_requests_share_a_limited_number_of_connections() -> None:
    async with serving(answer_all) as server, client_of(server, most=3) as client:
        answers = await asyncio.gather(*(client.post() for _ in range(50)))
        assert answers == [(200, b"hello")] * 50
        assert len(server.peers) == 3


async def test_an_idle_connection_is_closed() -> None:
    async with serving(answer_all) as server, client_of(server, idle_seconds=0.05) as client:
        await client.get()
        await until(server.peers[0].gone)
        assert await client.get() == (200, b"hello")
        assert len(server.peers) == 2


@pytest.mark.parametrize("size", range(len(OK) + 1))
async def test_a_server_that_goes_at_each_byte(size: int) -> None:
    async def cut(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK[:size])

    async with serving(cut) as server, client_of(server) as client:
        if size == len(OK):
            assert await client.post() == (200, b"hello")
        else:
            with pytest.raises(BadAnswer if size else Closed) as broken:
                await client.post()
            assert broken.value.maybe_received


async def test_a_slow_answer() -> None:
    async def slow(peer: Peer) -> None:
        while await peer.request():
            await answer_byte_by_byte(peer)

    async with serving(slow) as server, client_of(server) as client:
        assert await client.get() == (200, b"hello")
        assert await client.get() == (200, b"hello")
        assert len(server.peers) == 1


@pytest.mark.parametrize("head", [b"X: " + b"y" * MAX_HEAD_BYTES, b"X: y\r\n" * MAX_HEAD_BYTES])
async def test_endless_headers(head: bytes) -> None:
    async def endless(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\n" + head)
        await peer.closed()

    async with serving(endless) as server, client_of(server) as client:
        with pytest.raises(BadAnswer, match="headers are longer"):
            await client.get()
        await until(server.peers[0].gone)


async def test_an_endless_body() -> None:
    async def endless(peer: Peer) -> None:
        await peer.request()
        await peer.answer(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await peer.answer(bytes(1 << 16))

    async with serving(endless) as server, client_of(server) as client:
        with pytest.raises(BadAnswer, match="longer than 100000 bytes"):
            await client.get(limit=100_000)


# Connections that cannot be used again


async def test_a_cancelled_request_ends_its_connection() -> None:
    received = asyncio.Event()

    async def late(peer: Peer) -> None:
        await peer.request()
        if peer.number == 1:
            received.set()
            await peer.closed()
        await peer.answer(OK)

    async with serving(late) as server, client_of(server, most=1) as client:
        given_up = asyncio.create_task(client.post())
        await received.wait()
        waits = asyncio.create_task(client.get())
        await asyncio.sleep(0)
        given_up.cancel()
        assert await waits == (200, b"hello")
        assert given_up.cancelled()
        assert len(server.peers) == 2
        assert server.peers[0].gone()


async def test_after_a_deadline_the_server_may_have_received_it() -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.closed()

    async with serving(silent) as server, client_of(server) as client:
        with pytest.raises(Late) as late:
            await client.post(patience=0.05)
        assert late.value.maybe_received
        await until(server.peers[0].gone)


async def test_a_request_that_waits_for_a_connection_is_not_sent() -> None:
    requests: list[bytes] = []

    async def silent(peer: Peer) -> None:
        requests.append(await peer.request())
        await peer.closed()

    async with serving(silent) as server, client_of(server, most=1) as client:
        first = asyncio.create_task(client.post(b"1"))
        await until(lambda: requests)
        with pytest.raises(Late) as late:
            await client.post(b"2", patience=0.05)
        assert not late.value.maybe_received
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert len(requests) == len(server.peers) == 1


async def test_waiters_get_what_cancelled_ones_leave() -> None:
    release = asyncio.Event()

    async def held(peer: Peer) -> None:
        while await peer.request():
            await release.wait()
            await peer.answer(OK)

    async with serving(held) as server, client_of(server, most=2) as client:
        requests = [asyncio.create_task(client.get()) for _ in range(12)]
        await until(lambda: len(server.peers) == 2)
        for request in requests[2:8]:
            request.cancel()
        release.set()
        requests[8].cancel()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        assert [each for each in answers if each == (200, b"hello")] == [(200, b"hello")] * 5
        assert await client.get() == (200, b"hello")
        assert len(server.peers) == 2


@pytest.mark.parametrize("reads", [True, False])
async def test_a_kept_connection_that_the_server_has_closed(reads: bool) -> None:
    """It closes when it gets the second request. Only a request that may be repeated is sent again."""

    async def twice(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await peer.request()
        if peer.number > 1:
            await peer.answer(OK)

    async with serving(twice) as server, client_of(server) as client:
        await client.get()
        if reads:
            assert await client.get() == (200, b"hello")
        else:
            with pytest.raises(Closed) as closed:
                await client.post()
            assert closed.value.maybe_received
        assert len(server.peers) == 1 + reads


async def test_a_server_that_closes_between_requests_is_noticed() -> None:
    async def once(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)

    async with serving(once) as server, client_of(server) as client:
        for number in range(1, 4):
            assert await client.post() == (200, b"hello")
            await until(lambda: not client.http.held)
            assert len(server.peers) == number


async def test_an_answer_without_a_request_ends_a_kept_connection() -> None:
    async def talkative(peer: Peer) -> None:
        await peer.request()
        await peer.answer(OK)
        await peer.answer(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await peer.closed()

    async with serving(talkative) as server, client_of(server) as client:
        assert await client.post() == (200, b"hello")
        await until(lambda: not client.http.held)
        assert await client.post() == (200, b"hello")
        assert len(server.peers) == 2


async def test_an_answer_before_the_whole_request_was_read() -> None:
    async def hasty(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.answer(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await peer.closed()

    async with serving(hasty) as server, client_of(server) as client:
        assert await client.post(bytes(16 << 20)) == (413, b"")
        await until(lambda: not client.http.held)
        assert len(server.peers) == 1


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.0 200 OK\r\n\r\nok"],
)
async def test_a_server_that_keeps_no_connections(answer: bytes) -> None:
    async def once(peer: Peer) -> None:
        await peer.request()
        await peer.answer(answer)

    async with serving(once) as server, client_of(server) as client:
        for number in range(1, 4):
            assert await client.post() == (200, b"ok")
            assert len(server.peers) == number


# Connecting


async def test_nobody_listens() -> None:
    async with serving(answer_all) as server:
        url = server.url
    client = Client(url)
    with pytest.raises(NotConnected, match=r"^cannot be reached: Connection refused$") as refused:
        await client.post()
    assert not refused.value.maybe_received
    await client.http.close()


async def test_a_name_that_is_none() -> None:
    client = Client("http://host.invalid:1")
    with pytest.raises(NotConnected, match=r"^cannot be reached: "):
        await client.post()
    await client.http.close()


# Streams


@pytest.mark.parametrize("proxied", [False, True], ids=["directly", "through a proxy with TLS"])
async def test_tls(tmp_path: Path, proxied: bool) -> None:
    theirs, ours = tls_contexts(tmp_path)

    async def relay(peer: Peer) -> None:
        asked = await peer.request()
        host, _, port = asked.split(b" ")[1].decode().partition(":")
        there, to = await asyncio.open_connection(host, int(port))
        await peer.answer(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(_pump(peer.reader, to), _pump(there, peer.writer))
        finally:
            to.close()

    async with serving(answer_all, theirs) as server, serving(relay, theirs) as proxy:
        client = Client(server.url, tls=ours, proxy=proxy.url if proxied else "")
        for _ in range(3):
            assert await client.post(b"x" * 100_000) == (200, b"hello")
        client.http.use(ssl.create_default_context())
        with pytest.raises(NotConnected, match="certificate verify failed"):
            await client.post()
        await client.http.close()
        assert (len(server.peers), bool(proxy.peers)) == (1, proxied)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_a_server_that_closes_before_tls_begins_is_not_connected(caplog: pytest.LogCaptureFixture) -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    def close_all() -> None:
        with suppress(OSError):  # once it listens no more
            while True:
                listening.accept()[0].close()

    closing = threading.Thread(target=close_all)
    closing.start()
    client = Client(f"https://127.0.0.1:{listening.getsockname()[1]}")
    try:
        for _ in range(100):
            with pytest.raises(NotConnected):
                await client.get()
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        closing.join()
        listening.close()
        await client.http.close()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_closing_the_client_ends_the_making_of_a_connection() -> None:
    async def silent(peer: Peer) -> None:
        await peer.closed()

    async with serving(silent) as server:
        client = Client(server.url.replace("http:", "https:"), tls=ssl.create_default_context())
        request = asyncio.create_task(client.post())
        await until(lambda: server.peers)
        async with asyncio.timeout(PATIENCE / 2):
            await client.http.close()
            with pytest.raises(NotConnected, match="the client is closed"):
                await request
            await until(server.peers[0].gone)


async def test_closing_the_client_ends_everything() -> None:
    received = 0

    async def silent(peer: Peer) -> None:
        nonlocal received
        await peer.request()
        received += 1
        await peer.closed()

    async with serving(silent) as server:
        client = Client(server.url, most=2)
        requests = [asyncio.create_task(client.post()) for _ in range(4)]
        await until(lambda: received == 2)
        await client.http.close()
        failures = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(each) for each in failures] == [Closed, Closed, NotConnected, NotConnected]
        with pytest.raises(NotConnected, match="closed"):
            await client.post()
        assert client.http.held == 0
