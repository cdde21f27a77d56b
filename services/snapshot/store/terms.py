"""The snapshot's terms: the first is that in which it leads; each is opened in Redis, and begun with all state."""

import asyncio
import logging
from collections.abc import Sequence

from services.snapshot.core import SnapshotCore
from services.snapshot.events import Persist
from shared.errors import ClusterError
from shared.messages.state import Committed, LedgerEntry, State
from shared.runtime import Health
from shared.runtime.leadership import Leadership, LeaseLost
from shared.store.errors import Deposed, StateLost, StoreUnreachable
from shared.store.link import RedisLink
from shared.store.term import Recovered, open_term
from shared.store.writer import Writer
from shared.telemetry.logs import Repeated

PAUSE = 0.2
"""Seconds between two attempts where Redis does not answer."""
EVICTS = "Redis at %s may remove keys when it is full: maxmemory-policy is %s, set noeviction"


def ledger_is_lost(recovered: Recovered, before: int) -> bool:
    """Whether earlier terms may have ordered what the ledger does not hold. `before`: the last term by the Lease.

    A store that has missed a term, because another one was written to meanwhile, is as good as lost.
    """
    return max(before, recovered.epoch) > 0 and (recovered.lost or recovered.epoch < before)


class Terms:
    """What is written belongs to the present term; where that is over, a new one is needed."""

    def __init__(
        self,
        lead: Leadership,
        link: RedisLink,
        prefix: str,
        health: Health,
        log: logging.Logger,
        pipeline: str = "",
    ) -> None:
        self._lead = lead
        self._link = link
        self._prefix = prefix
        self._health = health
        self._log = log
        self._sparingly = Repeated(log)
        self._pipeline = pipeline
        self._writer: Writer | None = None
        self.epoch = 0
        self.healthy = True
        """Whether what is to be written can be, as far as is known."""

    async def take(self) -> Recovered:
        """The next term, and what the one before has left. Waits for Redis; LeaseLost where another one leads.

        UserError where Redis has what is another pipeline's.
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
                # Redis remembers more terms than the Lease does: somebody has deleted the Lease.
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
        """Writes the core's state whole, as it is now. False where that takes another term."""
        state, ledger, answer = core.state(range(shard_count), shard_count), core.ledger, core.answer
        while True:
            try:
                await self._rewrite(state, list(ledger.values()), answer, shard_count)
            except StateLost as cause:
                self._log.warning("%s", cause)
                return False
            except StoreUnreachable as cause:
                await self._wait(cause)
            else:
                self._recover()
                return True

    async def write(self, persists: Sequence[Persist]) -> bool:
        """All of it is safe when this returns True; False: what was written before is lost. Deposed is raised."""
        writer = self._writer
        while writer is not None:
            try:
                await writer.write(persists)
            except StateLost as cause:
                self._log.warning("%s", cause)
                self._writer = None
                return False
            except StoreUnreachable as cause:
                await self._wait(cause)
            else:
                self._recover()
                return True
        return False

    async def _rewrite(
        self, state: State, ledger: Sequence[LedgerEntry], answer: Committed | None, shard_count: int
    ) -> None:
        """Until all of it is there, nothing else can be written."""
        self._writer = None
        writer = await Writer.open(self._link, self._prefix, self.epoch, shard_count)
        await writer.rewrite(state, ledger, answer)
        self._writer = writer

    def _recover(self) -> None:
        self.healthy = True
        self._health.clear("term")

    async def _wait(self, cause: Exception) -> None:
        self.healthy = False
        self._health.wait_for("term", str(cause))
        self._sparingly.warning("wait", "%s", cause)
        await asyncio.sleep(PAUSE)
