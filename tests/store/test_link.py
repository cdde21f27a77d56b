"""Connecting: what is a matter of patience, what is a matter of settings, and that no password is ever told."""

import asyncio
import logging
import os
import signal
import socket

import pytest

from shared.errors import UserError
from shared.store.errors import StoreUnreachable
from shared.store.link import RedisLink, connect
from shared.store.scripts import Script
from shared.store.term import open_term
from tests.servers import configured_redis, redis_server
from tests.store.support import LOG, PREFIX, linked, linked_to, relay

pytestmark = pytest.mark.asyncio

SECRET = "hunter2"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def refused(url: str, patience: float = 5.0) -> str:
    """The one line that this URL is refused with."""
    with pytest.raises((UserError, StoreUnreachable)) as error:
        await connect(url, LOG, patience)
    assert SECRET not in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


async def test_sockets_and_ports() -> None:
    async with redis_server() as server, relay(server) as between:
        for url in (server.url, between.url, f"{between.url}/0", f"{server.url}?db=3"):
            async with linked_to(url) as link:
                assert await link.call("ECHO", "here") == b"here"
        assert link.where == server.url.removeprefix("unix://")


async def test_databases_are_separate() -> None:
    async with redis_server() as server, relay(server) as between:
        async with linked_to(f"{between.url}/2") as link:
            await link.call("SET", "key", "value")
        async with linked(server) as link:
            assert await link.call("GET", "key") is None


async def test_a_connection_that_the_server_has_closed_is_opened_again() -> None:
    async with redis_server() as server, linked(server) as link:
        assert await link.call("CLIENT", "ID") == await link.call("CLIENT", "ID")
        await server.kill()
        await server.start()
        assert await link.call("ECHO", "here") == b"here"


async def test_the_answer_to_a_call_that_was_given_up_is_not_taken_for_another_one() -> None:
    async with redis_server() as server, linked(server) as link, linked(server) as other:
        waiting = asyncio.create_task(link.call("BLPOP", "list", 0))
        async with asyncio.timeout(5.0):
            while not await blocked(other):
                await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await link.call("ECHO", "here") == b"here"


async def test_a_slow_call_delays_no_other_one() -> None:
    async with redis_server() as server, linked(server) as link:
        waiting = asyncio.create_task(link.call("BLPOP", "list", 0))
        async with asyncio.timeout(5.0):
            while not await blocked(link):
                await asyncio.sleep(0.001)
            await link.call("RPUSH", "list", "here")
            assert await waiting == (b"list", b"here")
        assert await link.call("ECHO", "here") == b"here"


async def blocked(link: RedisLink) -> bool:
    return int((await link.info())["blocked_clients"]) > 0


async def test_unreachable_is_reported_with_the_server_and_without_the_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    with caplog.at_level(logging.WARNING):
        told = await refused(f"redis://me:{SECRET}@127.0.0.1:{port}/0", patience=0.5)
    assert told.startswith(f"Redis at 127.0.0.1:{port} cannot be reached: ")
    assert told.endswith("; tried for 0.5 s")
    lines = [record.getMessage() for record in caplog.records]
    assert lines
    assert all(f"127.0.0.1:{port}" in line and SECRET not in line for line in lines)


async def test_connecting_waits_for_redis(caplog: pytest.LogCaptureFixture) -> None:
    async with redis_server() as server:
        await server.kill()
        with caplog.at_level(logging.WARNING):
            connecting = asyncio.create_task(connect(server.url, LOG, 10.0))
            async with asyncio.timeout(5.0):
                while not caplog.records:
                    await asyncio.sleep(0.01)
        assert "redis.sock" in caplog.records[0].getMessage()
        await server.start()
        link = await connecting
        try:
            assert await link.call("ECHO", "here") == b"here"
        finally:
            await link.close()


async def test_a_wrong_password_is_reported_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with redis_server() as server, linked(server) as link:
        await link.call("CONFIG", "SET", "requirepass", "another")
        path = server.url.removeprefix("unix://")
        for user in ("", f":{SECRET}@", f"nobody:{SECRET}@"):
            told = await refused(f"unix://{user}{path}")
            assert told.startswith(f"Redis at {path} refuses access: ")
        assert caplog.records == []
        async with linked_to(f"unix://:another@{path}") as allowed:
            assert await allowed.call("ECHO", "here") == b"here"


