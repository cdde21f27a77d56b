"""The end of a term: settles every attempt that may still be bound, so that the next term need not wait for any.

Orders that were never sent are void at once. For those that binders have, reports are waited for. If all binders end as
well, what is left without a report is fenced. If they stay, it is left to the next term, which asks them.
"""

import asyncio
from collections.abc import Callable, Iterator

from services.snapshot.core import SnapshotCore
from services.snapshot.dispatch.order_dispatcher import OrderDispatcher
from services.snapshot.events import BindingReport
from shared.messages.binding import BindingOutcome
from shared.messages.state import EPOCH_SHIFT, LedgerEntry
from shared.runtime.stopping import SNAPSHOT_FENCES, SNAPSHOT_WORDS

POLL = 0.01
"""Seconds between two checks whether the last orders have ended."""
REASON = "the scheduler ends"


class TermEnd:
    def __init__(
        self,
        core: SnapshotCore,
        dispatcher: OrderDispatcher,
        feed: Callable[[BindingReport], None],
        clock: Callable[[], float],
    ) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._feed = feed
        self._clock = clock

    @property
    def settled(self) -> bool:
        """Whether no attempt can bind a pod that is not bound already, or allocate a claim."""
        return next(self._open(), None) is None and not self._core.cluster.held

    async def run(self) -> None:
        """Takes a bounded time. Meanwhile nothing is committed or sent; reports are handled and written."""
        now = self._clock()
        for entry in list(self._open()):
            if self._is_unsent(entry, now):
                self._fail(entry, sure=True)
        await self._wait(SNAPSHOT_WORDS)
        if not self._dispatcher.takes_orders(since=now):
            for entry in list(self._open()):
                self._fail(entry, sure=False)
            await self._wait(SNAPSHOT_FENCES)

    def _open(self) -> Iterator[LedgerEntry]:
        return (entry for entry in self._core.ledger.values() if not entry.bound)

    def _is_unsent(self, entry: LedgerEntry, now: float) -> bool:
        """Whether the attempt is of this term, and no binder got its order."""
        key = (entry.uid, entry.attempt)
        of_this_term = entry.attempt >> EPOCH_SHIFT >= self._core.epoch
        return of_this_term and not self._dispatcher.was_sent(key) and self._core.order(key, now) is not None

    def _fail(self, entry: LedgerEntry, *, sure: bool) -> None:
        self._feed(BindingReport(BindingOutcome(entry.uid, entry.attempt, REASON, version=entry.version), sure))

    async def _wait(self, timeout: float) -> None:
        ends = self._clock() + timeout
        while not self.settled and self._clock() < ends:
            await asyncio.sleep(POLL)
