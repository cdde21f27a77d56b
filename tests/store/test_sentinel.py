"""The master changes, and the state goes on from what the new one has. Master, replica and sentinel are real."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple, TypeVar

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen
from shared.errors import UserError
from shared.store.errors import StateLost, StoreUnreachable
from shared.store.link import RedisLink, connect
from tests.servers import ConfiguredRedis, a_free_port, configured_redis, sentinel
from tests.servers import Sentinel as SentinelServer
from tests.store.support import LOG, begin, linked_to, loaded, persists, plain, small_node

pytestmark = pytest.mark.asyncio

SOON = 15.0
SECRET = "hunter2"
T = TypeVar("T")


class Watched(NamedTuple):
    master: ConfiguredRedis
    replica: ConfiguredRedis
    sentinel: SentinelServer

    @property
    def url(self) -> str:
        """A sentinel that is away comes first."""
        return f"redis+sentinel://127.0.0.1:{a_free_port()},127.0.0.1:{self.sentinel.port}/main"


@asynccontextmanager
async def watched(lines: str = "") -> AsyncIterator[Watched]:
    """The sentinel knows both, and the replica follows. `lines`: further configuration of both."""
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(configured_redis(lines))
        replica = await stack.enter_async_context(configured_redis(f"replicaof 127.0.0.1 {master.port}\n{lines}"))
        followed = await stack.enter_async_context(linked_to(master.url))
        await until(lambda: says(followed, "INFO", "replication", text="online"))
        watching = await stack.enter_async_context(sentinel(master.port))
        asked = await stack.enter_async_context(linked_to(watching.url))
        await until(lambda: says(asked, "SENTINEL", "REPLICAS", "main", text="slave"))
        yield Watched(master, replica, watching)


async def says(link: RedisLink, *command: str, text: str) -> bool:
    return text in repr(await link.call(*command))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SOON):
        while not await condition():
            await asyncio.sleep(0.02)


async def part(master: RedisLink, replica: RedisLink) -> None:
    """The replica hears no more of what the master writes."""
    await replica.call("CONFIG", "SET", "masterauth", "wrong")
    await master.call("CLIENT", "KILL", "TYPE", "replica")
    await until(lambda: says(replica, "INFO", "replication", text="'master_link_status': 'down'"))


async def as_soon_as_it_answers(do: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(SOON):
        while True:
            try:
                return await do()
            except StoreUnreachable:
                await asyncio.sleep(0.05)


async def test_calls_go_where_transactions_go_once_the_sentinels_name_another_master() -> None:
    """Also while the old one is alive, and the connection to it sound."""
    async with (
        configured_redis() as old,
        configured_redis() as new,
        sentinel(old.port) as watching,
        linked_to(watching.url) as sentinels,
        linked_to(f"redis+sentinel://127.0.0.1:{watching.port}/main") as link,
    ):
        assert await says(link, "CONFIG", "GET", "port", text=str(old.port))
        await sentinels.call("SENTINEL", "REMOVE", "main")
        await sentinels.call("SENTINEL", "MONITOR", "main", "127.0.0.1", new.port, 1)
        async with link.client.pipeline(transaction=True) as transaction:
            transaction.execute_command("CONFIG", "GET", "port")
            assert str(new.port) in repr(await transaction.execute())
        assert await says(link, "CONFIG", "GET", "port", text=str(new.port))


async def test_failover_to_an_up_to_date_replica() -> None:
    """What was written is there, what was under way is written, and the term is the same."""
    async with watched() as them, linked_to(them.url) as link:
        core = SnapshotCore(1)
        writer = await begin(link, core)
        await writer.write(persists(core, NodeSeen(small_node("a"))))
        assert await link.call("WAIT", 1, 5000) == 1
        await them.master.kill()
        group = persists(core, NodeSeen(small_node("b")))
        with pytest.raises(StoreUnreachable):
            await writer.write(group)
        await as_soon_as_it_answers(lambda: writer.write(group))
        assert plain(await loaded(link)) == plain(core.state())
        async with linked_to(them.replica.url) as direct:
            assert await direct.call("HGET", "flotilla:meta", "epoch") == b"1"


async def test_failover_to_a_replica_that_lacks_the_last_writes() -> None:
    """The state is reported as lost, and is whole again in a new term."""
    async with (
        watched() as them,
        linked_to(them.url) as link,
        linked_to(them.replica.url) as replica,
    ):
        core = SnapshotCore(1)
        writer = await begin(link, core)
        assert await link.call("WAIT", 1, 5000) == 1
        await part(link, replica)
        await writer.write(persists(core, NodeSeen(small_node("a"))))
        await them.master.kill()
        group = persists(core, NodeSeen(small_node("b")))
        with pytest.raises(StateLost):
            await as_soon_as_it_answers(lambda: writer.write(group))
        again = SnapshotCore(2)
        for name in ("a", "b"):
            again.handle(NodeSeen(small_node(name)), 0.0)
        await begin(link, again)
        assert set(plain(await loaded(link))) == {"a", "b"}


async def test_a_hanging_master_is_replaced() -> None:
    """Its connections stay open without answers: only deadlines detect it."""
    async with watched() as them, linked_to(them.url) as link:
        await link.call("SET", "key", "1")
        assert await link.call("WAIT", 1, 5000) == 1
        assert them.master.process is not None
        os.kill(them.master.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnreachable, match=r"does not answer within 0\.3 s"):
                await link.call("SET", "key", "2", patience=0.3)
            await as_soon_as_it_answers(lambda: link.call("SET", "key", "3", patience=0.3))
            async with linked_to(them.replica.url) as direct:
                assert await direct.call("GET", "key") == b"3"
        finally:
            os.kill(them.master.process.pid, signal.SIGCONT)


async def told(url: str, patience: float = 5.0) -> str:
    with pytest.raises((UserError, StoreUnreachable)) as error:
        await connect(url, LOG, patience)
    assert SECRET not in str(error.value)
    return str(error.value)


async def test_sentinel_errors() -> None:
    """A master and sentinels with passwords of their own."""
    async with (
        configured_redis(f"user default off\nuser me on >{SECRET} ~* &* +@all\n") as master,
        sentinel(
            master.port, f"user default off\nuser asker on >{SECRET}2 -@all +sentinel|get-master-addr-by-name\n"
        ) as asked,
    ):
        where = f"127.0.0.1:{asked.port}"
        login = f"sentinel_username=asker&sentinel_password={SECRET}2"
        good = f"redis+sentinel://me:{SECRET}@{where}/main?{login}"
        async with linked_to(good) as link:
            assert await link.call("ECHO", "here") == b"here"
            assert link.where == f"main of sentinels {where}"
        at = f"Redis at main of sentinels {where}"
        assert (await told(good.replace("/main", "/other"))) == (
            f"Redis at other of sentinels {where} refuses the command: the sentinels know no master 'other'"
        )
        assert (await told(good.replace(f"me:{SECRET}@", f"me:{SECRET}3@"))).startswith(f"{at} refuses access: ")
        assert (await told(good.replace(f"{SECRET}2", f"{SECRET}3"))).startswith(f"{at} refuses access: ")
        assert (await told(good.partition("?")[0])).startswith(f"{at} refuses access: ")


async def test_unreachable_sentinels_are_retried() -> None:
    ports = a_free_port(), a_free_port()
    line = await told(f"redis+sentinel://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/main", patience=0.4)
    assert line.startswith(f"Redis at main of sentinels 127.0.0.1:{ports[0]},127.0.0.1:{ports[1]} cannot be reached: ")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis+sentinel://one,two", "the name of the master"),
        ("redis+sentinel://one,/main", "no server is named"),
        ("redis+sentinel://one:x/main", "cannot be read"),
        ("redis+sentinel://one/main/first", "a database has a number"),
        ("redis+sentinel://one/main?ssl_ca_certs=ca.pem", "certificates are for TLS"),
        ("redis://one?sentinel_username=me", "only the options"),
        ("redis+cluster://one", "a Redis Cluster cannot be used"),
    ],
)
async def test_invalid_sentinel_urls(url: str, problem: str) -> None:
    line = await told(url.replace("://", f"://me:{SECRET}@"))
    assert line.startswith("redis URL: ") and problem in line


async def test_a_redis_cluster_is_refused() -> None:
    async with configured_redis("cluster-enabled yes\n") as server, linked_to(server.url) as link:
        with pytest.raises(UserError, match="is part of a Redis Cluster, which cannot be used"):
            await begin(link, SnapshotCore(1))