async def test_a_user_without_rights_on_the_keys_is_reported() -> None:
    async with redis_server() as server, linked(server) as link:
        await link.call("ACL", "SETUSER", "me", "on", f">{SECRET}", "~other:*", "+@all")
        url = server.url.replace("unix://", f"unix://me:{SECRET}@")
        async with linked_to(url) as mine:
            with pytest.raises(UserError, match=r"redis\.sock refuses access"):
                await open_term(mine, PREFIX, 1)
            await open_term(mine, "other", 1)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:6379",
        f"http://me:{SECRET}@127.0.0.1:6379",
        f"redis://:{SECRET}/x@127.0.0.1:6379",
        f"redis://:{SECRET}#x@127.0.0.1:6379",
        f"redis://:{SECRET}?x@127.0.0.1:6379",
        f"redis://:{SECRET}@127.0.0.1:port",
        f"redis://:{SECRET}@127.0.0.1:99999",
        f"redis://:{SECRET}@:6379",
        f"redis://:{SECRET}@127.0.0.1:6379/production",
        f"redis://127.0.0.1:6379/0?password={SECRET}",
        "redis://127.0.0.1:6379/0?decode_responses=1",
        "redis://127.0.0.1:6379/0?db=first",
        "redis://127.0.0.1:6379/0?ssl_made_up=1",
        "redis://[::1:6379",
        "unix://",
        "unix://redis.sock",
    ],
)
async def test_a_bad_url_is_reported(url: str) -> None:
    assert (await refused(url)).startswith("redis URL: ")


async def test_a_missing_database_is_reported_at_once() -> None:
    async with redis_server() as server:
        assert "DB index is out of range" in await refused(f"{server.url}?db=99")


async def test_a_hanging_server_times_out_and_replies_are_not_mixed_up() -> None:
    async with redis_server() as server, linked(server) as link:
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnreachable, match=r"does not answer within 0\.1 s"):
                await link.call("ECHO", "first", patience=0.1)
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        assert await link.call("ECHO", "second") == b"second"


async def test_a_cancelled_call_leaves_the_link_usable() -> None:
    async with redis_server() as server, linked(server) as link:
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGSTOP)
        calling = asyncio.create_task(link.call("ECHO", "first"))
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        os.kill(server.process.pid, signal.SIGCONT)
        assert await link.call("ECHO", "second") == b"second"


async def test_a_read_only_server_is_reported() -> None:
    async with redis_server() as server, linked(server) as link:
        await link.call("REPLICAOF", "127.0.0.1", str(free_port()))
        with pytest.raises(StoreUnreachable, match="refuses the command"):
            await open_term(link, PREFIX, 1)


async def test_a_rediss_url_uses_tls() -> None:
    """A server that does not speak it is not talked to in clear: it would answer at once."""
    async with redis_server() as server, relay(server) as between:
        told = await refused(between.url.replace("redis://", f"rediss://:{SECRET}@"), patience=0.3)
        assert told.startswith(f"Redis at 127.0.0.1:{between.port} ")


@pytest.mark.parametrize(
    ("lines", "command", "why"),
    [
        ("maxmemory 1\n", (), "it is full (maxmemory): give it more memory"),
        ("", ("REPLICAOF", "127.0.0.1", "1"), "it is a replica, which takes no writes"),
    ],
)
async def test_why_a_server_takes_no_writes_is_said_in_words(lines: str, command: tuple[str, ...], why: str) -> None:
    """The same from within a script, whose lines nobody needs."""
    async with configured_redis(lines) as server, linked_to(server.url) as link:
        if command:
            await link.call(*command)
        script = Script("redis.call('SET', KEYS[1], ARGV[1]) return {}")
        for write in (link.call("SET", "key", "value"), link.run(script, ["key"], ["value"])):
            with pytest.raises(StoreUnreachable) as error:
                await write
            assert str(error.value).endswith(f" refuses the command: {why}")
