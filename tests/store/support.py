"""What the tests of the store share: states as plain data, a term in one line, and a network that fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from services.snapshot.core import SnapshotCore
from services.snapshot.events import Event
from shared.messages.state import Assignment, Commit, Decision, State
from shared.model.load import PodLoad
from shared.model.objects import Node
from shared.store.link import RedisLink, connect
from shared.store.reader import StoreReader
from shared.store.schema import Persist
from shared.store.term import open_term
from shared.store.writer import Writer
from testing.builders import node
from tests.listening import listening
from tests.servers import redis_server
from tools.supervisor.servers import Server

PREFIX = "flotilla"
PIPELINE = "cluster-0/kube-system"
SHARDS = 4
LOG = logging.getLogger("tests.store")

Plain = dict[str, tuple[Node, dict[str, PodLoad]]]


@asynccontextmanager
async def linked(server: Server) -> AsyncIterator[RedisLink]:
    async with linked_to(server.url) as link:
        yield link


@asynccontextmanager
async def linked_to(url: str) -> AsyncIterator[RedisLink]:
    link = await connect(url, LOG, patience=5.0)
    try:
        yield link
    finally:
        await link.close()


def plain(state: State) -> Plain:
    """Equal data, equal states, in any order and numbering."""
    return {
        each.node.name: (each.node, {uid: state.loads[pod.load] for uid, pod in each.pods.items()})
        for each in state.nodes
    }


def small_node(name: str, cpu: int = 4) -> Node:
    return node(name).capacity(cpu=cpu).build()


def persists(core: SnapshotCore, *events: Event, now: float = 0.0) -> list[Persist]:
    effects = [effect for event in events for effect in core.handle(event, now)]
    return [effect for effect in effects if isinstance(effect, Persist)]


def commit(core: SnapshotCore, round_: int, places: Iterable[tuple[str, str]], load: PodLoad | None = None) -> Commit:
    """Pods to nodes, judged on the newest state."""
    decisions = [
        Decision(Assignment(uid, "default", uid, "default-scheduler", where), 0, core.seq) for uid, where in places
    ]
    return Commit(1, round_, [load or PodLoad("default", requests={"cpu": 100})], decisions)


async def begin(link: RedisLink, core: SnapshotCore, *, prefix: str = PREFIX) -> Writer:
    """A term whose state is whole."""
    await open_term(link, prefix, core.epoch, PIPELINE)
    writer = await Writer.open(link, prefix, core.epoch, SHARDS)
    await writer.rewrite(core.whole(), core.ledger.values(), None)
    return writer


async def load(link: RedisLink, *, prefix: str = PREFIX) -> State | None:
    return await StoreReader(link, prefix).load(range(SHARDS), SHARDS)


async def loaded(link: RedisLink, *, prefix: str = PREFIX) -> State:
    state = await load(link, prefix=prefix)
    assert state is not None
    return state


class Relay:
    """A TCP port in front of a server's socket, which can lose answers, or deliver what was sent only later."""

    def __init__(self, socket: str) -> None:
        self.loses_answers = False
        self.holds_commands = False
        self._socket = socket
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._released = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def deliver(self) -> None:
        """Sends what was held, and returns when the server has answered it."""
        self.holds_commands = False
        held, self._held = self._held, []
        for to_server, data in held:
            to_server.write(data)
            await to_server.drain()
        await asyncio.wait_for(self._released.wait(), 5.0)

    async def carry(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_unix_connection(self._socket)
        except OSError:  # it was killed
            to_client.close()
            return
        there = asyncio.create_task(self._there(client, to_server, to_client))
        try:
            await self._back(server, to_client)
        finally:
            there.cancel()
            with suppress(asyncio.CancelledError):
                await there
            for writer in (to_server, to_client):
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    async def _there(
        self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter, to_client: asyncio.StreamWriter
    ) -> None:
        while data := await client.read(1 << 16):
            if self.holds_commands:
                self._held.append((to_server, data))
                to_client.close()
                return
            to_server.write(data)
            await to_server.drain()
        if not any(writer is to_server for writer, _ in self._held):
            to_server.write_eof()

    async def _back(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        while data := await server.read(1 << 16):
            if to_client.is_closing():
                self._released.set()
                return
            if self.loses_answers:
                return
            to_client.write(data)
            with suppress(ConnectionError):
                await to_client.drain()


@asynccontextmanager
async def relay(server: Server) -> AsyncIterator[Relay]:
    between = Relay(urlsplit(server.url).path)
    async with listening(between.carry) as between.port:
        yield between


@asynccontextmanager
async def behind_a_relay() -> AsyncIterator[tuple[RedisLink, Relay, RedisLink]]:
    """A direct link to a server, a relay, and a link to the same server through that."""
    async with (
        redis_server() as server,
        linked(server) as direct,
        relay(server) as between,
        linked_to(between.url) as link,
    ):
        yield direct, between, link
