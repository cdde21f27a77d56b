"""The snapshot's terms: each is opened in Redis, and begins when the whole state is there."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from services.snapshot.core import SnapshotCore
from shared.cluster.nodetable import shard_of
from shared.errors import ClusterError
from shared.messages.state import Delta
from shared.runtime import Health
from shared.runtime.leadership import Leadership, LeaseLost
from shared.store.errors import Deposed, StateLost, StoreUnreachable
from shared.store.link import RedisLink
from shared.store.schema import Persist, ReadPosition
from shared.store.term import Recovered, open_term
from shared.store.writer import Writer
from shared.telemetry.logs import Repeated

PAUSE = 0.2
"""Seconds between two attempts while Redis does not answer."""
EVICTS = "Redis at %s may remove keys when it is full: maxmemory-policy is %s, set noeviction"


def ledger_is_lost(recovered: Recovered, before: int) -> bool:
    """Whether earlier terms may have ordered bindings that are not in the ledger. `before`: the last, by the Lease.

    A store that has missed a term, because another store was written to meanwhile, counts as lost.
    """
    return max(before, recovered.epoch) > 0 and (recovered.lost or recovered.epoch < before)


class Terms:
    """Writes belong to the present term; once that is over, a new one is needed."""

    def __init__(
        self, lead: Leadership, link: RedisLink, prefix: str, health: Health, log: logging.Logger, pipeline: str = ""
    ) -> None:
        self._lead = lead
        self._link = link
        self._prefix = prefix
        self._health = health
        self._log = log
        self._repeated = Repeated(log)
        self._pipeline = pipeline
        self._writer: Writer | None = None
        self.epoch = 0
        self.read: Callable[[], tuple[int, int, int] | None] = lambda: None
        """How far the watcher's stream was read: its epoch, the number, the highest version of a pod."""
        self.healthy = True
        """Whether the last write succeeded."""

    async def take(self) -> Recovered:
        """Opens the next term. Returns what the one before has left. Waits for Redis.

        Raises LeaseLost if another snapshot leads, and UserError if Redis has keys of another pipeline.
        """
        beyond = 0
        while True:
            try:
                first = not self.epoch
                self.epoch = self._lead.epoch if first else await self._lead.raise_term(beyond)
                recovered = await open_term(self._link, self._prefix, self.epoch, self._pipeline)
            except LeaseLost:
                raise
            except Deposed as newer:
                # Redis knows later terms than the Lease: the Lease was deleted.
                self._log.warning("%s; beginning a later one", newer)
                beyond = newer.newest
            except ClusterError as cause:
                await self._wait(cause)
            else:
                self._recover()
                if recovered.evicts:
                    self._log.warning(EVICTS, self._link.where, recovered.evicts)
                self._log.info("term %d begins; the one before was %d", self.epoch, recovered.epoch)
                return recovered

    async def begin(self, core: SnapshotCore, shard_count: int) -> bool:
        """Writes the core's whole state, as it is now. Returns False if that takes another term."""
        state, ledger, answer = core.whole(), core.stored_ledger, core.answer

        async def rewrite() -> None:
            self._writer = None  # nothing else is written until all of this is
            writer = await Writer.open(self._link, self._prefix, self.epoch, shard_count, self._read_position)
            await writer.rewrite(state, ledger, answer)
            self._writer = writer

        return await self._repeat(rewrite)

    async def go_on(
        self, core: SnapshotCore, shard_count: int, deltas: Sequence[Delta], nodes_before: Mapping[str, str]
    ) -> bool:
        """Instead of `begin`: continues the state of the term before, from which these deltas lead to the core's.

        `nodes_before`: where that state has the pods of the deltas, as far as it is known.
        """
        before = {uid: shard_of(node, shard_count) for uid, node in nodes_before.items()}
        seq, ledger, answer, pods = core.seq, core.stored_ledger, core.answer, core.cluster.pods.copied()

        async def write() -> None:
            self._writer = None
            writer = await Writer.open(self._link, self._prefix, self.epoch, shard_count, self._read_position)
            await writer.go_on(deltas, seq, pods, ledger, answer, before)
            self._writer = writer

        return await self._repeat(write)

    async def write(self, persists: Sequence[Persist]) -> bool:
        """Returns True once all of it is durable; False if earlier writes are lost. Raises Deposed."""
        writer = self._writer
        return writer is not None and await self._repeat(lambda: writer.write(persists))

    def _read_position(self) -> ReadPosition | None:
        read = self.read()
        return None if read is None else ReadPosition(self.epoch, *read)

    async def _repeat(self, write: Callable[[], Awaitable[None]]) -> bool:
        """Repeats a write until Redis answers. Returns False if the state there is lost."""
        while True:
            try:
                await write()
            except StateLost as cause:
                self._log.warning("%s", cause)
                self._writer = None
                return False
            except StoreUnreachable as cause:
                await self._wait(cause)
            else:
                self._recover()
                return True

    def _recover(self) -> None:
        self.healthy = True
        self._health.clear("term")

    async def _wait(self, cause: Exception) -> None:
        self.healthy = False
        self._health.wait_for("term", str(cause))
        self._repeated.warning("wait", "%s", cause)
        await asyncio.sleep(PAUSE)
